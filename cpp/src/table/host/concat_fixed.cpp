#include "table/host/concat_fixed.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/detail/prefetch.hpp>
#include <rapidsmpf/device/detail/stream_copy.hpp>

#include "table/host/tuning.hpp"
#include "table/packed/slab.hpp"

namespace rapidsmpf::detail {

namespace {
// Writes pieces one behind the other past the caches, whole lines at a time: one that is written in parts has to be read first.
class LineWriter {
  public:
    // `to` begins a line.
    explicit LineWriter(std::byte* to) noexcept : to_{to} {}

    void append(std::byte const* from, std::size_t size) noexcept {
        if (fill_ > 0) {
            auto const head = std::min(size, device::cache_line - fill_);
            std::memcpy(line_.data() + fill_, from, head);
            fill_ += head;
            if (fill_ < device::cache_line) {
                return;
            }
            device::stream_line(to_, line_.data());
            to_ += device::cache_line;
            from += head;
            size -= head;
        }
        auto const whole = size / device::cache_line * device::cache_line;
        device::stream_lines(to_, from, whole);
        to_ += whole;
        fill_ = size - whole;
        std::memcpy(line_.data(), from + whole, fill_);
    }
    void finish() const noexcept {
        std::memcpy(to_, line_.data(), fill_);
        device::finish_streaming();
    }

  private:
    std::byte* to_;
    std::size_t fill_{0};
    alignas(device::cache_line) std::array<std::byte, device::cache_line> line_;
};

// The same through the caches.
class PlainWriter {
  public:
    explicit PlainWriter(std::byte* to) noexcept : to_{to} {}

    void append(std::byte const* from, std::size_t size) noexcept {
        device::stream_copy(to_, from, size);
        to_ += size;
    }
    void finish() const noexcept {}

  private:
    std::byte* to_;
};
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
        begins.push_back(begins.back() + round_up(bytes, buffer_alignment));
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
            prefetch_to_read<PrefetchTo::second_cache>(begin + at);
        }
        left -= std::min(bytes, left);
    }
}

template <typename Writer>
void FixedConcat::copy_to(
    std::span<PackedData> parts, std::byte* base, std::vector<std::size_t> const& begins) const {
    auto const columns = schema_->num_columns();
    std::vector<Writer> writers;
    writers.reserve(columns);
    for (std::size_t c = 0; c < columns; ++c) {
        writers.emplace_back(base + begins[c]);
    }
    // Small ones are copied sooner than they come.
    auto const ahead = std::clamp<std::size_t>(
        device::stream_read_ahead * rows_.size() / std::max<std::size_t>(begins.back(), 1), 1,
        tuning::most_parts_ahead);
    for (std::size_t p = 0; p < rows_.size(); ++p) {
        if (p + ahead < rows_.size()) {
            prefetch_start(p + ahead);
            detail::prefetch_owner(*parts[p + ahead].data);
        }
        for (std::size_t c = 0; c < columns; ++c) {
            if (auto const bytes = bytes_of(p, c); bytes > 0) {
                writers[c].append(values_[p * columns + c], bytes);
            }
        }
        parts[p].data.reset();
    }
    for (auto const& writer : writers) {
        writer.finish();
    }
}

Table FixedConcat::finish(std::vector<PackedData>&& parts, BufferResource& br, AllowOverbooking allow) && {
    auto taken = std::exchange(parts, {});
    auto const begins = place();
    auto const size = begins.back();
    std::shared_ptr<Buffer> buffer = std::move(allocate_parts(std::array{size}, {}, br, allow).front());
    auto* const base = buffer->mutable_host_bytes().data();
    if (size >= tuning::smallest_streamed_concat) {
        copy_to<LineWriter>(taken, base, begins);
    } else {
        copy_to<PlainWriter>(taken, base, begins);
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
