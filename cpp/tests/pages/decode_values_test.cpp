// Columns of fixed-width values are decoded by the code that kernels run, on the CPU, and compared with what the pages were made
// of; where there is a GPU, there as well.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "pages/gpu_memory.hpp"
#include "pages/plan.hpp"
#include "pages/streams.hpp"
#include "pages/values.hpp"

namespace rapidsmpf::pages {
namespace {

using Cell = std::optional<std::uint64_t>;

// The hybrid of run lengths and bit packing, with runs of both kinds and of any length.
Bytes put_runs(std::mt19937_64& random, std::vector<std::uint32_t> const& values, std::uint32_t width) {
    Bytes to;
    for (std::size_t at = 0; at < values.size();) {
        auto repeated = std::size_t{1};
        while (at + repeated < values.size() && values[at + repeated] == values[at]) {
            ++repeated;
        }
        if (repeated >= 8 || random() % 4 == 0) {
            auto const n = random() % 5 == 0 ? 1 + random() % repeated : repeated;
            put_varint(to, n << 1);
            put_little_endian(to, values[at], (width + 7) / 8);
            at += n;
            continue;
        }
        auto const left = values.size() - at;
        auto const groups = std::min<std::size_t>(1 + random() % 63, (left + 7) / 8);
        put_varint(to, groups << 1 | 1);
        Bytes packed(groups * width);
        for (std::size_t i = 0; i < std::min(8 * groups, left); ++i) {
            for (std::size_t bit = 0; bit < width; ++bit) {
                auto const place = i * width + bit;
                packed[place / 8] |= static_cast<std::uint8_t>((values[at + i] >> bit & 1U) << (place % 8));
            }
        }
        // Some writers end the last run with the last value.
        if (8 * groups >= left && random() % 2 == 0) {
            packed.resize((left * width + 7) / 8);
        }
        to.insert(to.end(), packed.begin(), packed.end());
        at += 8 * groups;
    }
    return to;
}

struct ValuesOfColumn {
    std::uint32_t stored_bytes{4};
    std::uint32_t out_bytes{4};
    bool is_optional{false};
    std::vector<TestChunk> chunks;
    std::vector<Cell> cells;
};

std::vector<Cell> random_cells(
    std::mt19937_64& random, std::size_t n, bool is_optional, std::vector<std::uint64_t> const* dictionary) {
    auto const nulls = is_optional ? random() % 4 : 0;  // 0: none, 3: nearly all
    std::vector<Cell> cells(n);
    auto const runs = random() % 2 == 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (i != 0 && runs && random() % 8 != 0) {
            cells[i] = cells[i - 1];
        } else if (
            nulls == 0 || (nulls == 1 && random() % 50 != 0) || (nulls == 2 && random() % 2 == 0)
            || (nulls == 3 && random() % 50 == 0)) {
            cells[i] = dictionary != nullptr ? (*dictionary)[random() % dictionary->size()] : random();
        }
    }
    return cells;
}

TestPage data_page(
    std::mt19937_64& random, ValuesOfColumn const& column, std::vector<Cell> const& cells, int type,
    std::vector<std::uint64_t> const* dictionary) {
    TestPage page;
    page.type = type;
    page.values = static_cast<std::int64_t>(cells.size());
    page.is_compressed = false;
    if (column.is_optional) {
        std::vector<std::uint32_t> levels;
        for (auto const& cell : cells) {
            levels.push_back(cell ? 1 : 0);
        }
        auto const bytes = put_runs(random, levels, 1);
        if (type == 3) {
            page.definition_bytes = static_cast<std::int64_t>(bytes.size());
        } else {
            put_little_endian(page.plain, bytes.size(), 4);
        }
        page.plain.insert(page.plain.end(), bytes.begin(), bytes.end());
    }
    std::unordered_map<std::uint64_t, std::uint32_t> index_of;
    for (std::size_t i = 0; dictionary != nullptr && i < dictionary->size(); ++i) {
        index_of.emplace((*dictionary)[i], static_cast<std::uint32_t>(i));
    }
    std::vector<std::uint32_t> indices;
    for (auto const& cell : cells) {
        if (cell && dictionary != nullptr) {
            indices.push_back(index_of.at(*cell));
        } else if (cell) {
            put_little_endian(page.plain, *cell, column.stored_bytes);
        }
    }
    if (dictionary != nullptr) {
        page.encoding = random() % 2 == 0 ? 8 : 2;
        std::uint32_t width = 0;
        while (dictionary->size() > std::size_t{1} << width) {
            ++width;
        }
        width += static_cast<std::uint32_t>(random() % 3);
        if (!indices.empty() || random() % 2 == 0) {
            page.plain.push_back(static_cast<std::uint8_t>(width));
        }
        auto const bytes = put_runs(random, indices, width);
        page.plain.insert(page.plain.end(), bytes.begin(), bytes.end());
    }
    page.body = page.plain;
    return page;
}

void add_chunk(std::mt19937_64& random, ValuesOfColumn& column) {
    TestChunk chunk;
    auto const type = random() % 2 == 0 ? 0 : 3;
    std::vector<std::uint64_t> dictionary;
    if (random() % 3 != 0) {
        constexpr std::size_t most[] = {1, 2, 30, 3000};
        dictionary.resize(1 + random() % most[random() % 4]);
        TestPage page;
        page.type = 2;
        page.values = static_cast<std::int64_t>(dictionary.size());
        for (auto& value : dictionary) {
            value = column.stored_bytes == 4 ? random() & 0xffffffffU : random();
            put_little_endian(page.plain, value, column.stored_bytes);
        }
        page.body = page.plain;
        add_page(chunk, page);
    }
    for (auto n = 1 + random() % 4; n > 0; --n) {
        constexpr std::size_t most[] = {1, 40, 1100, 20000};
        auto const* const of_page =
            dictionary.empty() || (n == 1 && random() % 3 == 0) ? nullptr : &dictionary;
        auto cells = random_cells(random, random() % (most[random() % 4] + 1), column.is_optional, of_page);
        for (auto& cell : cells) {
            if (cell && column.stored_bytes == 4) {
                cell = *cell & 0xffffffffU;
            }
        }
        add_page(chunk, data_page(random, column, cells, type, of_page));
        column.cells.insert(column.cells.end(), cells.begin(), cells.end());
    }
    column.chunks.push_back(std::move(chunk));
}

ValuesOfColumn random_values(std::mt19937_64& random) {
    ValuesOfColumn column;
    column.stored_bytes = random() % 2 == 0 ? 4 : 8;
    constexpr std::uint32_t widths[] = {1, 2, 4, 8};
    column.out_bytes = std::min(column.stored_bytes, widths[random() % 4]);
    column.is_optional = random() % 2 == 0;
    for (auto n = 1 + random() % 3; n > 0; --n) {
        add_chunk(random, column);
    }
    return column;
}

// One block of memory with the chunks, each at another alignment, and the columns.
struct ValueBlock {
    explicit ValueBlock(std::vector<ValuesOfColumn> const& columns) {
        std::size_t i = 0;
        for (auto const& column : columns) {
            for (auto const& chunk : column.chunks) {
                bytes.resize(bytes.size() + slack + i++ % 5);
                stored_at.push_back(bytes.size());
                bytes.insert(bytes.end(), chunk.stored.begin(), chunk.stored.end());
                bytes.resize(bytes.size() + slack);
            }
        }
        for (auto const& column : columns) {
            out_at.push_back(aligned(0xEE, column.cells.size() * column.out_bytes));
            valid_at.push_back(aligned(0, (column.cells.size() + 31) / 32 * 4 + 4));
        }
    }

    [[nodiscard]] std::size_t aligned(std::uint8_t fill, std::size_t n) {
        bytes.resize((bytes.size() + 63) / 64 * 64, 0xEE);
        auto const at = bytes.size();
        bytes.resize(at + n, fill);
        return at;
    }

    [[nodiscard]] std::vector<ValueChunk> chunks(
        std::vector<ValuesOfColumn> const& columns, std::uint8_t* base) const {
        std::vector<ValueChunk> made;
        for (std::uint32_t number = 0; number < columns.size(); ++number) {
            std::uint64_t row = 0;
            for (auto const& chunk : columns[number].chunks) {
                made.push_back(
                    ValueChunk{
                        .data = base + stored_at[made.size()],
                        .bytes = chunk.stored.size(),
                        .values = chunk.values,
                        .row = row,
                        .column = number});
                row += chunk.values;
            }
        }
        return made;
    }

    [[nodiscard]] std::vector<ValueColumn> of_plan(
        std::vector<ValuesOfColumn> const& columns, std::uint8_t* base) const {
        std::vector<ValueColumn> made;
        for (std::size_t i = 0; i < columns.size(); ++i) {
            made.push_back(
                ValueColumn{
                    .out = base + out_at[i],
                    .valid = columns[i].is_optional ? reinterpret_cast<std::uint32_t*>(base + valid_at[i])
                                                    : nullptr,
                    .stored_bytes = columns[i].stored_bytes,
                    .out_bytes = columns[i].out_bytes});
        }
        return made;
    }

    Bytes bytes;
    std::vector<std::size_t> stored_at;
    std::vector<std::size_t> out_at;
    std::vector<std::size_t> valid_at;
};

struct DecodedValues {
    Problem problem{Problem::none};
    ValueBlock block;
    std::vector<ValueColumn> columns;
};

// The block of a plan as the host fills it.
std::vector<std::byte> filled(
    ValuePlanLayout const& layout, std::vector<ValueChunk> const& chunks,
    std::vector<ValueColumn> const& columns) {
    std::vector<std::byte> memory(layout.bytes);
    std::memcpy(memory.data(), chunks.data(), chunks.size() * sizeof(ValueChunk));
    std::memcpy(memory.data() + layout.columns_at, columns.data(), columns.size() * sizeof(ValueColumn));
    ValueCounters const counters;
    std::memcpy(memory.data() + layout.counters_at, &counters, sizeof counters);
    return memory;
}

void read_back(DecodedValues& result, ValuePlanLayout const& layout, std::byte const* memory) {
    std::memcpy(
        result.columns.data(), memory + layout.columns_at, result.columns.size() * sizeof(ValueColumn));
    ValueCounters counters;
    std::memcpy(&counters, memory + layout.counters_at, sizeof counters);
    result.problem = static_cast<Problem>(counters.error);
}

DecodedValues decoded_here(std::vector<ValuesOfColumn> const& columns) {
    DecodedValues result{.block = ValueBlock{columns}, .columns = {}};
    // The vector's memory may have any alignment.
    std::vector<std::uint64_t> memory(result.block.bytes.size() / 8 + 1);
    auto* const base = reinterpret_cast<std::uint8_t*>(memory.data());
    std::memcpy(base, result.block.bytes.data(), result.block.bytes.size());
    auto const chunks = result.block.chunks(columns, base);
    result.columns = result.block.of_plan(columns, base);
    auto const layout = ValuePlanLayout::of(chunks, columns.size());
    auto plan_memory = filled(layout, chunks, result.columns);
    decode_values_on_cpu(layout.in(plan_memory.data()));
    read_back(result, layout, plan_memory.data());
    std::memcpy(result.block.bytes.data(), base, result.block.bytes.size());
    return result;
}

void expect_values(std::vector<ValuesOfColumn> const& columns, DecodedValues const& decoded) {
    ASSERT_EQ(decoded.problem, Problem::none);
    for (std::size_t i = 0; i < columns.size(); ++i) {
        SCOPED_TRACE("column " + std::to_string(i));
        auto const& column = columns[i];
        auto const* const out = decoded.block.bytes.data() + decoded.block.out_at[i];
        auto const* const valid = decoded.block.bytes.data() + decoded.block.valid_at[i];
        std::uint32_t nulls = 0;
        for (std::size_t row = 0; row < column.cells.size(); ++row) {
            auto const& cell = column.cells[row];
            nulls += cell ? 0 : 1;
            std::uint64_t value = 0;
            std::memcpy(&value, out + row * column.out_bytes, column.out_bytes);
            auto const mask = ~std::uint64_t{0} >> (64 - 8 * column.out_bytes);
            ASSERT_EQ(value, cell.value_or(0) & mask) << "row " << row;
            if (column.is_optional) {
                ASSERT_EQ(valid[row / 8] >> (row % 8) & 1, cell ? 1 : 0) << "row " << row;
            }
        }
        ASSERT_EQ(decoded.columns[i].nulls, nulls);
        for (auto row = column.cells.size(); column.is_optional && row % 32 != 0; ++row) {
            ASSERT_EQ(valid[row / 8] >> (row % 8) & 1, 0) << "behind the last row";
        }
    }
}

std::vector<ValuesOfColumn> random_value_columns(std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::vector<ValuesOfColumn> columns(1 + seed % 5);
    for (auto& column : columns) {
        column = random_values(random);
    }
    return columns;
}

TEST(DecodeValues, OfRandomColumns) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        SCOPED_TRACE(seed);
        auto const columns = random_value_columns(seed);
        expect_values(columns, decoded_here(columns));
        if (HasFatalFailure()) {
            return;
        }
    }
}

// A chunk of one page with three INT32 values, and a dictionary of two that only a page with indices uses.
struct SmallChunk {
    TestPage dictionary;
    TestPage page;
    std::uint64_t values{3};

    explicit SmallChunk(bool has_indices) {
        dictionary.type = 2;
        dictionary.values = 2;
        for (std::uint64_t const value : {5, 6}) {
            put_little_endian(dictionary.plain, value, 4);
        }
        page.values = 3;
        put_little_endian(page.plain, 2, 4);
        page.plain.insert(page.plain.end(), {3 << 1, 1});
        if (has_indices) {
            page.encoding = 8;
            page.plain.insert(page.plain.end(), {1, 3, 0b101});
        } else {
            for (std::uint64_t const value : {7, 8, 9}) {
                put_little_endian(page.plain, value, 4);
            }
        }
    }

    [[nodiscard]] Problem problem() {
        ValuesOfColumn column;
        column.is_optional = true;
        column.cells.resize(3);
        TestChunk chunk;
        dictionary.body = dictionary.plain;
        page.body = page.plain;
        add_page(chunk, dictionary);
        add_page(chunk, page);
        chunk.values = values;
        column.chunks.push_back(chunk);
        return decoded_here({column}).problem;
    }
};

TEST(DecodeValues, WrongPagesAreReported) {
    auto const problem = [](bool has_indices, auto&& change) {
        SmallChunk chunk{has_indices};
        change(chunk);
        return chunk.problem();
    };
    EXPECT_EQ(problem(false, [](SmallChunk&) {}), Problem::none);
    EXPECT_EQ(problem(true, [](SmallChunk&) {}), Problem::none);
    EXPECT_EQ(problem(false, [](SmallChunk& c) { c.page.encoding = 5; }), Problem::encoding);
    EXPECT_EQ(problem(false, [](SmallChunk& c) { c.page.level_encoding = 4; }), Problem::encoding);
    EXPECT_EQ(problem(false, [](SmallChunk& c) { c.dictionary.encoding = 5; }), Problem::encoding);
    EXPECT_EQ(problem(false, [](SmallChunk& c) { c.dictionary.values = 3; }), Problem::length);
    EXPECT_EQ(problem(false, [](SmallChunk& c) { c.page.plain.pop_back(); }), Problem::length);
    EXPECT_EQ(problem(false, [](SmallChunk& c) { c.page.plain.resize(3); }), Problem::length);
    EXPECT_EQ(problem(false, [](SmallChunk& c) { c.page.plain[0] = 200; }), Problem::length);
    EXPECT_EQ(
        problem(false, [](SmallChunk& c) { c.page.plain[4] = 2 << 1; }), Problem::length);   // too few levels
    EXPECT_EQ(problem(false, [](SmallChunk& c) { c.page.plain[5] = 2; }), Problem::length);  // a level of 2
    EXPECT_EQ(problem(false, [](SmallChunk& c) { c.values = 4; }), Problem::header);
    EXPECT_EQ(problem(false, [](SmallChunk& c) { c.values = 2; }), Problem::header);
    EXPECT_EQ(
        problem(true, [](SmallChunk& c) { c.page.plain[6] = 33; }), Problem::encoding);  // bits of an index
    EXPECT_EQ(problem(true, [](SmallChunk& c) { c.page.plain.resize(7); }), Problem::length);  // no indices
    EXPECT_EQ(problem(true, [](SmallChunk& c) { c.page.plain[6] = 8; }), Problem::length);  // an index of 5
    EXPECT_EQ(problem(true, [](SmallChunk& c) { c.dictionary.values = 1; }), Problem::length);
    EXPECT_EQ(
        problem(
            true,
            [](SmallChunk& c) {
                c.page.plain.resize(7);
                c.page.plain.insert(c.page.plain.end(), {0xff, 0xff, 0xff, 0xff, 0x7f});
            }),
        Problem::length);
}

// Whatever the bytes are, nothing outside of the pages and columns is touched (sanitizers watch), and it ends.
TEST(DecodeValues, OfDamagedChunks) {
    std::size_t reported = 0;
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
        std::mt19937_64 random{seed};
        auto columns = random_value_columns(seed);
        for (auto& column : columns) {
            auto& stored = column.chunks.front().stored;
            for (auto n = random() % 4; n > 0; --n) {
                stored[random() % std::min<std::size_t>(stored.size(), 100)] =
                    static_cast<std::uint8_t>(random());
            }
            if (random() % 3 == 0) {
                stored.resize(random() % stored.size() + 1);
            }
        }
        reported += decoded_here(columns).problem != Problem::none ? 1 : 0;
    }
    EXPECT_GT(reported, 40U);
}

// A chunk of a file, and what a reader that others made found in it: see python/tests/test_pages_of_writers.py.
void expect_case(Bytes const& bytes) {
    std::uint32_t head[6];
    std::memcpy(head, bytes.data(), sizeof head);
    auto const [width, is_optional, codec, values, uncompressed, stored] = head;
    Bytes chunk(slack + stored + slack);
    std::memcpy(chunk.data() + slack, bytes.data() + sizeof head, stored);
    Bytes plain(room_for(uncompressed) + slack);
    auto const* data = chunk.data() + slack;
    std::uint64_t data_bytes = stored;
    if (codec == 1) {
        std::vector<Chunk> const chunks{
            {.data = data,
             .bytes = stored,
             .values = values,
             .out = plain.data(),
             .room = plain.size() - slack}};
        auto const layout = PlanLayout::of(chunks);
        std::vector<std::byte> memory(layout.bytes);
        std::memcpy(memory.data(), chunks.data(), sizeof(Chunk));
        auto const plan = layout.in(memory.data());
        *plan.counters = Counters{};
        decompress_on_cpu(plan);
        ASSERT_EQ(plan.counters->error, 0U);
        data = plain.data();
        data_bytes = plan.chunks->out_bytes;
    }
    std::vector<ValueChunk> const chunks{{.data = data, .bytes = data_bytes, .values = values}};
    std::vector<std::uint64_t> out(std::size_t{values} * width / 8 + 1);
    std::vector<std::uint32_t> valid(values / 32 + 1);
    std::vector<ValueColumn> const columns{
        {.out = reinterpret_cast<std::uint8_t*>(out.data()),
         .valid = is_optional != 0 ? valid.data() : nullptr,
         .stored_bytes = width,
         .out_bytes = width}};
    auto const layout = ValuePlanLayout::of(chunks, 1);
    auto memory = filled(layout, chunks, columns);
    auto const plan = layout.in(memory.data());
    decode_values_on_cpu(plan);
    ASSERT_EQ(plan.counters->error, 0U);
    auto const* const expected_valid = bytes.data() + sizeof head + stored;
    auto const* const expected = expected_valid + values;
    ASSERT_EQ(static_cast<std::size_t>(bytes.data() + bytes.size() - expected), std::size_t{values} * width);
    for (std::uint32_t row = 0; row < values && is_optional != 0; ++row) {
        ASSERT_EQ(valid[row / 32] >> (row % 32) & 1U, expected_valid[row]) << "row " << row;
    }
    ASSERT_EQ(std::memcmp(out.data(), expected, std::size_t{values} * width), 0);
}

TEST(DecodeValues, OfFiles) {
    auto const* const folder = std::getenv("RAPIDSMPF_PAGE_CASES");
    if (folder == nullptr) {
        GTEST_SKIP() << "run by python/tests/test_pages_of_writers.py, which writes the files";
    }
    std::size_t cases = 0;
    for (auto const& entry : std::filesystem::directory_iterator{folder}) {
        SCOPED_TRACE(entry.path().filename());
        std::ifstream in{entry.path(), std::ios::binary};
        expect_case(Bytes{std::istreambuf_iterator<char>{in}, {}});
        if (HasFatalFailure()) {
            return;
        }
        ++cases;
    }
    std::cout << cases << " chunks\n";
}

#ifdef RAPIDSMPF_HAVE_CUDA
DecodedValues decoded_there(std::vector<ValuesOfColumn> const& columns) {
    DecodedValues result{.block = ValueBlock{columns}, .columns = {}};
    auto& bytes = result.block.bytes;
    There const block{bytes.data(), bytes.size()};
    auto* const base = static_cast<std::uint8_t*>(block.data());
    auto const chunks = result.block.chunks(columns, base);
    result.columns = result.block.of_plan(columns, base);
    auto const layout = ValuePlanLayout::of(chunks, columns.size());
    auto memory = filled(layout, chunks, result.columns);
    There const plan{memory.data(), memory.size()};
    decode_values_on_gpu(layout.in(static_cast<std::byte*>(plan.data())), nullptr);
    plan.read(memory.data(), memory.size());
    block.read(bytes.data(), bytes.size());
    read_back(result, layout, memory.data());
    return result;
}

TEST(DecodeValues, OnGpu) {
    if (!has_gpu()) {
        GTEST_SKIP() << "there is no GPU";
    }
    for (std::uint64_t seed = 1000; seed < 1060; ++seed) {
        SCOPED_TRACE(seed);
        auto columns = random_value_columns(seed);
        auto const is_damaged = seed % 4 == 3;
        if (is_damaged) {
            std::mt19937_64 random{seed};
            auto& stored = columns[0].chunks[0].stored;
            stored[random() % stored.size()] = static_cast<std::uint8_t>(random());
        }
        auto const there = decoded_there(columns);
        if (is_damaged) {
            ASSERT_EQ(decoded_here(columns).problem == Problem::none, there.problem == Problem::none);
        } else {
            expect_values(columns, there);
        }
        if (HasFatalFailure()) {
            return;
        }
    }
}
#endif

}  // namespace
}  // namespace rapidsmpf::pages
