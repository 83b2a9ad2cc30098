// The inner loops of packing: copying a column's selected rows to the partition that they go to, one run at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <rapidsmpf/device/detail/stream_copy.hpp>

#include "table/host/bits.hpp"
#include "table/host/column_access.hpp"
#include "table/host/selection.hpp"
#include "table/host/tuning.hpp"

namespace rapidsmpf::detail {

// Fills one column node of one partition from its start to its end, in as many runs as there are blocks and source tables.
struct ColumnWriter {
    std::byte* validity{nullptr};
    std::byte* values{nullptr};  // values, views or offsets
    std::byte* data{nullptr};
    // Filled so far.
    std::int64_t row{0};
    std::int64_t byte{0};  // of data; of a list: rows of its child
    std::int64_t nulls{0};
    // Views address at most 2 GiB of one buffer: `data` is divided into buffers that end here.
    std::int64_t segment_begin{0};
    std::vector<std::int64_t> segment_ends;
};

// 16 bytes, moved as two words.
struct Bytes16 {
    std::uint64_t low;
    std::uint64_t high;
};
struct Bytes32 {
    std::uint64_t words[4];
};

inline void append_validity(ColumnWriter& writer, Column const& column, IndexRun const& run) {
    if (column.validity == nullptr) {
        fill_bits(writer.validity, writer.row, run.count);
        return;
    }
    auto const set = gather_bits(
        writer.validity, writer.row, column.validity, column.offset + run.base, run.rows, run.count);
    writer.nulls += run.count - set;
}

inline void append_validity(ColumnWriter& writer, Column const& column, RangeRun const& run) {
    auto row = writer.row;
    for (std::size_t k = 0; k < run.count; ++k) {
        auto const range = run.ranges[k];
        if (column.validity == nullptr) {
            fill_bits(writer.validity, row, range.length);
        } else {
            auto const set =
                copy_bits(writer.validity, row, column.validity, column.offset + range.begin, range.length);
            writer.nulls += range.length - set;
        }
        row += range.length;
    }
}

inline void append_bits(ColumnWriter& writer, Column const& column, IndexRun const& run) {
    gather_bits(
        writer.values, writer.row, reinterpret_cast<std::uint8_t const*>(column.values),
        column.offset + run.base, run.rows, run.count);
}

inline void append_bits(ColumnWriter& writer, Column const& column, RangeRun const& run) {
    auto row = writer.row;
    for (std::size_t k = 0; k < run.count; ++k) {
        auto const range = run.ranges[k];
        copy_bits(
            writer.values, row, reinterpret_cast<std::uint8_t const*>(column.values),
            column.offset + range.begin, range.length);
        row += range.length;
    }
}

// How rows are written: what is larger than the caches goes past them.
enum class Stores : std::uint8_t { cached, streaming };

template <typename T>
void append_fixed_rows(std::byte* to, std::byte const* from, std::uint16_t const* rows, std::int64_t count) {
    std::int64_t k = 0;
    for (; k + 4 <= count; k += 4) {
        auto const a = load<T>(from, rows[k]);
        auto const b = load<T>(from, rows[k + 1]);
        auto const c = load<T>(from, rows[k + 2]);
        auto const d = load<T>(from, rows[k + 3]);
        store(to, k, a);
        store(to, k + 1, b);
        store(to, k + 2, c);
        store(to, k + 3, d);
    }
    for (; k < count; ++k) {
        store(to, k, load<T>(from, rows[k]));
    }
}

// The same past the caches: whole lines at a time, for a line that is written in parts by other stores between costs many
// times as much. What is before the first and after the last line goes through the caches.
template <typename T>
void stream_fixed_rows(std::byte* to, std::byte const* from, std::uint16_t const* rows, std::int64_t count) {
    constexpr auto width = static_cast<std::int64_t>(sizeof(T));
    constexpr auto line = static_cast<std::int64_t>(device::cache_line);
    constexpr auto per_line = line / width;
    auto const past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % device::cache_line);
    // A value that lies across lines is in memory that is not ours: then no line is written at once.
    auto const head = past == 0 ? 0 : past % width == 0 ? std::min(count, (line - past) / width) : count;
    append_fixed_rows<T>(to, from, rows, head);
    auto k = head;
    for (; k + per_line <= count; k += per_line) {
        device::stream_gathered_line<T>(to + k * width, from, rows + k);
    }
    append_fixed_rows<T>(to + k * width, from, rows + k, count - k);
}

template <typename T>
void gather_rows_of(
    std::byte* to, std::byte const* from, std::uint16_t const* rows, std::int64_t count, Stores stores) {
    if constexpr (device::streams_gathered_lines<T>) {
        if (stores == Stores::streaming && count >= tuning::shortest_streamed_run) {
            stream_fixed_rows<T>(to, from, rows, count);
            return;
        }
    }
    append_fixed_rows<T>(to, from, rows, count);
}

// Calls use(T{}) with a type of `width` bytes to move values by; false if there is none for that width.
template <typename Use>
bool with_value_type(std::int64_t width, Use const& use) {
    switch (width) {
        case 1:
            use(std::uint8_t{});
            return true;
        case 2:
            use(std::uint16_t{});
            return true;
        case 4:
            use(std::uint32_t{});
            return true;
        case 8:
            use(std::uint64_t{});
            return true;
        case 16:
            use(Bytes16{});
            return true;
        case 32:
            use(Bytes32{});
            return true;
        default:
            return false;
    }
}

// Copies the values of `count` rows, in their order, to `to`. `from`: of row 0.
inline void gather_rows(
    std::byte* to, std::byte const* from, std::uint16_t const* rows, std::int64_t count, std::int64_t width,
    Stores stores) {
    bool const has_type =
        with_value_type(width, [&]<typename T>(T) { gather_rows_of<T>(to, from, rows, count, stores); });
    if (has_type) {
        return;
    }
    for (std::int64_t k = 0; k < count; ++k, to += width) {
        std::memcpy(to, from + rows[k] * width, static_cast<std::size_t>(width));
    }
}

// Ranges do not care about the width.
inline void append_bytes(
    ColumnWriter& writer, Column const& column, RangeRun const& run, std::int64_t width, Stores stores) {
    auto* to = writer.values + writer.row * width;
    for (std::size_t k = 0; k < run.count; ++k) {
        auto const size = static_cast<std::size_t>(run.ranges[k].length * width);
        auto const* const from = column.values + (column.offset + run.ranges[k].begin) * width;
        if (stores == Stores::streaming) {
            device::stream_copy(to, from, size);
        } else {
            std::memcpy(to, from, size);
        }
        to += size;
    }
}

template <typename Run>
void append_fixed_width(
    ColumnWriter& writer, Column const& column, Run const& run, std::int64_t width, Stores stores) {
    if (width == 0) {
        return;
    }
    if constexpr (std::is_same_v<Run, IndexRun>) {
        auto const* const from = column.values + (column.offset + run.base) * width;
        gather_rows(writer.values + writer.row * width, from, run.rows, run.count, width, stores);
    } else {
        append_bytes(writer, column, run, width, stores);
    }
}

// Dictionary codes, renumbered by a table. Rows that are null get code 0.
template <typename T, typename Run>
void append_renumbered(
    ColumnWriter& writer, Column const& column, Run const& run, std::vector<std::uint32_t> const& numbers) {
    auto row = writer.row;
    run.for_each_row([&](std::int64_t from) {
        T code{0};
        if (column.is_valid(from)) {
            code = static_cast<T>(numbers[load<T>(column.values, column.offset + from)]);
        }
        store(writer.values, row++, code);
    });
}

// Copies a text; most are short, and a call for each would cost more than the copy.
inline void copy_text(std::byte* to, std::byte const* from, std::size_t size) noexcept {
    // Two copies that overlap, of half the next power of two.
    auto const copy_ends = [&]<typename T>(T) {
        auto const head = load<T>(from, 0);
        auto const tail = load<T>(from + size - sizeof(T), 0);
        store(to, 0, head);
        store(to + size - sizeof(T), 0, tail);
    };
    if (size > 32) {
        std::memcpy(to, from, size);
    } else if (size >= 16) {
        copy_ends(Bytes16{});
    } else if (size >= 8) {
        copy_ends(std::uint64_t{});
    } else if (size >= 4) {
        copy_ends(std::uint32_t{});
    } else {
        for (std::size_t i = 0; i < size; ++i) {
            to[i] = from[i];
        }
    }
}

// Offsets of the run's rows, and for texts the bytes; for lists the bytes are the child's business.
template <typename Offset>
void append_offsets(ColumnWriter& writer, Column const& column, IndexRun const& run, bool with_bytes) {
    auto const* const offsets = static_cast<Offset const*>(column.offsets) + column.offset + run.base;
    auto row = writer.row;
    auto byte = writer.byte;
    for (std::int64_t k = 0; k < run.count; ++k) {
        auto const begin = load<Offset>(offsets, run.rows[k]);
        auto const size = static_cast<std::int64_t>(load<Offset>(offsets, run.rows[k] + 1) - begin);
        if (with_bytes) {
            copy_text(writer.data + byte, column.data.data() + begin, static_cast<std::size_t>(size));
        }
        byte += size;
        store(writer.values, ++row, static_cast<Offset>(byte));
    }
    writer.byte = byte;
}

template <typename Offset>
void append_offsets(ColumnWriter& writer, Column const& column, RangeRun const& run, bool with_bytes) {
    auto row = writer.row;
    for (std::size_t k = 0; k < run.count; ++k) {
        auto const length = run.ranges[k].length;
        auto const first = column.offset + run.ranges[k].begin;
        auto const begin = load<Offset>(column.offsets, first);
        auto const size = static_cast<std::int64_t>(load<Offset>(column.offsets, first + length) - begin);
        if (with_bytes && size > 0) {
            std::memcpy(
                writer.data + writer.byte, column.data.data() + begin, static_cast<std::size_t>(size));
        }
        auto const shift = static_cast<Offset>(writer.byte - begin);
        for (std::int64_t i = 1; i <= length; ++i) {
            store(
                writer.values, row + i, static_cast<Offset>(load<Offset>(column.offsets, first + i) + shift));
        }
        row += length;
        writer.byte += size;
    }
}

// Begins a new buffer of `writer.data` when `size` more bytes would not fit into the current one.
inline void make_room(ColumnWriter& writer, std::int64_t size, std::int64_t max_segment) {
    if (writer.byte - writer.segment_begin + size > max_segment && writer.byte > writer.segment_begin) {
        writer.segment_ends.push_back(writer.byte);
        writer.segment_begin = writer.byte;
    }
}

// Views whose texts are copied one by one.
template <typename Run>
void append_views(ColumnWriter& writer, Column const& column, Run const& run, std::int64_t max_segment) {
    auto row = writer.row;
    run.for_each_row([&](std::int64_t from) {
        View view{};
        if (column.is_valid(from)) {
            view = load_view(column, from);
            if (view.size > View::max_inline) {
                make_room(writer, view.size, max_segment);
                copy_text(
                    writer.data + writer.byte, column.variadic[view.buffer].data() + view.offset, view.size);
                view.buffer = static_cast<std::uint32_t>(writer.segment_ends.size());
                view.offset = static_cast<std::uint32_t>(writer.byte - writer.segment_begin);
                writer.byte += view.size;
            }
        }
        store(writer.values, row++, view);
    });
}

// Where a source's buffer has gone: added to the offset of its views.
struct MovedBuffer {
    std::uint32_t buffer;
    std::uint32_t offset;
};

// Copies all buffers of a view column at once.
[[nodiscard]] inline std::vector<MovedBuffer> append_buffers(
    ColumnWriter& writer, Column const& column, std::int64_t max_segment) {
    std::vector<MovedBuffer> moved;
    for (auto const& buffer : column.variadic) {
        auto const size = static_cast<std::int64_t>(buffer.size());
        make_room(writer, size, max_segment);
        moved.push_back(
            {static_cast<std::uint32_t>(writer.segment_ends.size()),
             static_cast<std::uint32_t>(writer.byte - writer.segment_begin)});
        if (size > 0) {
            std::memcpy(writer.data + writer.byte, buffer.data(), buffer.size());
        }
        writer.byte += size;
    }
    return moved;
}

// Views whose buffers have been moved as a whole.
template <typename Run>
void append_moved_views(
    ColumnWriter& writer, Column const& column, Run const& run, std::vector<MovedBuffer> const& moved) {
    auto row = writer.row;
    run.for_each_row([&](std::int64_t from) {
        View view{};
        if (column.is_valid(from)) {
            view = load_view(column, from);
            if (view.size > View::max_inline) {
                auto const place = moved[view.buffer];
                view.buffer = place.buffer;
                view.offset += place.offset;
            }
        }
        store(writer.values, row++, view);
    });
}

}  // namespace rapidsmpf::detail
