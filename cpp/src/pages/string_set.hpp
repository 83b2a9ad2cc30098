// The steps of code_strings.hpp, each of which a kernel does for all strings at a time, a thread for each, and the CPU one after the
// other:
//
//   claim_slot()    finds the slot of a string. Where there is none, one of the threads that look for it claims a free slot with the
//                   number of the string in its list, so that no thread has to wait until another has copied the string
//   publish()       the string of each claimed slot is copied into the set and gets a code, which replaces its number in the slot
//   code_of_slot()  reads the code of each string from its slot
#pragma once

#include <cstdint>

#include <rapidsmpf/pages/detail/code_strings.hpp>

#include "pages/lanes.hpp"

namespace rapidsmpf::pages {

// The content of a slot. 0: free.
struct StringSlot {
    static constexpr std::uint32_t claimed = 0x80000000U;  // the rest: a number in the list of strings
    [[nodiscard]] RAPIDSMPF_DEVICE static std::uint32_t of_code(std::uint32_t code) { return code + 1; }
    [[nodiscard]] RAPIDSMPF_DEVICE static std::uint32_t code(std::uint32_t slot) { return slot - 1; }
};

// What AddStrings::slots holds for a string.
struct FoundSlot {
    static constexpr std::uint32_t none = 0xffffffffU;
    static constexpr std::uint32_t claimed_here = 0x80000000U;
};

// Longer strings are no keys of few values. The limit keeps StringSetState::bytes from overflowing.
inline constexpr std::uint32_t longest_coded = 1024;
// Slots that are looked at for a string; a set in which a string is farther from its place counts as full.
inline constexpr std::uint32_t most_probes = 128;

[[nodiscard]] RAPIDSMPF_DEVICE bool is_valid_row(std::uint32_t const* valid, std::uint64_t row) {
    return valid == nullptr || (valid[row / 32] >> (row % 32) & 1U) != 0;
}

// The place of a string in a list; its address is null for a null.
[[nodiscard]] RAPIDSMPF_DEVICE StringPlace place_in_list(StringList const& list, std::uint64_t i) {
    if (list.places != nullptr) {
        return list.places[i];
    }
    if (!is_valid_row(list.valid, i)) {
        return {};
    }
    std::int64_t begin = 0;
    std::int64_t end = 0;
    if (list.has_wide_offsets) {
        begin = static_cast<std::int64_t const*>(list.offsets)[i];
        end = static_cast<std::int64_t const*>(list.offsets)[i + 1];
    } else {
        begin = static_cast<std::int32_t const*>(list.offsets)[i];
        end = static_cast<std::int32_t const*>(list.offsets)[i + 1];
    }
    // An empty string is no null, wherever the characters of its column are.
    auto const* const characters =
        list.characters != nullptr ? list.characters : static_cast<char const*>(list.offsets);
    return {.data = characters + begin, .bytes = static_cast<std::int32_t>(end - begin)};
}

[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t hash_of(StringPlace const& string) {
    std::uint32_t hash = 2166136261U;
    for (std::int32_t i = 0; i < string.bytes; ++i) {
        hash = (hash ^ static_cast<unsigned char>(string.data[i])) * 16777619U;
    }
    // The low bits choose the slot: mix the high ones in.
    hash ^= hash >> 16U;
    hash *= 0x85ebca6bU;
    hash ^= hash >> 13U;
    return hash;
}

[[nodiscard]] RAPIDSMPF_DEVICE bool are_equal(StringPlace const& a, StringPlace const& b) {
    if (a.bytes != b.bytes) {
        return false;
    }
    for (std::int32_t i = 0; i < a.bytes; ++i) {
        if (a.data[i] != b.data[i]) {
            return false;
        }
    }
    return true;
}

template <typename Lanes>
RAPIDSMPF_DEVICE void claim_slot(AddStrings const& add, std::uint32_t number) {
    auto const& set = add.set;
    add.slots[number] = FoundSlot::none;
    auto const string = place_in_list(add.list, number);
    if (string.data == nullptr || Lanes::fresh(set.state->is_full) != 0) {
        return;
    }
    if (static_cast<std::uint32_t>(string.bytes) > longest_coded) {
        Lanes::raise(set.state->is_full, 1);
        return;
    }
    auto const hash = hash_of(string);
    for (std::uint32_t probe = 0; probe < most_probes; ++probe) {
        auto const slot = (hash + probe) & (set.slot_count - 1);
        auto found = set.slots[slot];
        if (found == 0) {
            found = Lanes::set_if_zero(set.slots[slot], StringSlot::claimed | number);
            if (found == 0) {
                add.slots[number] = FoundSlot::claimed_here | slot;
                return;
            }
        }
        auto const is_here = (found & StringSlot::claimed) != 0
                                 ? are_equal(place_in_list(add.list, found & ~StringSlot::claimed), string)
                                 : set.hashes[StringSlot::code(found)] == hash
                                       && are_equal(set.strings[StringSlot::code(found)], string);
        if (is_here) {
            add.slots[number] = slot;
            return;
        }
    }
    Lanes::raise(set.state->is_full, 1);
}

template <typename Lanes>
RAPIDSMPF_DEVICE void publish(AddStrings const& add, std::uint32_t number) {
    auto const& set = add.set;
    auto const found = add.slots[number];
    if (found == FoundSlot::none || (found & FoundSlot::claimed_here) == 0
        || Lanes::fresh(set.state->is_full) != 0) {
        return;
    }
    auto const string = place_in_list(add.list, number);
    auto const bytes = static_cast<std::uint32_t>(string.bytes);
    auto const code = Lanes::add(set.state->strings, 1);
    auto const at = Lanes::add(set.state->bytes, bytes);
    if (code >= set.most_strings || at > set.most_bytes || bytes > set.most_bytes - at) {
        Lanes::raise(set.state->is_full, 1);
        if (code < set.most_strings) {
            set.strings[code] = {};
        }
        return;
    }
    auto* const to = set.characters + at;
    for (std::uint32_t i = 0; i < bytes; ++i) {
        to[i] = string.data[i];
    }
    set.strings[code] = {.data = to, .bytes = string.bytes};
    set.hashes[code] = hash_of(string);
    set.slots[found & ~FoundSlot::claimed_here] = StringSlot::of_code(code);
}

RAPIDSMPF_DEVICE void code_of_slot(AddStrings const& add, std::uint32_t number) {
    auto const found = add.slots[number];
    std::uint32_t slot = 0;
    if (found != FoundSlot::none) {
        slot = add.set.slots[found & ~FoundSlot::claimed_here];
    }
    // Without a code is a null, and any string of a set that is full.
    add.codes[number] = slot == 0 || (slot & StringSlot::claimed) != 0
                            ? 0
                            : static_cast<std::int32_t>(StringSlot::code(slot));
}

[[nodiscard]] RAPIDSMPF_DEVICE std::int32_t find_string(StringSet const& set, StringPlace const& string) {
    if (string.data == nullptr) {
        return 0;
    }
    constexpr std::int32_t missing = -1;
    if (static_cast<std::uint32_t>(string.bytes) > longest_coded) {
        return missing;
    }
    auto const hash = hash_of(string);
    for (std::uint32_t probe = 0; probe < most_probes; ++probe) {
        auto const found = set.slots[(hash + probe) & (set.slot_count - 1)];
        if (found == 0) {
            return missing;
        }
        // A claim is left over from the strings that did not fit.
        if ((found & StringSlot::claimed) == 0 && set.hashes[StringSlot::code(found)] == hash
            && are_equal(set.strings[StringSlot::code(found)], string)) {
            return static_cast<std::int32_t>(StringSlot::code(found));
        }
    }
    return missing;
}

template <typename Lanes>
[[nodiscard]] RAPIDSMPF_DEVICE std::int32_t code_of_row(
    std::int32_t const* codes, std::uint32_t n, NumberedRows const& rows, std::uint64_t row,
    std::uint32_t* error) {
    if (!is_valid_row(rows.valid, row)) {
        return 0;
    }
    auto const number = static_cast<std::uint32_t>(rows.numbers[row]);
    if (number >= n || codes[number] < 0) {
        Lanes::raise(*error, 1);
        return 0;
    }
    return codes[number];
}

[[nodiscard]] RAPIDSMPF_DEVICE StringPlace
place_of_code(StringSet const& set, NumberedRows const& codes, std::uint64_t row) {
    if (!is_valid_row(codes.valid, row)) {
        return {};
    }
    auto const code = static_cast<std::uint32_t>(codes.numbers[row]);
    return code < set.most_strings && code < set.state->strings ? set.strings[code] : StringPlace{};
}

}  // namespace rapidsmpf::pages
