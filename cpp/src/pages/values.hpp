// The steps of decode_values.hpp, each of which a kernel does for all items at a time, and the CPU one after the other:
//
//   list_values()   per chunk, by one lane: reads the headers, lists the pages
//   decode_page()   per page
#pragma once

#include <cstdint>
#include <cstring>

#include <rapidsmpf/pages/detail/decode_values.hpp>

#include "pages/copy.hpp"
#include "pages/lanes.hpp"
#include "pages/page_header.hpp"
#include "pages/plain_page.hpp"
#include "pages/runs.hpp"

namespace rapidsmpf::pages {

// A part of a data page: what one group of lanes decodes.
struct ValuePage {
    std::uint8_t const* levels{nullptr};  // definition levels, of optional columns
    std::uint32_t level_bytes{0};
    std::uint32_t column{0};
    std::uint8_t const* values{nullptr};  // or dictionary indices
    std::uint32_t value_bytes{0};
    std::uint32_t before{0};  // rows of the page before the part
    std::uint32_t rows{0};
    std::uint64_t row{0};  // of the column
    std::uint8_t const* dictionary{nullptr};
    std::uint32_t dictionary_values{0};
    bool has_indices{false};
};

// What the lanes share: a batch of rows.
struct ValueScratch {
    static constexpr std::uint32_t rows = lane_count * lane_count;
    std::uint32_t numbers[rows];       // levels, then dictionary indices
    std::uint32_t valid[lane_count];   // bits of 32 rows each
    std::uint32_t before[lane_count];  // valid rows before them
};

// Rows of a part, at least. Each part goes over what is before it, so that a page has no more than most_parts.
inline constexpr std::uint32_t least_part = 4 * ValueScratch::rows;
inline constexpr std::uint32_t most_parts = 16;

template <typename Lanes>
RAPIDSMPF_DEVICE void fail(ValuePlan const& plan, Problem problem) {
    Lanes::raise(plan.counters->error, static_cast<std::uint32_t>(problem));
}

// Lists the parts of a page.
template <typename Lanes>
RAPIDSMPF_DEVICE Problem list_page(ValuePlan const& plan, ValuePage page) {
    auto const rows = page.rows;
    auto const of_part = rows / most_parts < least_part ? least_part : rows / most_parts + 1;
    for (std::uint32_t before = 0; before < rows; before += of_part) {
        auto part = page;
        part.before = before;
        part.rows = rows - before < of_part ? rows - before : of_part;
        part.row += before;
        auto const number = Lanes::add(plan.counters->pages, 1);
        if (number >= plan.most_pages) {
            return Problem::room;
        }
        plan.pages[number] = part;
    }
    return Problem::none;
}

template <typename Lanes>
RAPIDSMPF_DEVICE Problem list_values(ValuePlan const& plan, ValueChunk const& chunk) {
    auto const& column = plan.columns[chunk.column];
    std::uint64_t place = 0;
    std::uint64_t values = 0;
    std::uint8_t const* dictionary = nullptr;
    std::uint32_t dictionary_values = 0;
    while (values < chunk.values && place < chunk.bytes) {
        PageHeader header;
        if (!read_plain_page(chunk.data, chunk.bytes, place, header)) {
            return Problem::header;
        }
        place += header.bytes;
        auto const* const body = chunk.data + place;
        place += header.uncompressed_bytes;
        if (header.type == PageHeader::dictionary) {
            if (!is_plain_dictionary(header)) {
                return Problem::encoding;
            }
            if (header.dictionary_values < 0
                || header.dictionary_values > header.uncompressed_bytes / column.stored_bytes) {
                return Problem::length;
            }
            dictionary = body;
            dictionary_values = static_cast<std::uint32_t>(header.dictionary_values);
            continue;
        }
        if (header.type == PageHeader::index) {
            continue;
        }
        if (header.type != PageHeader::data && header.type != PageHeader::data_v2) {
            return Problem::header;
        }
        if (static_cast<std::uint64_t>(header.values) > chunk.values - values) {
            return Problem::header;
        }
        ValuePage page;
        page.column = chunk.column;
        page.rows = static_cast<std::uint32_t>(header.values);
        page.row = chunk.row + values;
        page.has_indices = has_dictionary_indices(header);
        if (!page.has_indices && header.encoding != Encoding::plain) {
            return Problem::encoding;
        }
        page.dictionary = dictionary;
        page.dictionary_values = dictionary_values;
        Levels levels;
        if (auto const problem = find_levels(header, column.valid != nullptr, body, levels);
            problem != Problem::none) {
            return problem;
        }
        page.levels = body + levels.at;
        page.level_bytes = levels.bytes;
        page.values = body + levels.end();
        page.value_bytes = header.uncompressed_bytes - levels.end();
        if (auto const problem = list_page<Lanes>(plan, page); problem != Problem::none) {
            return problem;
        }
        values += static_cast<std::uint64_t>(header.values);
    }
    return values == chunk.values ? Problem::none : Problem::header;
}

// Reads the levels of a batch into scratch.valid and scratch.before, and notes them in the column's bitmap. Returns how many rows are
// valid, or more than `rows` if the levels are damaged.
template <typename Lanes>
[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t take_levels(
    Lanes const& lanes, RunReader& levels, ValueColumn const& column, std::uint64_t row, std::uint32_t rows,
    ValueScratch& scratch) {
    constexpr std::uint32_t damaged = 0xffffffffU;
    typename Lanes::template Value<std::uint32_t> bits;
    auto const all_valid = levels.repeats(1, rows);
    if (all_valid) {
        levels.skip(rows);
    } else if (!levels.take(
                   lanes, rows, [&](std::uint32_t i, std::uint32_t level) { scratch.numbers[i] = level; })) {
        return damaged;
    }
    typename Lanes::template Value<bool> is_wrong;
    // A lane has the bits of 32 rows.
    lanes.each([&](std::uint32_t lane) {
        auto const first = lane * lane_count;
        auto const n = first >= rows ? 0 : rows - first < lane_count ? rows - first : lane_count;
        bits[lane] = n == 0 ? 0 : 0xffffffffU >> (lane_count - n);
        is_wrong[lane] = false;
    });
    if (!all_valid) {
        for (std::uint32_t group = 0; group * lane_count < rows; ++group) {
            typename Lanes::template Value<bool> is_valid;
            lanes.each([&](std::uint32_t lane) {
                auto const i = group * lane_count + lane;
                auto const level = i < rows ? scratch.numbers[i] : 0;
                is_valid[lane] = level != 0;
                is_wrong[lane] = is_wrong[lane] || level > 1;
            });
            auto const word = lanes.ballot(is_valid);
            lanes.each([&](std::uint32_t lane) { bits[lane] = lane == group ? word : bits[lane]; });
        }
    }
    if (lanes.ballot(is_wrong) != 0) {
        return damaged;
    }
    typename Lanes::template Value<std::uint32_t> count;
    lanes.each([&](std::uint32_t lane) { count[lane] = count_bits(bits[lane]); });
    std::uint32_t total = 0;
    auto const before = lanes.sums_before(count, total);
    lanes.each([&](std::uint32_t lane) {
        scratch.valid[lane] = bits[lane];
        scratch.before[lane] = before[lane];
        // Words at the ends of a page have bits of other pages, too.
        auto const place = row + std::uint64_t{lane} * lane_count;
        auto const shift = static_cast<std::uint32_t>(place % 32);
        auto* const word = column.valid + place / 32;
        if (auto const low = bits[lane] << shift; low != 0) {
            Lanes::set_bits(word[0], low);
        }
        if (auto const high = shift != 0 ? bits[lane] >> (32 - shift) : 0; high != 0) {
            Lanes::set_bits(word[1], high);
        }
    });
    return total;
}

template <std::uint32_t bytes>
[[nodiscard]] RAPIDSMPF_DEVICE std::uint64_t load_value(std::uint8_t const* data) {
    auto const shift = misalignment(data);
    auto const* const words = data - shift;
    auto const first = load_word(words);
    if constexpr (bytes == 4) {
        return joined_words(first, shift != 0 ? load_word(words + 4) : 0, shift);
    } else {
        auto const second = load_word(words + 4);
        auto const third = shift != 0 ? load_word(words + 8) : 0;
        return joined_words(first, second, shift) | std::uint64_t{joined_words(second, third, shift)} << 32U;
    }
}

RAPIDSMPF_DEVICE void store_value(std::uint8_t* to, std::uint64_t value, std::uint32_t bytes) {
#ifdef __CUDA_ARCH__
    switch (bytes) {
        case 1:
            *to = static_cast<std::uint8_t>(value);
            break;
        case 2:
            *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(value);
            break;
        case 4:
            *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(value);
            break;
        default:
            *reinterpret_cast<std::uint64_t*>(to) = value;
    }
#else
    std::memcpy(to, &value, bytes);
#endif
}

// Writes a batch of rows. `source`: the value of number 0, or the dictionary whose indices are in scratch.numbers; it has `most`
// values. False if an index is larger.
template <std::uint32_t bytes, typename Lanes>
[[nodiscard]] RAPIDSMPF_DEVICE bool write_rows(
    Lanes const& lanes, ValueColumn const& column, std::uint64_t row, std::uint32_t rows, bool has_indices,
    std::uint8_t const* source, std::uint32_t most, ValueScratch const& scratch) {
    constexpr std::uint32_t at_a_time = 4;  // loads that a lane has in flight
    auto const all_valid = column.valid == nullptr;
    typename Lanes::template Value<bool> is_wrong;
    lanes.each([&](std::uint32_t lane) {
        is_wrong[lane] = false;
        for (auto first = lane; first < rows; first += at_a_time * lane_count) {
            std::uint64_t values[at_a_time];
            RAPIDSMPF_UNROLL
            for (std::uint32_t k = 0; k < at_a_time; ++k) {
                auto const i = first + k * lane_count;
                auto number = i;
                auto is_there = i < rows;
                if (!all_valid && is_there) {
                    auto const word = scratch.valid[i / lane_count];
                    auto const bit = i % lane_count;
                    is_there = (word >> bit & 1U) != 0;
                    number = scratch.before[i / lane_count] + count_bits(word & ((1U << bit) - 1));
                }
                values[k] = 0;
                if (is_there) {
                    number = has_indices ? scratch.numbers[number] : number;
                    if (number < most) {
                        values[k] = load_value<bytes>(source + std::uint64_t{bytes} * number);
                    } else {
                        is_wrong[lane] = true;
                    }
                }
            }
            RAPIDSMPF_UNROLL
            for (std::uint32_t k = 0; k < at_a_time; ++k) {
                auto const i = first + k * lane_count;
                if (i < rows) {
                    store_value(column.out + (row + i) * column.out_bytes, values[k], column.out_bytes);
                }
            }
        }
    });
    return lanes.ballot(is_wrong) == 0;
}

template <typename Lanes>
RAPIDSMPF_DEVICE void decode_page(
    Lanes const& lanes, ValuePlan const& plan, std::uint32_t number, ValueScratch& scratch) {
    auto const page = plan.pages[number];
    auto const column = plan.columns[page.column];
    constexpr std::uint32_t most_width = 32;
    // The first byte says how many bits an index has; a page of nulls alone may have none.
    auto const head = page.has_indices && page.value_bytes != 0 ? 1U : 0U;
    auto const width = head != 0 ? std::uint32_t{page.values[0]} : 0;
    if (width > most_width) {
        fail<Lanes>(plan, Problem::encoding);
        return;
    }
    RunReader levels{page.levels, page.level_bytes, 1};
    RunReader indices{page.values + head, page.value_bytes - head, width};
    std::uint32_t nulls = 0;
    auto taken = page.before;  // values of the page: rows that are not null
    if (column.valid != nullptr) {
        taken = 0;
        if (!levels.count(lanes, page.before, taken)) {
            fail<Lanes>(plan, Problem::length);
            return;
        }
    }
    if (page.has_indices && !indices.pass_over(taken)) {
        fail<Lanes>(plan, Problem::length);
        return;
    }
    for (std::uint32_t done = 0; done < page.rows;) {
        auto const left = page.rows - done;
        auto const rows = left < ValueScratch::rows ? left : ValueScratch::rows;
        auto const row = page.row + done;
        auto present = rows;
        if (column.valid != nullptr) {
            present = take_levels(lanes, levels, column, row, rows, scratch);
            if (present > rows) {
                fail<Lanes>(plan, Problem::length);
                return;
            }
        }
        if (page.has_indices && !indices.take(lanes, present, [&](std::uint32_t i, std::uint32_t index) {
                scratch.numbers[i] = index;
            })) {
            fail<Lanes>(plan, Problem::length);
            return;
        }
        auto const bytes = column.stored_bytes;
        auto const* const source =
            page.has_indices ? page.dictionary : page.values + std::uint64_t{bytes} * taken;
        auto const stored = page.value_bytes / bytes;
        auto const most =
            page.has_indices ? page.dictionary_values : stored - (taken < stored ? taken : stored);
        auto const written =
            bytes == 4 ? write_rows<4>(lanes, column, row, rows, page.has_indices, source, most, scratch)
                       : write_rows<8>(lanes, column, row, rows, page.has_indices, source, most, scratch);
        if (!written) {
            fail<Lanes>(plan, Problem::length);
            return;
        }
        taken += present;
        nulls += rows - present;
        done += rows;
    }
    lanes.each([&](std::uint32_t lane) {
        if (lane == 0 && nulls != 0) {
            Lanes::add(plan.columns[page.column].nulls, nulls);
        }
    });
}

}  // namespace rapidsmpf::pages
