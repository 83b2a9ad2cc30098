// Groups and aggregates by programs on a GPU, against loops over the rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compute/gpu_support.hpp"

namespace rapidsmpf::testing {
namespace {

using compute::Aggregate;
using compute::DataType;
using Kind = compute::AggregateKind;
using Values = std::vector<std::optional<std::int64_t>>;

std::string number(double value) {
    char digits[64];
    std::snprintf(digits, sizeof(digits), "%.6g", value);
    return digits;
}

std::vector<double> valid_of(Values const& values) {
    std::vector<double> valid;
    for (auto const& value : values) {
        if (value) {
            valid.push_back(static_cast<double>(*value));
        }
    }
    return valid;
}

struct Expectation {
    Aggregate aggregate;  // of column 1, integers
    std::function<std::string(Values const&)> of;
};

std::string whole(double value) {
    return std::to_string(static_cast<std::int64_t>(value));
}

double variance(std::vector<double> const& valid, int ddof) {
    double mean{0};
    for (auto const value : valid) {
        mean += value / static_cast<double>(valid.size());
    }
    double sum{0};
    for (auto const value : valid) {
        sum += (value - mean) * (value - mean);
    }
    return sum / static_cast<double>(static_cast<int>(valid.size()) - ddof);
}

// Null without a valid value.
std::function<std::string(Values const&)> of_valid(std::function<std::string(std::vector<double>)> of) {
    return [of = std::move(of)](Values const& values) {
        auto const valid = valid_of(values);
        return valid.empty() ? std::string{"null"} : of(valid);
    };
}

std::string cell_text(std::optional<std::int64_t> const& value) {
    return value ? std::to_string(*value) : "null";
}

std::vector<Expectation> mergeable() {
    auto const integer = int64_type();
    return {
        {{Kind::sum, 1, integer, {}}, of_valid([](auto valid) {
             double sum{0};
             for (auto const value : valid) {
                 sum += value;
             }
             return whole(sum);
         })},
        {{Kind::min, 1, integer, {}},
         of_valid([](auto valid) { return whole(*std::min_element(valid.begin(), valid.end())); })},
        {{Kind::max, 1, integer, {}},
         of_valid([](auto valid) { return whole(*std::max_element(valid.begin(), valid.end())); })},
        {{Kind::count_valid, 1, integer, {}},
         [](Values const& values) { return std::to_string(valid_of(values).size()); }},
        {{Kind::count_all, 0, integer, {}},
         [](Values const& values) { return std::to_string(values.size()); }},
        {{Kind::mean, 1, float64_type(), {}}, of_valid([](auto valid) {
             double sum{0};
             for (auto const value : valid) {
                 sum += value;
             }
             return number(sum / static_cast<double>(valid.size()));
         })},
    };
}

std::vector<Expectation> one_shot() {
    auto const real = float64_type();
    auto all = mergeable();
    all.push_back({{Kind::nunique, 1, int64_type(), {}}, [](Values const& values) {
                       return std::to_string(
                           std::set<std::optional<std::int64_t>>(values.begin(), values.end()).size());
                   }});
    all.push_back({{Kind::nunique_valid, 1, int64_type(), {}}, [](Values const& values) {
                       auto const valid = valid_of(values);
                       return std::to_string(std::set<double>(valid.begin(), valid.end()).size());
                   }});
    for (int const ddof : {0, 1}) {
        all.push_back({{Kind::var, 1, real, {std::int64_t{ddof}}}, [ddof](Values const& values) {
                           auto const valid = valid_of(values);
                           return static_cast<int>(valid.size()) <= ddof ? "null"
                                                                         : number(variance(valid, ddof));
                       }});
        all.push_back({{Kind::std, 1, real, {std::int64_t{ddof}}}, [ddof](Values const& values) {
                           auto const valid = valid_of(values);
                           return static_cast<int>(valid.size()) <= ddof
                                      ? "null"
                                      : number(std::sqrt(variance(valid, ddof)));
                       }});
    }
    all.push_back({{Kind::median, 1, real, {}}, of_valid([](auto valid) {
                       std::sort(valid.begin(), valid.end());
                       auto const middle = valid.size() / 2;
                       return number(
                           valid.size() % 2 == 1 ? valid[middle] : (valid[middle - 1] + valid[middle]) / 2);
                   })});
    all.push_back({{Kind::quantile, 1, real, {0.25, std::string{"lower"}}}, of_valid([](auto valid) {
                       std::sort(valid.begin(), valid.end());
                       return number(
                           valid[static_cast<std::size_t>(0.25 * static_cast<double>(valid.size() - 1))]);
                   })});
    all.push_back({{Kind::first, 1, int64_type(), {}}, [](Values const& values) {
                       return values.empty() ? "null" : cell_text(values.front());
                   }});
    all.push_back({{Kind::last, 1, int64_type(), {}}, [](Values const& values) {
                       return values.empty() ? "null" : cell_text(values.back());
                   }});
    return all;
}

class GroupTest : public OperatorTest {
  protected:
    // Groups of column 0, in the order of their first rows.
    [[nodiscard]] Rows group(
        std::vector<Expectation> const& what, Integers const& keys, Integers const& values, bool in_order) {
        compute::Group sink;
        std::vector<DataType> types{int64_type()};
        sink.keys = {0};
        sink.in_order = in_order;
        for (auto const& each : what) {
            sink.aggregates.push_back(each.aggregate);
            types.push_back(each.aggregate.type);
        }
        return run({from_input(0, sink, types)}, {TableBuilder{}.add(keys).add(values).build()});
    }

    [[nodiscard]] static Rows expected(
        std::vector<Expectation> const& what, Integers const& keys, Integers const& values) {
        std::vector<std::optional<std::int64_t>> order;
        std::map<std::optional<std::int64_t>, Values> groups;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if (groups.find(keys[i]) == groups.end()) {
                order.push_back(keys[i]);
            }
            groups[keys[i]].push_back(values[i]);
        }
        Rows rows;
        for (auto const& key : order) {
            std::vector<std::string> row{cell_text(key)};
            for (auto const& each : what) {
                row.push_back(each.of(groups[key]));
            }
            rows.push_back(std::move(row));
        }
        return rows;
    }

    [[nodiscard]] Rows aggregate_all(std::vector<Expectation> const& what, Integers const& values) {
        compute::Group sink;
        std::vector<DataType> types;
        for (auto const& each : what) {
            sink.aggregates.push_back(each.aggregate);
            types.push_back(each.aggregate.type);
        }
        return run(
            {from_input(0, sink, types)},
            {TableBuilder{}.add(row_numbers(values.size())).add(values).build()});
    }
};

TEST_F(GroupTest, AggregatesThatChunksAreMergedBy) {
    for (std::int64_t const groups : {1, 5, 1000}) {
        SCOPED_TRACE(groups);
        auto const keys = some_integers(200, groups, 7, 1);
        auto const values = some_integers(200, 50, 3, 2);
        EXPECT_EQ(
            sorted(group(mergeable(), keys, values, false)), sorted(expected(mergeable(), keys, values)));
        EXPECT_EQ(group(mergeable(), keys, values, true), expected(mergeable(), keys, values));
    }
}

TEST_F(GroupTest, AggregatesThatNeedAllRows) {
    for (std::int64_t const groups : {1, 5, 1000}) {
        SCOPED_TRACE(groups);
        auto const keys = some_integers(200, groups, 7, 3);
        auto const values = some_integers(200, 50, 3, 4);
        EXPECT_EQ(sorted(group(one_shot(), keys, values, false)), sorted(expected(one_shot(), keys, values)));
        EXPECT_EQ(group(one_shot(), keys, values, true), expected(one_shot(), keys, values));
    }
}

TEST_F(GroupTest, WithoutKeysThereIsOneRow) {
    for (std::size_t const rows : {0, 1, 2, 100}) {
        SCOPED_TRACE(rows);
        auto const values = some_integers(rows, 50, 3, 5);
        for (auto const& what : {mergeable(), one_shot()}) {
            std::vector<std::string> row;
            for (auto const& each : what) {
                row.push_back(each.of(values));
            }
            EXPECT_EQ(aggregate_all(what, values), Rows{row});
        }
    }
}

TEST_F(GroupTest, WithoutKeysAndValidValuesThereIsOneRow) {
    Integers const values(20);
    std::vector<std::string> row;
    for (auto const& each : one_shot()) {
        row.push_back(each.of(values));
    }
    EXPECT_EQ(aggregate_all(one_shot(), values), Rows{row});
}

TEST_F(GroupTest, NoRowsAreNoGroups) {
    EXPECT_TRUE(group(mergeable(), {}, {}, false).empty());
    EXPECT_TRUE(group(one_shot(), {}, {}, true).empty());
}

TEST_F(GroupTest, KeysAloneAreTheirDistinctValues) {
    auto const keys = some_integers(100, 9, 4, 6);
    EXPECT_EQ(sorted(group({}, keys, keys, false)), sorted(expected({}, keys, keys)));
}

// A million rows in chunks of 150,000.
class LargeGroupTest : public GroupTest {
  protected:
    void check(Integers const& keys) {
        compute::RuntimeSettings settings;
        settings.threads = 3;
        settings.chunk_rows = 150'000;
        runtime_ = std::make_unique<compute::Runtime>(BufferResource::make(), settings);
        auto const values = some_integers(rows, 1000, 10, 8);
        compute::Group sink;
        sink.keys = {0};
        std::vector<DataType> types{int64_type()};
        for (auto const& each : mergeable()) {
            sink.aggregates.push_back(each.aggregate);
            types.push_back(each.aggregate.type);
        }
        compute::Program program;
        program.pipelines = {from_input(0, sink, types)};
        auto const table = TableBuilder{}.add(keys).add(values).build();
        auto const result = runtime_->run(program, {reader_of(table, 150'000)});
        EXPECT_EQ(sorted(rows_of(*result)), sorted(expected(mergeable(), keys, values)));
        ASSERT_EQ(result->pipelines().size(), 1U);
        EXPECT_EQ(result->pipelines()[0].rows_in, static_cast<std::int64_t>(rows));
        EXPECT_GE(result->pipelines()[0].chunks, 6);
    }

    // Groups of one to seven rows, which cross the borders of chunks.
    [[nodiscard]] static Integers in_order() {
        Integers keys;
        for (std::int64_t key = -1000; keys.size() < rows; ++key) {
            keys.insert(keys.end(), static_cast<std::size_t>(1 + (key & 0xFF) % 7), key);
        }
        keys.resize(rows);
        return keys;
    }

    static constexpr std::size_t rows{1'000'000};
};

// Enough groups for the sink to see that chunks do not shrink, and to go on without aggregating each.
TEST_F(LargeGroupTest, ManyGroups) {
    check(some_integers(rows, 400'000, 0, 7));
}

TEST_F(LargeGroupTest, KeysInOrder) {
    check(in_order());
}

TEST_F(LargeGroupTest, KeysInOrderButForOne) {
    auto keys = in_order();
    keys[rows / 2] = keys.front();
    check(keys);
}

TEST_F(LargeGroupTest, KeysInOrderWithNulls) {
    auto keys = in_order();
    keys[0] = std::nullopt;
    keys[rows - 1] = std::nullopt;
    check(keys);
}

TEST_F(LargeGroupTest, KeysInReverse) {
    auto keys = in_order();
    std::ranges::reverse(keys);
    check(keys);
}

// Keys of a few bytes are packed into integers, if none of a chunk is longer: strings that differ in how many zeros they end with,
// in bytes above 127 or in being null are not the same.
TEST_F(LargeGroupTest, ShortTexts) {
    using namespace std::string_literals;
    Texts const some{
        ""s,
        "\0"s,
        "\0\0"s,
        "a"s,
        "a\0"s,
        "b"s,
        "\xff"s,
        "seven b"s,
        "ä"s,
        "1234567"s,
        "\xff\xff\xff\xff\xff\xff\xff"s,
        std::nullopt};
    for (auto const& longer :
         {Texts{}, Texts{"eight by"s}, Texts{"a text that is longer than any integer"s}}) {
        auto cells = some;
        cells.insert(cells.end(), longer.begin(), longer.end());
        auto const firsts = some_integers(rows, static_cast<std::int64_t>(cells.size()), 0, 3);
        auto const seconds = some_integers(rows, 5, 0, 4);
        Texts keys;
        Texts others;
        std::map<std::vector<std::string>, std::int64_t> counts;
        for (std::size_t i = 0; i < rows; ++i) {
            // The longer one is in the second chunk alone.
            auto const place = static_cast<std::size_t>(*firsts[i]);
            keys.push_back(place >= some.size() && i / 150'000 != 1 ? "b"s : cells[place]);
            others.push_back(cells[static_cast<std::size_t>(*seconds[i])]);
            ++counts[{keys.back().value_or("null"), others.back().value_or("null")}];
        }
        compute::RuntimeSettings settings;
        settings.chunk_rows = 150'000;
        runtime_ = std::make_unique<compute::Runtime>(BufferResource::make(), settings);
        compute::Group sink;
        sink.keys = {0, 1};
        sink.aggregates = {{Kind::count_all, 0, int64_type(), {}}};
        compute::Program program;
        program.pipelines = {from_input(0, sink, {text_type(), text_type(), int64_type()})};
        auto const table = TableBuilder{}.add(keys).add(others).build();
        auto const result = runtime_->run(program, {reader_of(table, 150'000)});
        Rows expected;
        for (auto const& [key, count] : counts) {
            expected.push_back({key[0], key[1], std::to_string(count)});
        }
        EXPECT_EQ(sorted(rows_of(*result)), sorted(expected));
    }
}

TEST_F(GroupTest, NansAreOneGroupAndSoAreZeros) {
    Reals const keys{0.0, -0.0, std::nan(""), -std::nan("7"), 1.5, std::nullopt, 0.0, -0.0};
    compute::Group sink;
    sink.keys = {0};
    sink.aggregates = {{Kind::count_all, 0, int64_type(), {}}};
    auto const rows =
        run({from_input(0, sink, {float64_type(), int64_type()})}, {TableBuilder{}.add(keys).build()});
    EXPECT_EQ(sorted(rows), (Rows{{"0", "4"}, {"1.5", "1"}, {"nan", "2"}, {"null", "1"}}));
}

TEST_F(GroupTest, DecimalsAreSummedExactly) {
    constexpr auto large = std::numeric_limits<std::int64_t>::max() / 3;
    compute::Group sink;
    sink.keys = {0};
    sink.aggregates = {
        {Kind::sum, 1, decimal_type(), {}},
        {Kind::mean, 1, float64_type(), {}},
        {Kind::max, 1, decimal_type(), {}}};
    auto const rows =
        run({from_input(0, sink, {int64_type(), decimal_type(), float64_type(), decimal_type()})},
            {TableBuilder{}
                 .add(Integers{1, 1, 2, 2, 2})
                 .add_decimals({large, large, 150, std::nullopt, -50})
                 .build()});
    EXPECT_EQ(
        sorted(rows),
        (Rows{
            {"1", std::to_string(2 * large), number(static_cast<double>(large) / 100), std::to_string(large)},
            {"2", "100", "0.5", "150"}}));
}

TEST_F(GroupTest, TextsHaveExtremesAndAreKeys) {
    auto const cells = some_integers(60, 6, 5, 9);
    compute::Group sink;
    sink.keys = {0};
    sink.aggregates = {
        {Kind::min, 0, text_type(), {}},
        {Kind::any, 0, text_type(), {}},
        {Kind::count_all, 0, int64_type(), {}}};
    auto const rows =
        run({from_input(0, sink, {text_type(), text_type(), text_type(), int64_type()})},
            {TableBuilder{}.add(as_texts(cells), "vu").build()});
    std::map<std::string, std::int64_t> counts;
    for (auto const& cell : as_texts(cells)) {
        ++counts[cell.value_or("null")];
    }
    Rows expected;
    for (auto const& [key, count] : counts) {
        expected.push_back({key, key, key, std::to_string(count)});
    }
    EXPECT_EQ(sorted(rows), sorted(expected));
}

}  // namespace
}  // namespace rapidsmpf::testing
