// Column chunks with Snappy pages, which anyone may have written, decompressed by the code of the kernels and by a decoder that
// follows the elements one by one; then decoded as if they were of strings, which are coded, and of numbers. Seeds: scripts/parquet_pages_seeds.py.
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>

#include "fuzzer.hpp"
#include "pages/plan.hpp"
#include "pages/string_set.hpp"
#include "pages/strings.hpp"
#include "pages/values.hpp"

namespace rapidsmpf::fuzz {

namespace {

constexpr std::size_t slack = 8;  // whole words are read
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;

// What the stream makes, or nothing if it is wrong.
std::optional<Bytes> made_one_by_one(pages::snappy::Stream const& stream) {
    std::uint32_t length = 0;
    std::uint32_t place = 0;
    if (!pages::snappy::read_length(stream.data, stream.bytes, length, place) || length > most_bytes) {
        return std::nullopt;
    }
    Bytes made;
    while (place < stream.bytes) {
        auto const tag = stream.data[place++];
        auto size = std::size_t{tag} >> 2U;
        auto const number = [&](std::size_t bytes) {
            std::size_t value = 0;
            for (std::size_t i = 0; i < bytes && place < stream.bytes; ++i) {
                value |= std::size_t{stream.data[place++]} << (8 * i);
            }
            return value;
        };
        if ((tag & 3U) == 0) {
            size = 1 + (size < 60 ? size : number(size - 59));
            if (size > stream.bytes - place) {
                return std::nullopt;
            }
            made.insert(made.end(), stream.data + place, stream.data + place + size);
            place += static_cast<std::uint32_t>(size);
            continue;
        }
        auto offset = std::size_t{0};
        if ((tag & 3U) == 1) {
            size = 4 + (std::size_t{tag} >> 2U & 7U);
            offset = (std::size_t{tag} >> 5U) << 8U;
            offset |= number(1);
        } else {
            size += 1;
            offset = number((tag & 3U) == 2 ? 2 : 4);
        }
        if (offset == 0 || offset > made.size() || made.size() > most_bytes) {
            return std::nullopt;
        }
        for (std::size_t i = 0; i < size; ++i) {
            made.push_back(made[made.size() - offset]);
        }
    }
    return made.size() == length ? std::optional{made} : std::nullopt;
}

// The pages without compression, with headers that say so.
void require_same(std::span<std::uint8_t const> chunk, std::span<std::uint8_t const> plain) {
    std::size_t place = 0;
    std::size_t out = 0;
    while (out < plain.size()) {
        pages::PageHeader header;
        pages::PageHeader written;
        require(
            pages::read_page_header(chunk.data() + place, chunk.size() - place, header)
                && pages::read_page_header(plain.data() + out, plain.size() - out, written),
            "a page that was decompressed has a header");
        require(
            written.uncompressed_bytes == header.uncompressed_bytes
                && written.compressed_bytes == header.uncompressed_bytes && written.values == header.values
                && written.type == header.type,
            "headers say the same but for the compressed size");
        place += header.bytes;
        out += written.bytes;
        auto const levels = header.level_bytes;
        auto const values = header.uncompressed_bytes - levels;
        if (header.is_compressed && (values != 0 || header.compressed_bytes != levels)) {
            auto const made = made_one_by_one(
                {.data = chunk.data() + place + levels, .bytes = header.compressed_bytes - levels});
            require(
                made && std::ranges::equal(*made, plain.subspan(out + levels, values)),
                "a stream makes the same when it is followed element by element");
        }
        auto const copied = header.is_compressed ? levels : levels + values;
        require(
            std::ranges::equal(chunk.subspan(place, copied), plain.subspan(out, copied)),
            "what is not compressed is copied");
        place += header.compressed_bytes;
        out += header.uncompressed_bytes;
    }
}

// The strings of the dictionary get codes, equal ones for equal strings, unless the set is full.
void code_strings(pages::NumberPlan const& plan, std::span<pages::StringPlace const> places) {
    auto const found = *plan.chunk_strings;
    require(
        std::uint64_t{found.first} + found.dictionary_strings <= places.size(),
        "the dictionary's strings are among those of the chunk");
    pages::StringRange const range{.first = found.first, .count = found.dictionary_strings};
    auto const layout = pages::StringSetLayout::of(64, 4096);
    std::vector<std::byte> memory(layout.bytes);
    auto const set = layout.in(memory.data());
    std::vector<std::uint32_t> slots(places.size());
    std::vector<std::int32_t> codes(places.size(), -1);
    pages::AddStrings const add{
        .set = set,
        .list = {.places = places.data()},
        .ranges = &range,
        .n_ranges = 1,
        .most_in_range = range.count,
        .slots = slots.data(),
        .codes = codes.data()};
    pages::add_strings_on_cpu(add);
    if (set.state->is_full != 0) {
        return;
    }
    std::vector<std::int32_t> again(codes.size());
    pages::find_strings_on_cpu(set, add.list, places.size(), again.data());
    for (auto i = range.first; i < range.first + range.count; ++i) {
        require(codes[i] == again[i], "a string that was added is found with its code");
        auto const& known = set.strings[codes[i]];
        require(
            std::string_view(known.data, static_cast<std::size_t>(known.bytes))
                == std::string_view(places[i].data, static_cast<std::size_t>(places[i].bytes)),
            "a code is that of the string");
    }
}

// Each note is of a string that is in a page, behind its length.
void number_strings(std::span<std::uint8_t> chunk, std::uint64_t values, bool has_levels) {
    Bytes out(chunk.size(), 0xFF);
    std::vector<pages::StringChunk> const chunks{
        {.data = chunk.data(),
         .bytes = chunk.size(),
         .values = values,
         .out = out.data(),
         .has_levels = has_levels}};
    auto const layout = pages::NumberPlanLayout::of(chunks);
    std::vector<std::byte> memory(layout.bytes);
    std::memcpy(memory.data(), chunks.data(), sizeof(pages::StringChunk));
    auto plan = layout.in(memory.data());
    *plan.counters = pages::NumberCounters{};
    pages::list_strings_on_cpu(plan);
    if (plan.counters->error != 0) {
        return;
    }
    require(
        plan.counters->strings <= chunk.size() / 4,
        "there are no more strings than there is room for lengths");
    std::vector<pages::StringPlace> places(plan.counters->strings);
    std::vector<pages::StringExit> exits(
        pages::NumberPlanLayout::exits_bytes(plan.counters->tiles) / sizeof(pages::StringExit));
    plan.places = places.data();
    plan.exits = exits.data();
    pages::number_strings_on_cpu(plan);
    if (plan.counters->error != 0) {
        return;
    }
    auto const* const begin = reinterpret_cast<char const*>(chunk.data());
    for (auto const& place : places) {
        if (place.data == nullptr) {
            continue;
        }
        require(
            place.data - begin >= 4 && place.bytes >= 0
                && static_cast<std::size_t>(place.data - begin) + static_cast<std::size_t>(place.bytes)
                       <= chunk.size(),
            "a string is in its chunk");
        std::int32_t length = 0;
        std::memcpy(&length, place.data - 4, sizeof length);
        require(length == place.bytes, "a string is as long as the page says");
    }
    code_strings(plan, places);
}

// Decodes into columns of just that length (sanitizers watch).
void decode_values(
    std::span<std::uint8_t> chunk, std::uint64_t values, std::uint32_t width, bool is_optional) {
    if (values > most_bytes) {
        return;
    }
    std::vector<pages::ValueChunk> const chunks{
        {.data = chunk.data(), .bytes = chunk.size(), .values = values}};
    auto const layout = pages::ValuePlanLayout::of(chunks, 1);
    std::vector<std::uint64_t> out((values * width + 7) / 8);
    std::vector<std::uint32_t> valid((values + 31) / 32);
    std::vector<std::byte> memory(layout.bytes);
    std::memcpy(memory.data(), chunks.data(), sizeof(pages::ValueChunk));
    auto const plan = layout.in(memory.data());
    *plan.columns = pages::ValueColumn{
        .out = reinterpret_cast<std::uint8_t*>(out.data()),
        .valid = is_optional ? valid.data() : nullptr,
        .stored_bytes = width,
        .out_bytes = width};
    *plan.counters = pages::ValueCounters{};
    pages::decode_values_on_cpu(plan);
    if (plan.counters->error != 0) {
        return;
    }
    std::uint64_t set = 0;
    for (auto const word : valid) {
        set += static_cast<std::uint64_t>(std::popcount(word));
    }
    require(!is_optional || set + plan.columns->nulls == values, "each row is valid or a null");
}

}  // namespace

// Four bytes: how many values; four: the bytes of all pages without compression; then the chunk.
void read_input(std::span<std::uint8_t const> input) {
    Input in{input};
    auto const number = [&] {
        std::uint64_t value = 0;
        for (unsigned i = 0; i < 4; ++i) {
            value |= std::uint64_t{in.byte()} << (8 * i);
        }
        return value;
    };
    auto const values = number();
    auto const uncompressed = std::min(number(), most_bytes);
    Bytes stored(slack);
    auto const rest = in.take(input.size());
    stored.insert(stored.end(), rest.begin(), rest.end());
    stored.resize(stored.size() + slack);
    Bytes out(pages::room_for(uncompressed) + slack);
    std::vector<pages::Chunk> const chunks{
        {.data = stored.data() + slack,
         .bytes = rest.size(),
         .values = values,
         .out = out.data(),
         .room = out.size() - slack}};
    auto const layout = pages::PlanLayout::of(chunks);
    std::vector<std::byte> memory(layout.bytes);
    std::memcpy(memory.data(), chunks.data(), sizeof(pages::Chunk));
    auto const plan = layout.in(memory.data());
    *plan.counters = pages::Counters{};
    pages::decompress_on_cpu(plan);
    if (plan.counters->error == 0) {
        require(plan.chunks->out_bytes <= out.size() - slack, "pages end in their room");
        auto const plain = std::span{out}.first(plan.chunks->out_bytes);
        require_same(rest, plain);
        number_strings(plain, values, false);
        number_strings(plain, values, true);
        for (auto const width : {4U, 8U}) {
            decode_values(plain, values, width, false);
            decode_values(plain, values, width, true);
        }
    }
}

std::vector<Bytes> seeds() {
    return {};
}

}  // namespace rapidsmpf::fuzz
