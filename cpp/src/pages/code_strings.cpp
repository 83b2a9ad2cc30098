#include <rapidsmpf/pages/detail/code_strings.hpp>

#include <bit>

#include "pages/block.hpp"
#include "pages/string_set.hpp"

namespace rapidsmpf::pages {

namespace {

template <typename Step>
void for_each_string(AddStrings const& add, Step&& step) {
    for (std::uint32_t range = 0; range < add.n_ranges; ++range) {
        for (std::uint32_t i = 0; i < add.ranges[range].count; ++i) {
            step(add.ranges[range].first + i);
        }
    }
}

}  // namespace

StringSetLayout StringSetLayout::of(std::uint32_t most_strings, std::uint32_t most_bytes) {
    StringSetLayout layout;
    layout.most_strings = most_strings;
    layout.most_bytes = most_bytes;
    // Half empty, so that a string is near its place.
    layout.slot_count = std::bit_ceil(2 * most_strings + 1);
    auto const place = [&layout](std::size_t array_bytes) { return append_array(layout.bytes, array_bytes); };
    place(sizeof(StringSetState));
    layout.slots_at = place(layout.slot_count * sizeof(std::uint32_t));
    layout.zero_bytes = layout.bytes;
    layout.strings_at = place(most_strings * sizeof(StringPlace));
    layout.hashes_at = place(most_strings * sizeof(std::uint32_t));
    layout.characters_at = place(most_bytes);
    return layout;
}

StringSet StringSetLayout::in(std::byte* memory) const {
    return StringSet{
        .slots = reinterpret_cast<std::uint32_t*>(memory + slots_at),
        .slot_count = slot_count,
        .strings = reinterpret_cast<StringPlace*>(memory + strings_at),
        .hashes = reinterpret_cast<std::uint32_t*>(memory + hashes_at),
        .most_strings = most_strings,
        .characters = reinterpret_cast<char*>(memory + characters_at),
        .most_bytes = most_bytes,
        .state = reinterpret_cast<StringSetState*>(memory)};
}

void add_strings_on_cpu(AddStrings const& add) {
    for_each_string(add, [&](std::uint32_t number) { claim_slot<LanesOnCpu>(add, number); });
    for_each_string(add, [&](std::uint32_t number) { publish<LanesOnCpu>(add, number); });
    for_each_string(add, [&](std::uint32_t number) { code_of_slot(add, number); });
}

void find_strings_on_cpu(StringSet const& set, StringList const& list, std::uint64_t n, std::int32_t* codes) {
    for (std::uint64_t i = 0; i < n; ++i) {
        codes[i] = find_string(set, place_in_list(list, i));
    }
}

void code_rows_on_cpu(
    std::int32_t const* codes, std::uint32_t n, NumberedRows const& rows, std::int32_t* row_codes,
    std::uint32_t* error) {
    for (std::uint64_t row = 0; row < rows.rows; ++row) {
        row_codes[row] = code_of_row<LanesOnCpu>(codes, n, rows, row, error);
    }
}

void places_of_codes_on_cpu(StringSet const& set, NumberedRows const& codes, StringPlace* places) {
    for (std::uint64_t row = 0; row < codes.rows; ++row) {
        places[row] = place_of_code(set, codes, row);
    }
}

}  // namespace rapidsmpf::pages
