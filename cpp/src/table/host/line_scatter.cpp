#include "table/host/line_scatter.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include <rapidsmpf/device/detail/stream_copy.hpp>

#include "table/host/column_access.hpp"
#include "table/host/scatter.hpp"
#include "table/host/scratch.hpp"
#include "table/host/tuning.hpp"

namespace rapidsmpf::detail {

namespace {

constexpr auto line = device::cache_line;

// The columns that go together.
struct Group {
    std::int64_t width{0};
    std::vector<std::size_t> columns;
};

std::vector<Group> groups_of(std::span<FixedValues const> columns, std::size_t num_partitions) {
    auto const together = std::clamp<std::size_t>(
        tuning::most_bytes_of_lines / (line * num_partitions), 1, tuning::most_columns_together);
    std::vector<Group> groups;
    for (std::size_t c = 0; c < columns.size(); ++c) {
        auto group = std::find_if(groups.begin(), groups.end(), [&](Group const& g) {
            return g.width == columns[c].width && g.columns.size() < together;
        });
        if (group == groups.end()) {
            group = groups.insert(groups.end(), Group{columns[c].width, {}});
        }
        group->columns.push_back(c);
    }
    return groups;
}

// What a group needs for each partition.
class Lines {
  public:
    Lines(std::size_t columns, std::size_t num_partitions)
        : memory_{line + num_partitions * columns * line},
          to_{num_partitions * columns},
          fill_{num_partitions} {
        auto const begin = reinterpret_cast<std::uintptr_t>(memory_.data());
        lines_ = memory_.data() + (line - begin % line) % line;
    }

    // By partition, then column: the lines, and where they are written.
    [[nodiscard]] std::byte* lines() const noexcept { return lines_; }
    [[nodiscard]] std::byte** to() const noexcept { return to_.data(); }
    // By partition: rows in its lines.
    [[nodiscard]] std::uint32_t* fill() const noexcept { return fill_.data(); }

  private:
    Scratch<std::byte> memory_;
    Scratch<std::byte*> to_;
    Scratch<std::uint32_t> fill_;
    std::byte* lines_;
};

// A line for each of the columns, past the caches, even if the table is small: what is written whole needs not be read first.
template <std::size_t columns>
void write_lines(std::byte** to, std::byte const* from) noexcept {
    for (std::size_t c = 0; c < columns; ++c) {
        device::stream_line(to[c], from + c * line);
        to[c] += line;
    }
}

template <typename T, std::size_t columns>
void scatter_rows(
    std::array<std::byte const*, columns> from, std::span<std::uint16_t const> of_row,
    Lines const& memory) noexcept {
    constexpr auto per_line = static_cast<std::uint32_t>(line / sizeof(T));
    auto* const lines = memory.lines();
    auto** const to = memory.to();
    auto* const fill = memory.fill();
    auto const num_rows = static_cast<std::int64_t>(of_row.size());
    auto const* const partitions = of_row.data();
    for (std::int64_t row = 0; row < num_rows; ++row) {
        std::size_t const partition = partitions[row];
        auto slot = fill[partition];
        auto* const here = lines + partition * columns * line;
        // Not as soon as they are full: what was stored last could not be read as part of a line yet.
        if (slot == per_line) {
            write_lines<columns>(to + partition * columns, here);
            slot = 0;
        }
        for (std::size_t c = 0; c < columns; ++c) {
            store(here + c * line, slot, load<T>(from[c], row));
        }
        fill[partition] = slot + 1;
    }
}

template <std::size_t columns>
void scatter_group(
    Group const& group, std::span<FixedValues const> all, std::span<std::byte* const> pieces,
    std::span<std::uint16_t const> of_row, std::size_t num_partitions) {
    Lines const memory{columns, num_partitions};
    std::array<std::byte const*, columns> from;
    for (std::size_t c = 0; c < columns; ++c) {
        from[c] = all[group.columns[c]].values;
        auto const* const begins = pieces.data() + group.columns[c] * num_partitions;
        for (std::size_t p = 0; p < num_partitions; ++p) {
            memory.to()[p * columns + c] = begins[p];
        }
    }
    std::fill_n(memory.fill(), num_partitions, 0);
    with_value_type(group.width, [&]<typename T>(T) { scatter_rows<T>(from, of_row, memory); });
    // What is left. The rest of each line travels, too, and must not carry what lay there before.
    for (std::size_t p = 0; p < num_partitions; ++p) {
        auto const bytes = memory.fill()[p] * static_cast<std::size_t>(group.width);
        auto* const here = memory.lines() + p * columns * line;
        if (bytes > 0) {
            for (std::size_t c = 0; c < columns; ++c) {
                std::memset(here + c * line + bytes, 0, line - bytes);
            }
            write_lines<columns>(memory.to() + p * columns, here);
        }
    }
}

}  // namespace

bool can_scatter_lines(Field const& field) {
    return field.layout() == Layout::fixed && field.dictionary() == nullptr
           && with_value_type(field.width(), [](auto) {});
}

bool should_scatter_lines(std::span<Field const> fields, std::int64_t num_rows, std::size_t num_partitions) {
    std::uint64_t widths = 0;  // a bit for each width that occurs: widths are powers of two
    for (auto const& field : fields) {
        if (!can_scatter_lines(field)) {
            return false;
        }
        widths |= static_cast<std::uint64_t>(field.width());
    }
    auto const fewest = fields.size() >= 2 * static_cast<std::size_t>(std::popcount(widths))
                            ? tuning::fewest_scattered_partitions
                            : tuning::fewest_partitions_of_single_columns;
    return num_partitions >= fewest && num_partitions <= tuning::most_scattered_partitions
           && num_rows >= static_cast<std::int64_t>(num_partitions) * tuning::fewest_scattered_rows;
}

void scatter_lines(
    std::span<FixedValues const> columns, std::span<std::byte* const> pieces,
    std::span<std::uint16_t const> of_row, std::size_t num_partitions) {
    static_assert(tuning::most_columns_together == 4);
    for (auto const& group : groups_of(columns, num_partitions)) {
        switch (group.columns.size()) {
            case 1:
                scatter_group<1>(group, columns, pieces, of_row, num_partitions);
                break;
            case 2:
                scatter_group<2>(group, columns, pieces, of_row, num_partitions);
                break;
            case 3:
                scatter_group<3>(group, columns, pieces, of_row, num_partitions);
                break;
            default:
                scatter_group<4>(group, columns, pieces, of_row, num_partitions);
                break;
        }
    }
    device::finish_streaming();
}

}  // namespace rapidsmpf::detail
