// Sorting, distinct rows, ranges, inputs and errors of programs on a GPU.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "compute/gpu_support.hpp"

namespace rapidsmpf::testing {
namespace {

using compute::DataType;
using compute::Keep;
using compute::RowRange;
using compute::SortKey;

std::vector<DataType> const three{int64_type(), int64_type(), int64_type()};

// Two columns and the number of the row.
struct Data {
    Integers first;
    Integers second;
    [[nodiscard]] Table table() const {
        return TableBuilder{}.add(first).add(second).add(row_numbers(first.size())).build();
    }
    [[nodiscard]] Rows rows(std::vector<std::size_t> const& order) const {
        auto const text = [](std::optional<std::int64_t> const& cell) {
            return cell ? std::to_string(*cell) : std::string{"null"};
        };
        Rows rows;
        for (auto const i : order) {
            rows.push_back({text(first[i]), text(second[i]), std::to_string(i)});
        }
        return rows;
    }
};

Data some_data(std::size_t rows) {
    return {some_integers(rows, 6, 5, 1), some_integers(rows, 6, 5, 2)};
}

int compare(std::optional<std::int64_t> const& a, std::optional<std::int64_t> const& b, SortKey const& key) {
    if (!a || !b) {
        return a.has_value() == b.has_value() ? 0 : (a.has_value() == key.nulls_first ? 1 : -1);
    }
    auto const order = *a < *b ? -1 : (*a > *b ? 1 : 0);
    return key.descending ? -order : order;
}

std::vector<std::size_t> all_of(std::size_t rows) {
    std::vector<std::size_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    return order;
}

std::vector<std::size_t> sort_rows(Data const& data, SortKey const& first, SortKey const& second) {
    auto order = all_of(data.first.size());
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        auto const by_first = compare(data.first[a], data.first[b], first);
        return (by_first != 0 ? by_first : compare(data.second[a], data.second[b], second)) < 0;
    });
    return order;
}

std::vector<std::size_t> cut(std::vector<std::size_t> const& order, std::optional<RowRange> const& range) {
    if (!range) {
        return order;
    }
    auto const rows = static_cast<std::int64_t>(order.size());
    auto const begin = range->offset < 0 ? rows + range->offset : range->offset;
    auto const end = range->length && *range->length < rows + std::abs(begin) ? begin + *range->length : rows;
    std::vector<std::size_t> part;
    for (auto i = std::max<std::int64_t>(begin, 0); i < std::min(end, rows); ++i) {
        part.push_back(order[static_cast<std::size_t>(i)]);
    }
    return part;
}

std::vector<std::optional<RowRange>> some_ranges() {
    return {
        std::nullopt,
        RowRange{0, 3},
        RowRange{2, 4},
        RowRange{0, 0},
        RowRange{5, std::nullopt},
        RowRange{-7, 3},
        RowRange{-200, 150},
        RowRange{90, 50},
        RowRange{-3, std::nullopt},
        RowRange{1, std::numeric_limits<std::int64_t>::max()}};
}

class OrderTest : public OperatorTest {};

TEST_F(OrderTest, SortsByEveryOrderOfNulls) {
    auto const data = some_data(100);
    for (int bits = 0; bits < 16; ++bits) {
        SortKey const first{0, (bits & 1) != 0, (bits & 2) != 0};
        SortKey const second{1, (bits & 4) != 0, (bits & 8) != 0};
        for (auto const& range : some_ranges()) {
            SCOPED_TRACE(std::to_string(bits) + " " + std::to_string(range ? range->offset : 0));
            auto const expected = data.rows(cut(sort_rows(data, first, second), range));
            compute::Sort sink{{first, second}, true, range};
            ASSERT_EQ(run({from_input(0, sink, three)}, {data.table()}), expected);
            // Without a stable order the keys alone are the same.
            sink.stable = false;
            auto rows = run({from_input(0, sink, three)}, {data.table()});
            ASSERT_EQ(rows.size(), expected.size());
            for (std::size_t i = 0; i < rows.size(); ++i) {
                ASSERT_EQ(rows[i][0], expected[i][0]);
                ASSERT_EQ(rows[i][1], expected[i][1]);
            }
        }
    }
}

TEST_F(OrderTest, SortsByOneKey) {
    auto const data = some_data(100);
    for (int bits = 0; bits < 4; ++bits) {
        SortKey const key{0, (bits & 1) != 0, (bits & 2) != 0};
        auto order = all_of(100);
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return compare(data.first[a], data.first[b], key) < 0;
        });
        for (auto const& range : some_ranges()) {
            EXPECT_EQ(
                run({from_input(0, compute::Sort{{key}, true, range}, three)}, {data.table()}),
                data.rows(cut(order, range)));
        }
    }
}

// Whatever their bits and their signs are, NaNs are one value, and zeros are: rows that have it stay in their order.
TEST_F(OrderTest, NansAndZerosAreOneValueEach) {
    auto const nan = [](std::uint64_t bits) { return std::bit_cast<double>(bits); };
    Reals const reals{nan(0x7ff8000000000000), 0.0,  nan(0xfff8000000000000), -0.0, 1.0,
                      nan(0x7ff8000000000001), -1.0, nan(0xffffffffffffffff), 0.0,  nan(0x7ff8000000000000)};
    auto const table = TableBuilder{}.add(reals).add(row_numbers(reals.size())).build();
    for (bool const descending : {false, true}) {
        for (bool const has_two_keys : {false, true}) {
            std::vector<SortKey> keys{{0, descending, false}};
            if (has_two_keys) {
                keys.push_back(keys.front());
            }
            std::vector<std::string> numbers;
            for (auto const& row :
                 run({from_input(0, compute::Sort{keys, true, std::nullopt}, {float64_type(), int64_type()})},
                     {table})) {
                numbers.push_back(row[1]);
            }
            EXPECT_EQ(
                numbers, descending
                             ? (std::vector<std::string>{"0", "2", "5", "7", "9", "4", "1", "3", "8", "6"})
                             : (std::vector<std::string>{"6", "1", "3", "8", "4", "0", "2", "5", "7", "9"}));
        }
    }
}

TEST_F(OrderTest, DistinctRowsOfEveryKind) {
    auto const data = some_data(100);
    std::map<std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>, std::vector<std::size_t>>
        groups;
    for (std::size_t i = 0; i < 100; ++i) {
        groups[{data.first[i], data.second[i]}].push_back(i);
    }
    for (auto const keep : {Keep::any, Keep::first, Keep::last, Keep::none}) {
        for (bool const in_order : {true, false}) {
            SCOPED_TRACE(std::to_string(static_cast<int>(keep)) + (in_order ? " in order" : ""));
            std::vector<std::size_t> kept;
            for (auto const& [key, rows] : groups) {
                if (keep == Keep::last) {
                    kept.push_back(rows.back());
                } else if (keep != Keep::none || rows.size() == 1) {
                    kept.push_back(rows.front());
                }
            }
            std::sort(kept.begin(), kept.end());
            auto rows =
                run({from_input(0, compute::Distinct{{0, 1}, keep, in_order}, three)}, {data.table()});
            auto expected = data.rows(kept);
            if (keep == Keep::any && !in_order) {  // whichever row of its kind
                for (auto* const list : {&rows, &expected}) {
                    for (auto& row : *list) {
                        row.pop_back();
                    }
                }
            }
            EXPECT_EQ(in_order ? rows : sorted(rows), in_order ? expected : sorted(expected));
        }
    }
}

TEST_F(OrderTest, DistinctRowsOfNothing) {
    auto const data = some_data(0);
    EXPECT_TRUE(
        run({from_input(0, compute::Distinct{{0}, Keep::first, true}, three)}, {data.table()}).empty());
}

TEST_F(OrderTest, HoldsRangesInOrder) {
    auto const data = some_data(100);
    for (auto const& range : some_ranges()) {
        EXPECT_EQ(
            run({from_input(0, compute::Hold{true, range}, three)}, {data.table()}),
            data.rows(cut(all_of(100), range)));
    }
    EXPECT_EQ(
        sorted(run({from_input(0, compute::Hold{}, three)}, {data.table()})), sorted(data.rows(all_of(100))));
}

TEST_F(OrderTest, AHeadEndsItsInput) {
    // An input without end.
    std::int64_t given{0};
    auto const table = some_data(10).table();
    ArrowStreamOwner stream;
    export_table_stream(
        table.schema(),
        [&]() -> std::optional<Table> {
            ++given;
            return table;
        },
        stream.out());
    compute::Program program;
    program.pipelines = {from_input(0, compute::Hold{true, RowRange{0, 25}}, three)};
    auto const result = runtime_->run(program, {std::make_shared<TableReader>(std::move(stream))});
    EXPECT_EQ(rows_of(*result).size(), 25U);
    EXPECT_LT(given, 1000);
}

TEST_F(OrderTest, ResultsAreReadSeveralTimes) {
    auto const data = some_data(100);
    auto const rows =
        run({from_input(0, compute::Hold{true, {}}, three), from_pipeline(0, compute::Hold{true, {}}, three),
             from_pipeline(0, compute::Sort{{{2, true, true}}, true, RowRange{0, 50}}, three),
             from_pipeline(2, compute::Hold{true, {}}, three)},
            {data.table()});
    auto order = all_of(100);
    std::reverse(order.begin(), order.end());
    order.resize(50);
    EXPECT_EQ(rows, data.rows(order));
}

TEST_F(OrderTest, TextsOfEveryLayoutComeBack) {
    Texts const cells{"", "a", std::nullopt, "twelve bytes", "ä ß", std::nullopt, "b"};
    for (auto const* const format : {"u", "U", "vu", "dictionary"}) {
        SCOPED_TRACE(format);
        Rows expected;
        for (auto const& cell : cells) {
            expected.push_back({cell.value_or("null")});
        }
        EXPECT_EQ(
            run({from_input(0, compute::Hold{true, {}}, {text_type()})},
                {TableBuilder{}.add(cells, format).build()}),
            expected);
    }
}

TEST_F(OrderTest, DecimalsAndRealsComeBack) {
    auto const rows =
        run({from_input(0, compute::Hold{true, {}}, {float64_type(), decimal_type()})},
            {TableBuilder{}
                 .add(Reals{1.5, std::nullopt, -0.25})
                 .add_decimals({std::nullopt, -7, 12345})
                 .build()});
    EXPECT_EQ(rows, (Rows{{"1.5", "null"}, {"null", "-7"}, {"-0.25", "12345"}}));
}

TEST_F(OrderTest, ErrorsOfInputsAreThrown) {
    auto const table = some_data(10).table();
    for (int const fails_at : {0, 1, 20}) {
        ArrowStreamOwner stream;
        export_table_stream(
            table.schema(),
            [&, given = 0]() mutable -> std::optional<Table> {
                if (given++ == fails_at) {
                    throw std::runtime_error{"the producer failed"};
                }
                return table;
            },
            stream.out());
        compute::Program program;
        program.pipelines = {from_input(0, compute::Hold{}, three)};
        try {
            (void)runtime_->run(program, {std::make_shared<TableReader>(std::move(stream))});
            FAIL() << "nothing was thrown";
        } catch (std::runtime_error const& error) {
            EXPECT_NE(std::string{error.what()}.find("the producer failed"), std::string::npos);
        }
    }
}

TEST_F(OrderTest, CancellationEndsARun) {
    auto const table = some_data(10).table();
    ArrowStreamOwner stream;
    export_table_stream(
        table.schema(),
        [&, given = 0]() mutable -> std::optional<Table> {
            if (++given == 5) {
                runtime_->cancel();
            }
            return table;  // without end
        },
        stream.out());
    compute::Program program;
    program.pipelines = {from_input(0, compute::Hold{}, three)};
    EXPECT_THROW(
        (void)runtime_->run(program, {std::make_shared<TableReader>(std::move(stream))}), compute::Cancelled);
}

TEST_F(OrderTest, RowsThatWaitMakeRoom) {
    // 160 MB of rows with 64 MiB on the device.
    BufferResource::Settings memory;
    memory.limits[static_cast<std::size_t>(MemoryType::DEVICE)] = std::int64_t{64} << 20;
    compute::RuntimeSettings settings;
    settings.threads = 2;
    settings.chunk_rows = 500'000;
    settings.output_rows = 500'000;
    runtime_ = std::make_unique<compute::Runtime>(BufferResource::make(memory), settings);
    constexpr std::size_t rows{10'000'000};
    auto const table = TableBuilder{}.add(row_numbers(rows)).add(row_numbers(rows)).build();
    std::vector<DataType> const two{int64_type(), int64_type()};
    compute::Program program;
    program.pipelines = {
        from_input(0, compute::Hold{true, {}}, two), from_pipeline(0, compute::Hold{true, {}}, two)};
    auto const result = runtime_->run(program, {reader_of(table, 500'000)});
    std::int64_t next{0};
    while (auto const part = result->next()) {
        auto const* const values = reinterpret_cast<std::int64_t const*>(part->columns()[1].values);
        for (std::int64_t i = 0; i < part->num_rows(); ++i) {
            ASSERT_EQ(values[part->columns()[1].offset + i], next++);
        }
    }
    EXPECT_EQ(next, static_cast<std::int64_t>(rows));
    EXPECT_LE(runtime_->device_peak_bytes(), std::int64_t{64} << 20);
}

TEST_F(OrderTest, WhatDoesNotFitIsAnErrorThatNamesThePipeline) {
    BufferResource::Settings memory;
    memory.limits[static_cast<std::size_t>(MemoryType::DEVICE)] = std::int64_t{16} << 20;
    compute::RuntimeSettings settings;
    settings.threads = 2;
    settings.chunk_rows = 100'000;
    runtime_ = std::make_unique<compute::Runtime>(BufferResource::make(memory), settings);
    constexpr std::size_t rows{3'000'000};
    auto const table = TableBuilder{}.add(row_numbers(rows)).build();
    compute::Program program;
    program.pipelines = {from_input(0, compute::Sort{{{0, true, true}}, true, {}}, {int64_type()})};
    try {
        (void)runtime_->run(program, {reader_of(table, 100'000)});
        FAIL() << "nothing was thrown; at most " << runtime_->device_peak_bytes() << " bytes were in use";
    } catch (OutOfMemory const& error) {
        EXPECT_NE(std::string{error.what()}.find("pipeline 0 (sort)"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace rapidsmpf::testing
