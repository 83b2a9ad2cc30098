#include "table/host/hash.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "random_table_support.hpp"

namespace rapidsmpf {
namespace {

using testing::fixed_table;

std::vector<std::uint64_t> hashes(Table const& table, std::uint64_t seed = 0) {
    std::vector<int> keys;
    for (std::size_t i = 0; i < table.num_columns(); ++i) {
        keys.push_back(static_cast<int>(i));
    }
    std::vector<std::uint64_t> result(static_cast<std::size_t>(table.num_rows()));
    hash_rows(table, keys, 0, result, seed);
    return result;
}

template <typename T>
std::size_t num_distinct(std::string format, std::vector<T> const& values) {
    auto const found = hashes(fixed_table(std::move(format), values));
    return std::set<std::uint64_t>{found.begin(), found.end()}.size();
}

// Pinned: ranks of different builds, and the GPU, must agree.
TEST(Hash, is_what_it_was) {
    EXPECT_EQ(hash::finish(hash::combine(hash::start(0), 42)), hashes(testing::int64_table({42}))[0]);
    EXPECT_EQ(hash::finish(hash::combine(hash::start(0), 42)), 15012389273885437661ULL);
    EXPECT_EQ(
        hash::bytes_word(reinterpret_cast<std::uint8_t const*>("The quick brown fox jumps"), 25),
        15785677039248273262ULL);
}

TEST(Hash, zeros_are_equal) {
    EXPECT_EQ(num_distinct<double>("g", {0.0, -0.0}), 1U);
    EXPECT_EQ(num_distinct<float>("f", {0.0F, -0.0F}), 1U);
    EXPECT_EQ(num_distinct<std::uint16_t>("e", {0x0000, 0x8000}), 1U);
}

TEST(Hash, nans_are_equal_and_differ_from_infinity) {
    auto const nan = std::numeric_limits<double>::quiet_NaN();
    auto const infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(num_distinct<double>("g", {nan, -nan, std::nan("17"), infinity, -infinity}), 3U);
    auto const float_nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(num_distinct<float>("f", {float_nan, -float_nan, std::nanf("17")}), 1U);
    EXPECT_EQ(num_distinct<std::uint16_t>("e", {0x7e00, 0xfe01, 0x7c01, 0x7c00}), 2U);
}

TEST(Hash, nulls_are_equal_whatever_lies_below_them) {
    auto const found = hashes(fixed_table<std::int64_t>("l", {1, 2, 3}, {false, true, false}));
    EXPECT_EQ(found[0], found[2]);
    EXPECT_NE(found[0], found[1]);
}

TEST(Hash, text_hashes_by_its_bytes_whatever_its_layout) {
    std::vector<char const*> const texts{
        "",
        "a",
        "ab",
        "abc",
        "abcd",
        "abcde",
        "abcdefg",
        "abcdefgh",
        "abcdefghi",
        "abcdefghijkl",
        "abcdefghijklm",
        "abcdefghijklmnop",
        "abcdefghijklmnopq",
        "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
        nullptr};
    auto const views = hashes(testing::text_table(texts, "vu"));
    EXPECT_EQ(views, hashes(testing::text_table(texts, "u")));
    EXPECT_EQ(views, hashes(testing::text_table(texts, "U")));
    EXPECT_EQ((std::set<std::uint64_t>{views.begin(), views.end()}.size()), texts.size());
}

TEST(Hash, text_with_zeros_at_its_end_is_another_text) {
    auto const bytes = [](char const* text, std::size_t size) {
        return hash::bytes_word(reinterpret_cast<std::uint8_t const*>(text), size);
    };
    EXPECT_NE(bytes("a\0\0", 1), bytes("a\0\0", 2));
    EXPECT_NE(bytes("a\0\0", 2), bytes("a\0\0", 3));
}

TEST(Hash, categories_hash_by_value_whatever_their_codes) {
    auto const found = hashes(testing::categorical_table({0, 1, 2, -1, 1}, {0, 1, 2}));
    EXPECT_EQ(found, hashes(testing::categorical_table({0, 1, 2, -1, 1}, {2, 0, 1})));
    EXPECT_EQ(found, hashes(testing::text_table({"c0", "c1", "c2", nullptr, "c1"})));
    std::vector<int> many(500);
    for (int i = 0; i < 500; ++i) {
        many[static_cast<std::size_t>(i)] = i;
    }
    // A dictionary longer than the table is looked at row by row.
    EXPECT_EQ(found, hashes(testing::categorical_table({0, 1, 2, -1, 1}, many)));
}

TEST(Hash, depends_on_the_order_of_columns_and_on_the_seed) {
    auto const table = testing::int64_table({1, 2});
    Table const ab{
        std::make_shared<Schema const>(std::vector{Field{"a", "l"}, Field{"b", "l"}}),
        {table.slice(0, 1).columns()[0], table.slice(1, 1).columns()[0]},
        1,
        table.owner()};
    std::vector<std::uint64_t> forward(1);
    std::vector<std::uint64_t> backward(1);
    hash_rows(ab, std::vector{0, 1}, 0, forward);
    hash_rows(ab, std::vector{1, 0}, 0, backward);
    EXPECT_NE(forward, backward);
    EXPECT_NE(hashes(table, 1), hashes(table, 2));
}

// What says whether two rows are the same says whether they hash alike: for every type, nested ones too.
TEST(Hash, is_the_same_for_the_same_rows_of_any_type) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        testing::RandomTables random{seed};
        auto const table = random.table(random.schema(3), 60);
        auto const all = hashes(table);
        auto const begin = random.number(0, 60);
        auto const slice = table.slice(begin, 60 - begin);
        EXPECT_EQ(hashes(slice), (std::vector(all.begin() + begin, all.end()))) << seed;
    }
}

TEST(Hash, spreads_consecutive_numbers_evenly) {
    std::vector<std::int64_t> values(100'000);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<std::int64_t>(i);
    }
    std::vector<int> counts(16, 0);
    for (auto const value : hashes(testing::int64_table(values))) {
        ++counts[hash::partition_of(value, 16)];
    }
    // 6250 expected, standard deviation 76.5: six of them.
    for (auto const count : counts) {
        EXPECT_NEAR(count, 6250, 460);
    }
}

TEST(Hash, has_no_collisions_among_multiples_and_powers) {
    std::vector<std::int64_t> values;
    for (int shift = 0; shift < 40; ++shift) {
        for (std::int64_t i = 1; i < 1000; i += 2) {
            values.push_back(i << shift);
        }
    }
    EXPECT_EQ(num_distinct<std::int64_t>("l", values), values.size());
}

TEST(Hash, names_a_key_column_that_is_not_there) {
    auto const table = testing::int64_table({1});
    std::vector<std::uint64_t> result(1);
    EXPECT_THROW(hash_rows(table, std::vector{1}, 0, result), std::out_of_range);
    EXPECT_THROW(hash_rows(table, std::vector{-1}, 0, result), std::out_of_range);
    EXPECT_THROW(hash_rows(table, std::vector{0}, 1, result), std::out_of_range);
}

}  // namespace
}  // namespace rapidsmpf
