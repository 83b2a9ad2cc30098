// Strings are numbered by the code that kernels run, on the CPU, and compared with what made the pages; where there is a GPU,
// there as well.
#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pages/gpu_memory.hpp"
#include "pages/streams.hpp"
#include "pages/strings.hpp"

namespace rapidsmpf::pages {
namespace {

void put_string(Bytes& to, std::string const& string) {
    put_little_endian(to, string.size(), 4);
    to.insert(to.end(), string.begin(), string.end());
}

// A chunk of strings: its pages, and the strings of those pages that have some.
struct Column {
    TestChunk chunk;
    bool has_levels{false};
    std::vector<TestPage> pages;
    std::vector<std::size_t> levels;  // bytes before the strings of each page, or all of its bytes
    std::vector<std::vector<std::string>> strings;

    void add(TestPage page, std::size_t copied, std::vector<std::string> of_page) {
        page.is_compressed = false;
        page.body = page.plain;
        add_page(chunk, page);
        pages.push_back(std::move(page));
        levels.push_back(copied);
        strings.push_back(std::move(of_page));
    }
};

Bytes random_bytes(std::mt19937_64& random, std::size_t n) {
    Bytes bytes(n);
    for (auto& byte : bytes) {
        byte = static_cast<std::uint8_t>(random());
    }
    return bytes;
}

std::vector<std::string> random_strings(std::mt19937_64& random, std::size_t most) {
    constexpr std::size_t lengths[] = {0, 1, 12, 40, 300, 9000};
    auto const longest = lengths[random() % 6];
    std::vector<std::string> strings(random() % (longest > 40 ? 20 : most + 1));
    for (auto& string : strings) {
        auto const bytes = random_bytes(random, random() % (longest + 1));
        string.assign(bytes.begin(), bytes.end());
    }
    return strings;
}

void add_dictionary(Column& column, std::vector<std::string> const& strings) {
    TestPage page;
    page.type = 2;
    page.values = static_cast<std::int64_t>(strings.size());
    for (auto const& string : strings) {
        put_string(page.plain, string);
    }
    column.add(page, 0, strings);
}

// A page with plain values, of which `nulls` more are null.
void add_plain(
    Column& column, std::mt19937_64& random, int type, std::vector<std::string> const& strings,
    std::size_t nulls) {
    TestPage page;
    page.type = type;
    page.values = static_cast<std::int64_t>(strings.size() + nulls);
    if (type == 3) {
        page.definition_bytes = static_cast<std::int64_t>(column.has_levels ? random() % 40 : 0);
        page.plain = random_bytes(random, static_cast<std::size_t>(page.definition_bytes));
    } else if (column.has_levels) {
        auto const levels = random_bytes(random, random() % 40);
        put_little_endian(page.plain, levels.size(), 4);
        page.plain.insert(page.plain.end(), levels.begin(), levels.end());
    }
    auto const copied = page.plain.size();
    for (auto const& string : strings) {
        put_string(page.plain, string);
    }
    column.add(page, copied, strings);
}

void add_indices(Column& column, std::mt19937_64& random, int type) {
    TestPage page;
    page.type = type;
    page.values = 1 + static_cast<std::int64_t>(random() % 1000);
    page.encoding = random() % 2 == 0 ? 8 : 2;
    page.plain = random_bytes(random, random() % 3000);
    if (type == 3) {
        page.definition_bytes = static_cast<std::int64_t>(page.plain.size() / 4);
    }
    column.add(page, page.plain.size(), {});
}

Column random_column(std::mt19937_64& random) {
    Column column;
    column.has_levels = random() % 2 == 0;
    auto const type = random() % 2 == 0 ? 0 : 3;
    if (random() % 3 != 0) {
        add_dictionary(column, random_strings(random, 3000));
        for (auto n = 1 + random() % 4; n > 0; --n) {
            add_indices(column, random, type);
        }
    }
    for (auto n = random() % 4; n > 0; --n) {
        auto strings = random_strings(random, 2000);
        strings.emplace_back();  // what follows the last value is not looked at
        add_plain(column, random, type, strings, column.has_levels ? random() % 100 : 0);
    }
    return column;
}

// The bytes of the columns, each at another alignment, and where they are numbered.
struct StringBlock {
    explicit StringBlock(std::vector<Column> const& columns) {
        for (std::size_t i = 0; i < columns.size(); ++i) {
            bytes.resize(bytes.size() + slack + i % 5);
            stored_at.push_back(bytes.size());
            bytes.insert(bytes.end(), columns[i].chunk.stored.begin(), columns[i].chunk.stored.end());
            bytes.resize(bytes.size() + slack);
        }
        for (std::size_t i = 0; i < columns.size(); ++i) {
            bytes.resize(bytes.size() + i % 3);
            out_at.push_back(bytes.size());
            bytes.resize(bytes.size() + columns[i].chunk.stored.size(), 0xFF);
        }
        bytes.resize(bytes.size() + slack, 0xFF);
    }

    [[nodiscard]] std::vector<StringChunk> chunks(
        std::vector<Column> const& columns, std::uint8_t* base) const {
        std::vector<StringChunk> chunks;
        for (std::size_t i = 0; i < columns.size(); ++i) {
            chunks.push_back(
                StringChunk{
                    .data = base + stored_at[i],
                    .bytes = columns[i].chunk.stored.size(),
                    .values = columns[i].chunk.values,
                    .out = base + out_at[i],
                    .has_levels = columns[i].has_levels});
        }
        return chunks;
    }

    Bytes bytes;
    std::vector<std::size_t> stored_at;
    std::vector<std::size_t> out_at;
};

// What was noted: of a device's addresses those of the block here.
struct Numbered {
    explicit Numbered(std::vector<Column> const& columns) : block{columns} {}

    Problem problem{Problem::none};
    StringBlock block;
    std::vector<std::optional<std::string>> strings;  // by number

    void read(std::vector<StringPlace> const& places, std::uint8_t const* base) {
        for (auto const& place : places) {
            if (place.data == nullptr) {
                strings.emplace_back();
                continue;
            }
            auto const at = place.data - reinterpret_cast<char const*>(base);
            ASSERT_GE(at, 0);
            ASSERT_LE(static_cast<std::size_t>(at + place.bytes), block.bytes.size());
            strings.emplace_back(
                std::string{
                    reinterpret_cast<char const*>(block.bytes.data()) + at,
                    static_cast<std::size_t>(place.bytes)});
        }
    }
};

Numbered numbered_here(std::vector<Column> const& columns) {
    Numbered result{columns};
    auto* const base = result.block.bytes.data();
    auto const chunks = result.block.chunks(columns, base);
    auto const layout = NumberPlanLayout::of(chunks);
    std::vector<std::byte> memory(layout.bytes);
    std::memcpy(memory.data(), chunks.data(), chunks.size() * sizeof(StringChunk));
    auto plan = layout.in(memory.data());
    *plan.counters = NumberCounters{};
    list_strings_on_cpu(plan);
    std::vector<StringPlace> places;
    if (plan.counters->error == 0) {
        places.resize(plan.counters->strings, {.data = reinterpret_cast<char const*>(base), .bytes = -1});
        std::vector<StringExit> exits(
            NumberPlanLayout::exits_bytes(plan.counters->tiles) / sizeof(StringExit));
        plan.places = places.data();
        plan.exits = exits.data();
        number_strings_on_cpu(plan);
    }
    result.problem = static_cast<Problem>(plan.counters->error);
    if (result.problem == Problem::none) {
        result.read(places, base);
    }
    return result;
}

void expect_numbers(std::vector<Column> const& columns, Numbered const& numbered) {
    ASSERT_EQ(numbered.problem, Problem::none);
    std::vector<bool> seen(numbered.strings.size());
    for (std::size_t i = 0; i < columns.size(); ++i) {
        SCOPED_TRACE("chunk " + std::to_string(i));
        auto const& column = columns[i];
        auto const* out = numbered.block.bytes.data() + numbered.block.out_at[i];
        for (std::size_t page = 0; page < column.pages.size(); ++page) {
            auto const header = page_header(column.pages[page], column.pages[page].plain.size());
            ASSERT_TRUE(std::equal(header.begin(), header.end(), out));
            out += header.size();
            auto const& body = column.pages[page].plain;
            auto const levels = column.levels[page];
            ASSERT_TRUE(std::equal(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(levels), out));
            for (std::size_t n = 0; n < column.strings[page].size(); ++n) {
                auto const* const at = out + levels + 4 * n;
                auto const number = std::size_t{at[0]} | std::size_t{at[1]} << 8U | std::size_t{at[2]} << 16U
                                    | std::size_t{at[3]} << 24U;
                ASSERT_LT(number, numbered.strings.size());
                ASSERT_FALSE(seen[number]) << "a number of two strings";
                seen[number] = true;
                ASSERT_TRUE(numbered.strings[number] == column.strings[page][n]);
            }
            auto const* const rest = out + levels + 4 * column.strings[page].size();
            out += body.size();
            ASSERT_TRUE(std::all_of(rest, out, [](auto byte) { return byte == 0xFF; }));
        }
    }
    for (std::size_t number = 0; number < seen.size(); ++number) {
        ASSERT_EQ(seen[number], numbered.strings[number].has_value());
    }
}

std::vector<Column> random_columns(std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::vector<Column> columns(1 + seed % 6);
    for (auto& column : columns) {
        column = random_column(random);
    }
    return columns;
}

TEST(NumberStrings, OfRandomColumns) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE(seed);
        auto const columns = random_columns(seed);
        expect_numbers(columns, numbered_here(columns));
        if (HasFatalFailure()) {
            return;
        }
    }
}

// Lengths that end behind a part of the page that is looked at, strings that are longer than it, and none at all.
TEST(NumberStrings, AtTheBordersOfTiles) {
    std::mt19937_64 random{1};
    for (std::size_t first = StringScratch::tile_bytes - 12; first < StringScratch::tile_bytes + 2; ++first) {
        for (std::size_t second : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{20000}}) {
            SCOPED_TRACE(std::to_string(first) + " " + std::to_string(second));
            Column column;
            add_dictionary(
                column, {std::string(first, 'a'), std::string(second, 'b'), "", "", std::string(4092, 'c')});
            add_indices(column, random, 0);
            expect_numbers({column}, numbered_here({column}));
        }
    }
    Column empty;
    add_dictionary(empty, {});
    add_dictionary(empty, std::vector<std::string>(5000));
    add_indices(empty, random, 0);
    expect_numbers({empty}, numbered_here({empty}));
}

TEST(NumberStrings, WrongPagesAreReported) {
    auto const problem = [](auto&& change) {
        Column column;
        column.has_levels = true;
        TestPage page;
        page.values = 3;
        put_little_endian(page.plain, 2, 4);
        page.plain.insert(page.plain.end(), {1, 2});
        for (auto const* const string : {"one", "two", "three"}) {
            put_string(page.plain, string);
        }
        change(page);
        column.add(page, 0, {});
        return numbered_here({column}).problem;
    };
    EXPECT_EQ(problem([](TestPage&) {}), Problem::none);
    EXPECT_EQ(problem([](TestPage& page) { page.encoding = 6; }), Problem::encoding);
    EXPECT_EQ(problem([](TestPage& page) { page.level_encoding = 4; }), Problem::encoding);
    EXPECT_EQ(problem([](TestPage& page) { page.plain[0] = 200; }), Problem::length);
    EXPECT_EQ(problem([](TestPage& page) { page.plain.resize(3); }), Problem::length);
    EXPECT_EQ(problem([](TestPage& page) { page.plain.pop_back(); }), Problem::strings);  // in a string
    EXPECT_EQ(problem([](TestPage& page) { page.plain[6] = 200; }), Problem::strings);
    EXPECT_EQ(problem([](TestPage& page) { page.plain[9] = 0x80; }), Problem::strings);
    EXPECT_EQ(problem([](TestPage& page) { page.values = 2; }), Problem::strings);       // more than it says
    EXPECT_EQ(problem([](TestPage& page) { page.plain.resize(8); }), Problem::strings);  // in a length
    auto const of_dictionary = [](std::int64_t values) {
        Column column;
        TestPage page;
        page.type = 2;
        page.values = values;
        put_string(page.plain, "one");
        put_string(page.plain, "two");
        column.add(page, 0, {});
        std::mt19937_64 random{2};
        add_indices(column, random, 0);
        return numbered_here({column}).problem;
    };
    EXPECT_EQ(of_dictionary(2), Problem::none);
    EXPECT_EQ(of_dictionary(1), Problem::strings);
    EXPECT_EQ(of_dictionary(3), Problem::strings);
    EXPECT_EQ(of_dictionary(1000000000), Problem::strings);
}

// Whatever the bytes are, nothing outside of the pages is touched (sanitizers watch), and it ends.
TEST(NumberStrings, OfDamagedChunks) {
    std::size_t reported = 0;
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
        std::mt19937_64 random{seed};
        auto columns = random_columns(seed);
        for (auto& column : columns) {
            auto& stored = column.chunk.stored;
            for (auto n = random() % 4; n > 0 && !stored.empty(); --n) {
                stored[random() % std::min<std::size_t>(stored.size(), 60)] =
                    static_cast<std::uint8_t>(random());
            }
            if (random() % 3 == 0 && !stored.empty()) {
                stored.resize(random() % stored.size() + 1);
            }
        }
        reported += numbered_here(columns).problem != Problem::none ? 1 : 0;
    }
    EXPECT_GT(reported, 40U);
}

// Rows that are null have no number, and numbers that no string has are reported.
TEST(NumberStrings, PlacesOfRows) {
    NumberCounters counters{.strings = 3};
    std::string const text = "abc";
    std::vector<StringPlace> places{{text.data(), 1}, {nullptr, 0}, {text.data() + 1, 2}};
    NumberPlan const plan{.counters = &counters, .places = places.data()};
    std::vector<std::int32_t> const numbers{2, 99, 0, 2};
    std::uint32_t const valid = 0b1101;
    std::vector<StringPlace> found(4);
    places_of_rows_on_cpu(plan, {numbers.data(), &valid, 4}, found.data());
    EXPECT_EQ(counters.error, 0U);
    EXPECT_EQ(found[0].data, text.data() + 1);
    EXPECT_EQ(found[0].bytes, 2);
    EXPECT_EQ(found[1].data, nullptr);
    EXPECT_EQ(found[2].data, text.data());
    EXPECT_EQ(found[3].bytes, 2);
    for (std::int32_t const wrong : {1, 3, -1}) {
        counters.error = 0;
        places_of_rows_on_cpu(plan, {&wrong, nullptr, 1}, found.data());
        EXPECT_EQ(static_cast<Problem>(counters.error), Problem::strings);
        EXPECT_EQ(found[0].data, nullptr);
    }
}

#ifdef RAPIDSMPF_HAVE_CUDA
Numbered numbered_there(std::vector<Column> const& columns) {
    Numbered result{columns};
    There const block{result.block.bytes.data(), result.block.bytes.size()};
    auto* const base = static_cast<std::uint8_t*>(block.data());
    auto const chunks = result.block.chunks(columns, base);
    auto const layout = NumberPlanLayout::of(chunks);
    std::vector<std::byte> head(layout.bytes);
    std::memcpy(head.data(), chunks.data(), chunks.size() * sizeof(StringChunk));
    NumberCounters counters;
    std::memcpy(head.data() + layout.counters_at, &counters, sizeof counters);
    There const memory{head.data(), head.size()};
    auto plan = layout.in(static_cast<std::byte*>(memory.data()));
    auto const read_counters = [&] {
        check(cudaMemcpy(&counters, plan.counters, sizeof counters, cudaMemcpyDeviceToHost));
        return counters.error == 0;
    };
    list_strings_on_gpu(plan, nullptr);
    std::vector<StringPlace> places;
    if (read_counters()) {
        places.resize(counters.strings);
        There const notes{places.size() * sizeof(StringPlace)};
        There const exits{NumberPlanLayout::exits_bytes(counters.tiles)};
        plan.places = static_cast<StringPlace*>(notes.data());
        plan.exits = static_cast<StringExit*>(exits.data());
        number_strings_on_gpu(plan, nullptr);
        if (read_counters()) {
            notes.read(places.data(), places.size() * sizeof(StringPlace));
            block.read(result.block.bytes.data(), result.block.bytes.size());
            result.read(places, base);
        }
    }
    result.problem = static_cast<Problem>(counters.error);
    return result;
}

TEST(NumberStrings, OnGpu) {
    if (!has_gpu()) {
        GTEST_SKIP() << "there is no GPU";
    }
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
        SCOPED_TRACE(seed);
        auto columns = random_columns(seed);
        std::mt19937_64 random{seed};
        if (seed % 4 == 3 && !columns[0].chunk.stored.empty()) {
            columns[0].chunk.stored[random() % columns[0].chunk.stored.size()] =
                static_cast<std::uint8_t>(random());
        }
        auto const here = numbered_here(columns);
        auto const there = numbered_there(columns);
        ASSERT_EQ(here.problem == Problem::none, there.problem == Problem::none);
        if (seed % 4 != 3) {
            expect_numbers(columns, there);
        }
        if (HasFatalFailure()) {
            return;
        }
    }
}
#endif

}  // namespace
}  // namespace rapidsmpf::pages
