// The steps of number_strings.hpp, each of which a kernel does for all items at a time, and the CPU one after the other.
#pragma once

#include <cstdint>
#include <cstring>

#include <rapidsmpf/pages/detail/number_strings.hpp>

#include "pages/copy.hpp"
#include "pages/lanes.hpp"
#include "pages/page_header.hpp"

namespace rapidsmpf::pages {

// What follows a page's header: bytes that are copied, then strings, each behind its length.
struct StringPage {
    std::uint8_t const* data{nullptr};
    std::uint8_t* out{nullptr};
    std::uint32_t copied{0};
    std::uint32_t bytes{0};  // of the strings with their lengths
    std::uint32_t first{0};  // number of the first string
    std::uint32_t most{0};   // strings
    bool has_all{false};     // there are so many strings, not fewer
};

// The bytes that a string takes at least: those of its length.
inline constexpr std::uint32_t length_bytes = 4;

[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t read_length_bytes(std::uint8_t const* data) {
    return std::uint32_t{data[0]} | std::uint32_t{data[1]} << 8U | std::uint32_t{data[2]} << 16U
           | std::uint32_t{data[3]} << 24U;
}

template <typename Lanes>
RAPIDSMPF_DEVICE void fail(NumberPlan const& plan, Problem problem) {
    Lanes::raise(plan.counters->error, static_cast<std::uint32_t>(problem));
}

// What is to be done with a page whose body is at `data`.
[[nodiscard]] RAPIDSMPF_DEVICE Problem plan_page(
    StringChunk const& chunk, PageHeader const& header, std::uint8_t const* data, StringPage& page) {
    constexpr std::int32_t plain = 0;
    constexpr std::int32_t plain_dictionary = 2;
    constexpr std::int32_t run_lengths = 3;
    constexpr std::int32_t dictionary_indices = 8;
    auto const bytes = header.uncompressed_bytes;
    page.data = data;
    if (header.type == PageHeader::dictionary) {
        if (header.encoding != plain && header.encoding != plain_dictionary) {
            return Problem::encoding;
        }
        page.bytes = bytes;
        page.has_all = true;
        // A dictionary of more strings than the page has room for would ask for memory that there is no reason to have.
        if (header.dictionary_values < 0 || header.dictionary_values > bytes / length_bytes) {
            return Problem::strings;
        }
        page.most = static_cast<std::uint32_t>(header.dictionary_values);
        return Problem::none;
    }
    if (header.type == PageHeader::index) {
        page.copied = bytes;
        return Problem::none;
    }
    if (header.encoding == plain_dictionary || header.encoding == dictionary_indices) {
        page.copied = bytes;
        return Problem::none;
    }
    if (header.encoding != plain) {
        return Problem::encoding;
    }
    if (header.type == PageHeader::data_v2) {
        page.copied = header.level_bytes;
    } else if (chunk.has_levels) {
        if (header.level_encoding != run_lengths) {
            return Problem::encoding;
        }
        if (bytes < length_bytes || read_length_bytes(data) > bytes - length_bytes) {
            return Problem::length;
        }
        page.copied = length_bytes + read_length_bytes(data);
    }
    page.bytes = bytes - page.copied;
    auto const room = page.bytes / length_bytes;
    page.most = header.values < room ? static_cast<std::uint32_t>(header.values) : room;
    return Problem::none;
}

// Of a chunk, by one lane: copies the headers, lists the pages.
template <typename Lanes>
RAPIDSMPF_DEVICE Problem list_strings(NumberPlan const& plan, StringChunk const& chunk) {
    std::uint64_t place = 0;
    std::uint64_t values = 0;
    while (values < chunk.values && place < chunk.bytes) {
        PageHeader header;
        auto const* const data = chunk.data + place;
        if (!read_page_header(data, chunk.bytes - place, header)
            || header.compressed_bytes != header.uncompressed_bytes
            || header.uncompressed_bytes > chunk.bytes - place - header.bytes) {
            return Problem::header;
        }
        for (std::uint32_t i = 0; i < header.bytes; ++i) {
            chunk.out[place + i] = data[i];
        }
        place += header.bytes;
        StringPage page;
        page.out = chunk.out + place;
        if (auto const problem = plan_page(chunk, header, chunk.data + place, page);
            problem != Problem::none) {
            return problem;
        }
        constexpr std::uint32_t most_strings = 0x7fffffff;
        page.first = Lanes::add(plan.counters->strings, page.most);
        auto const number = Lanes::add(plan.counters->pages, 1);
        if (number >= plan.most_pages || page.first > most_strings || page.most > most_strings - page.first) {
            return Problem::room;
        }
        plan.pages[number] = page;
        place += header.uncompressed_bytes;
        values += static_cast<std::uint64_t>(header.values);
    }
    return values >= chunk.values ? Problem::none : Problem::header;
}

// A tile of a page, as the lanes share it: a segment for each lane. Places in it count from the word that the first string
// begins in.
//
// Which places strings begin at is known only when all strings before are known. So each lane finds, for every place of its
// segment, where the last string would begin in the segment if one began at that place. One lane then goes from segment to
// segment, and all lanes follow the strings of their own.
struct StringScratch {
    static constexpr std::uint32_t segment_words = 32;
    static constexpr std::uint32_t segment_bytes = 4 * segment_words;
    static constexpr std::uint32_t tile_bytes = lane_count * segment_bytes;
    static constexpr std::uint32_t none = 0xff;

    // A length that begins in the tile may end behind it. After each segment a word is left free: lanes that read the same
    // words of their segments then read from different banks of the memory.
    static constexpr std::uint32_t words = tile_bytes / 4 + 1;
    std::uint32_t tile[words + words / segment_words + 1];
    std::uint8_t last[segment_bytes][lane_count];  // by place in the segment
    std::uint8_t first[lane_count];                // place in the segment; none: no string begins there
    std::uint32_t end;                             // of the last string of the tile
    bool is_wrong;
};

[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t& tile_word(StringScratch& scratch, std::uint32_t word) {
    return scratch.tile[word + word / StringScratch::segment_words];
}

// The length that is stored at a place.
[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t length_at(StringScratch& scratch, std::uint32_t place) {
    auto const word = place / 4;
    auto const high = place % 4 != 0 ? tile_word(scratch, word + 1) : 0;
    return joined_words(tile_word(scratch, word), high, place % 4);
}

// Whether a string of this length may be at a place; the page ends at `end`.
[[nodiscard]] RAPIDSMPF_DEVICE bool fits(std::uint32_t length, std::uint32_t place, std::uint32_t end) {
    return place < end && end - place >= length_bytes && length <= end - place - length_bytes;
}

// By all lanes: words that hold a byte of the page, which ends at `end`; what is behind it says nothing.
RAPIDSMPF_DEVICE void load_tile(
    StringScratch& scratch, std::uint32_t lane, std::uint8_t const* tile, std::uint32_t end) {
    constexpr std::uint32_t at_a_time = 11;  // words that a lane has on their way
    auto const words = end / 4 + (end % 4 != 0 ? 1 : 0);
    for (auto base = lane; base < StringScratch::words; base += at_a_time * lane_count) {
        std::uint32_t values[at_a_time];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (std::uint32_t i = 0; i < at_a_time; ++i) {
            auto const word = base + i * lane_count;
            auto const is_there = word < StringScratch::words && word < words;
            values[i] = is_there ? load_word(tile + std::uint64_t{4} * word) : 0;
        }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (std::uint32_t i = 0; i < at_a_time; ++i) {
            auto const word = base + i * lane_count;
            if (word < StringScratch::words) {
                tile_word(scratch, word) = values[i];
            }
        }
    }
    scratch.first[lane] = StringScratch::none;
}

// For each place of a lane's segment, the last one backwards: a string ends four bytes behind its place or later, so the four
// places of a word do not depend on each other.
RAPIDSMPF_DEVICE void find_last(StringScratch& scratch, std::uint32_t lane, std::uint32_t end) {
    auto const segment = lane * StringScratch::segment_bytes;
    auto high = tile_word(scratch, (lane + 1) * StringScratch::segment_words);
    for (std::uint32_t word = StringScratch::segment_words; word-- > 0;) {
        auto const low = tile_word(scratch, lane * StringScratch::segment_words + word);
        std::uint8_t found[4];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (std::uint32_t byte = 0; byte < 4; ++byte) {
            auto const at = 4 * word + byte;
            auto const length = joined_words(low, high, byte);
            // Small ones alone stay in the segment; the sum of others might not be a number of 32 bits.
            auto const next = at + length_bytes + length;
            auto const stays = length < StringScratch::segment_bytes && next < StringScratch::segment_bytes
                               && segment + next < end && fits(length, segment + at, end);
            found[byte] = stays ? scratch.last[next][lane] : static_cast<std::uint8_t>(at);
        }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (std::uint32_t byte = 0; byte < 4; ++byte) {
            scratch.last[4 * word + byte][lane] = found[byte];
        }
        high = low;
    }
}

// Goes from segment to segment, by one lane.
RAPIDSMPF_DEVICE void find_first(StringScratch& scratch, std::uint32_t begin, std::uint32_t end) {
    auto place = begin;
    scratch.is_wrong = false;
    while (place < end && place < StringScratch::tile_bytes) {
        auto const segment = place / StringScratch::segment_bytes;
        auto const first = place % StringScratch::segment_bytes;
        scratch.first[segment] = static_cast<std::uint8_t>(first);
        place = segment * StringScratch::segment_bytes + scratch.last[first][segment];
        auto const length = length_at(scratch, place);
        if (!fits(length, place, end)) {
            scratch.is_wrong = true;
            break;
        }
        place += length_bytes + length;
    }
    scratch.end = place;
}

// Calls take(place, length) for each string that begins in a lane's segment.
template <typename Take>
RAPIDSMPF_DEVICE void each_string(StringScratch& scratch, std::uint32_t lane, Take&& take) {
    if (scratch.first[lane] == StringScratch::none) {
        return;
    }
    auto const segment = lane * StringScratch::segment_bytes;
    auto const last = segment + scratch.last[scratch.first[lane]][lane];
    for (auto place = segment + scratch.first[lane];;) {
        auto const length = length_at(scratch, place);
        take(place, length);
        if (place == last) {
            return;
        }
        place += length_bytes + length;
    }
}

// Of a page, by all lanes.
template <typename Lanes>
RAPIDSMPF_DEVICE void number_page(
    Lanes const& lanes, NumberPlan const& plan, std::uint32_t number, StringScratch& scratch) {
    auto const page = plan.pages[number];
    copy_bytes(lanes, page.data, page.out, page.copied);
    auto const* const strings = page.data + page.copied;
    auto* const out = page.out + page.copied;
    std::uint32_t begin = 0;
    std::uint32_t found = 0;
    while (begin < page.bytes) {
        auto const shift = misalignment(strings + begin);
        auto const* const tile = strings + begin - shift;
        auto const end = shift + page.bytes - begin;
        lanes.each([&](std::uint32_t lane) { load_tile(scratch, lane, tile, end); });
        lanes.each([&](std::uint32_t lane) { find_last(scratch, lane, end); });
        lanes.each([&](std::uint32_t lane) {
            if (lane == 0) {
                find_first(scratch, shift, end);
            }
        });
        typename Lanes::template Value<std::uint32_t> count;
        lanes.each([&](std::uint32_t lane) {
            std::uint32_t n = 0;
            if (!scratch.is_wrong) {
                each_string(scratch, lane, [&n](std::uint32_t, std::uint32_t) { ++n; });
            }
            count[lane] = n;
        });
        std::uint32_t here = 0;
        auto const before = lanes.sums_before(count, here);
        if (scratch.is_wrong || here > page.most - found) {
            fail<Lanes>(plan, Problem::strings);
            return;
        }
        lanes.each([&](std::uint32_t lane) {
            auto n = found + before[lane];
            each_string(scratch, lane, [&](std::uint32_t place, std::uint32_t length) {
                auto const string = page.first + n;
                plan.places[string] = StringPlace{
                    .data = reinterpret_cast<char const*>(tile + place + length_bytes),
                    .bytes = static_cast<std::int32_t>(length)};
                auto* const to = out + std::uint64_t{4} * n;
                for (std::uint32_t byte = 0; byte < 4; ++byte) {
                    to[byte] = static_cast<std::uint8_t>(string >> (8 * byte));
                }
                ++n;
            });
        });
        found += here;
        begin += scratch.end - shift;
    }
    if (page.has_all && found != page.most) {
        fail<Lanes>(plan, Problem::strings);
        return;
    }
    // Values that are null have no string.
    lanes.each([&](std::uint32_t lane) {
        for (auto i = found + lane; i < page.most; i += lane_count) {
            plan.places[page.first + i] = StringPlace{};
        }
    });
}

template <typename Lanes>
[[nodiscard]] RAPIDSMPF_DEVICE StringPlace place_of_row(
    NumberPlan const& plan, NumberedRows const& rows, std::uint64_t row) {
    if (rows.valid != nullptr && (rows.valid[row / 32] >> (row % 32) & 1U) == 0) {
        return {};
    }
    auto const number = static_cast<std::uint32_t>(rows.numbers[row]);
    if (number >= plan.counters->strings || plan.places[number].data == nullptr) {
        fail<Lanes>(plan, Problem::strings);
        return {};
    }
    return plan.places[number];
}

}  // namespace rapidsmpf::pages
