#include "concat_fixed.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <rapidsmpf/device/stream_copy.hpp>

#include "slab.hpp"

namespace rapidsmpf::detail {

namespace {
// What is put together is not expected to be found in a cache by who reads it.
constexpr std::size_t larger_than_caches = std::size_t{2} << 20U;
// Parts whose bytes are asked for before they are copied.
constexpr std::size_t farthest_ahead = 6;
}  // namespace

bool FixedConcat::takes(Schema const& schema) {
    return std::all_of(schema.fields().begin(), schema.fields().end(), [](Field const& field) {
        return field.layout() == Layout::fixed && field.dictionary() == nullptr;
    });
}

FixedConcat::FixedConcat(std::shared_ptr<Schema const> schema) : schema_{std::move(schema)} {}

bool FixedConcat::add(PackedParts const& parts, Buffer const& data) {
    if (!read_fixed_columns(*schema_, parts, data.host_bytes(), values_)) {
        return false;
    }
    rows_.push_back(parts.info.num_rows);
    num_rows_ += parts.info.num_rows;
    return true;
}

void FixedConcat::prefetch_start(std::size_t part) const {
    auto const columns = schema_->num_columns();
    std::size_t left = device::stream_read_ahead;
    for (std::size_t c = 0; c < columns && left > 0; ++c) {
        auto const bytes = static_cast<std::size_t>(rows_[part] * schema_->fields()[c].width());
        auto const* const begin = values_[part * columns + c];
        // Each lies on a line boundary.
        for (std::size_t at = 0; at < std::min(bytes, left); at += device::cache_line) {
            __builtin_prefetch(begin + at, 0, 2);
        }
        left -= std::min(bytes, left);
    }
}

Table FixedConcat::finish(std::vector<PackedData>&& parts, BufferResource& br, AllowOverbooking allow) && {
    auto taken = std::exchange(parts, {});
    std::vector<Column> columns(schema_->num_columns());
    std::vector<std::size_t> begins;
    std::size_t size = 0;
    for (auto const& field : schema_->fields()) {
        begins.push_back(size);
        auto const bytes = static_cast<std::size_t>(num_rows_ * field.width());
        size += (bytes + piece_alignment - 1) / piece_alignment * piece_alignment;
    }
    std::shared_ptr<Buffer> const buffer = std::move(allocate_parts(std::array{size}, {}, br, allow).front());
    auto* const base = buffer->mutable_host_bytes().data();
    std::vector<std::byte*> to;
    for (std::size_t c = 0; c < columns.size(); ++c) {
        columns[c].length = num_rows_;
        columns[c].values = base + begins[c];
        to.push_back(base + begins[c]);
    }
    bool const is_large = size >= larger_than_caches;
    auto const copy = is_large ? device::stream_copy_piece : device::stream_copy;
    // Small ones are copied sooner than they come.
    auto const ahead = std::clamp<std::size_t>(
        device::stream_read_ahead * rows_.size() / std::max<std::size_t>(size, 1), 1, farthest_ahead);
    for (std::size_t p = 0; p < rows_.size(); ++p) {
        if (p + ahead < rows_.size()) {
            prefetch_start(p + ahead);
            taken[p + ahead].data->prefetch_owner();
        }
        for (std::size_t c = 0; c < columns.size(); ++c) {
            auto const bytes = static_cast<std::size_t>(rows_[p] * schema_->fields()[c].width());
            if (bytes > 0) {
                copy(to[c], values_[p * columns.size() + c], bytes);
            }
            to[c] += bytes;
        }
        taken[p].data.reset();
    }
    if (is_large) {
        device::finish_streaming();
    }
    return Table{schema_, std::move(columns), num_rows_, buffer};
}

}  // namespace rapidsmpf::detail
