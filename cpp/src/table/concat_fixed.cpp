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

bool FixedConcat::add(PackedParts const& parts, std::span<std::byte const> data) {
    if (!read_fixed_columns(*schema_, parts, data, values_)) {
        return false;
    }
    rows_.push_back(parts.info.num_rows);
    num_rows_ += parts.info.num_rows;
    return true;
}

std::vector<std::size_t> FixedConcat::place() const {
    std::vector<std::size_t> begins{0};
    for (auto const& field : schema_->fields()) {
        auto const bytes = static_cast<std::size_t>(num_rows_ * field.width());
        begins.push_back(begins.back() + (bytes + piece_alignment - 1) / piece_alignment * piece_alignment);
    }
    return begins;
}

std::size_t FixedConcat::bytes_of(std::size_t part, std::size_t column) const {
    return static_cast<std::size_t>(rows_[part] * schema_->fields()[column].width());
}

Table FixedConcat::table_in(
    std::shared_ptr<Buffer> buffer, std::vector<std::size_t> const& begins, TablePlace place) const {
    std::vector<Column> columns(schema_->num_columns());
    for (std::size_t c = 0; c < columns.size(); ++c) {
        columns[c].length = num_rows_;
        columns[c].values = buffer->data() + begins[c];
    }
    auto const stream = buffer->stream();
    return Table{schema_, std::move(columns), num_rows_, std::move(buffer), place, stream};
}

void FixedConcat::prefetch_start(std::size_t part) const {
    auto const columns = schema_->num_columns();
    std::size_t left = device::stream_read_ahead;
    for (std::size_t c = 0; c < columns && left > 0; ++c) {
        auto const bytes = bytes_of(part, c);
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
    auto const columns = schema_->num_columns();
    auto const begins = place();
    auto const size = begins.back();
    std::shared_ptr<Buffer> buffer = std::move(allocate_parts(std::array{size}, {}, br, allow).front());
    auto* const base = buffer->mutable_host_bytes().data();
    std::vector<std::byte*> to;
    for (std::size_t c = 0; c < columns; ++c) {
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
        for (std::size_t c = 0; c < columns; ++c) {
            auto const bytes = bytes_of(p, c);
            if (bytes > 0) {
                copy(to[c], values_[p * columns + c], bytes);
            }
            to[c] += bytes;
        }
        taken[p].data.reset();
    }
    if (is_large) {
        device::finish_streaming();
    }
    return table_in(std::move(buffer), begins, TablePlace::host);
}

Table FixedConcat::finish_on_gpu(BufferResource& br, AllowOverbooking allow, Stream stream) && {
    auto const columns = schema_->num_columns();
    auto const begins = place();
    std::shared_ptr<Buffer> buffer =
        std::move(allocate_device_parts(std::array{begins.back()}, {}, br, allow, stream).front());
    buffer->write([&](std::byte* base, Stream on) {
        std::vector<CopyPiece> copies;
        copies.reserve(columns * rows_.size());
        for (std::size_t c = 0; c < columns; ++c) {
            auto* to = base + begins[c];
            for (std::size_t p = 0; p < rows_.size(); ++p) {
                auto const bytes = bytes_of(p, c);
                copies.push_back({values_[p * columns + c], to, bytes});
                to += bytes;
            }
        }
        br.device().gather_copy(copies, on);
    });
    return table_in(std::move(buffer), begins, TablePlace::gpu);
}

}  // namespace rapidsmpf::detail
