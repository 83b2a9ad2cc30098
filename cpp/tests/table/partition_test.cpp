#include <rapidsmpf/table/partition.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/detail/partition_order_hint.hpp>

#include "about_the_cpu.hpp"
#include "random_table_support.hpp"
#include "table/host/hash.hpp"

namespace rapidsmpf {
namespace {

using testing::int64_table;
using testing::RandomTables;
using testing::row_texts;

// A value of several words.
template <std::size_t words>
struct Wide {
    Wide() = default;
    explicit Wide(std::uint64_t value) { std::iota(all.begin(), all.end(), value); }
    std::array<std::uint64_t, words> all{};
};

// Columns of 8, 4, 2, 1, 16 and 32 bytes.
Table fixed_width_table(std::int64_t rows, std::uint64_t begin) {
    auto const memory = std::make_shared<testing::Memory>();
    std::vector<Field> fields;
    std::vector<Column> columns;
    auto const add = [&]<typename T>(char const* format, T) {
        std::vector<T> values(static_cast<std::size_t>(rows));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<T>((begin + i) * 0x9E3779B97F4A7C15U >> 7U);
        }
        Column column;
        column.length = rows;
        column.values = reinterpret_cast<std::byte const*>(memory->copy(values));
        fields.emplace_back("c" + std::to_string(fields.size()), format);
        columns.push_back(std::move(column));
    };
    add("l", std::int64_t{});
    add("i", std::int32_t{});
    add("s", std::int16_t{});
    add("c", std::int8_t{});
    add("d:38,2", Wide<2>{});
    add("w:32", Wide<4>{});
    return Table{std::make_shared<Schema const>(std::move(fields)), std::move(columns), rows, memory};
}

bool same_fixed_row(Table const& a, std::int64_t row_a, Table const& b, std::int64_t row_b) {
    for (std::size_t c = 0; c < a.num_columns(); ++c) {
        auto const width = a.schema()->fields()[c].width();
        auto const at = [&](Table const& table, std::int64_t row) {
            return table.columns()[c].values + (table.columns()[c].offset + row) * width;
        };
        if (std::memcmp(at(a, row_a), at(b, row_b), static_cast<std::size_t>(width)) != 0) {
            return false;
        }
    }
    return true;
}

class Partition : public ::testing::Test {
  protected:
    // The rows of `table` by partition, in their order, by the slow and obvious way.
    static std::vector<std::vector<std::string>> expected(
        Table const& table, std::span<std::uint32_t const> partitions, std::size_t count) {
        std::vector<std::vector<std::string>> rows(count);
        auto const texts = row_texts(table);
        for (std::size_t i = 0; i < texts.size(); ++i) {
            rows[partitions[i]].push_back(texts[i]);
        }
        return rows;
    }
    static std::vector<std::vector<std::string>> unpacked(std::vector<PackedData>&& parts) {
        std::vector<std::vector<std::string>> rows;
        for (auto& part : parts) {
            rows.push_back(row_texts(unpack(std::move(part), ValidateData::full)));
        }
        return rows;
    }
    std::shared_ptr<BufferResource> br_{BufferResource::make()};
};

TEST_F(Partition, rows_of_every_type_go_where_their_hash_says_in_order) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.schema(5), random.number(0, 400));
        auto const count = static_cast<int>(random.number(1, 20));
        std::vector<int> const keys{0, 3};
        auto const ids = hash_partition_ids(table, keys, count, seed);
        auto parts = partition_and_pack(table, keys, count, *br_, seed);
        ASSERT_EQ(unpacked(std::move(parts)), expected(table, ids, static_cast<std::size_t>(count))) << seed;
    }
}

// Large enough to be written past the caches.
TEST_F(Partition, large_tables_of_fixed_width) {
    constexpr std::int64_t rows = 150'000;
    auto const table = fixed_width_table(rows, 0);
    std::vector<int> const keys{0};
    for (int const count : {1, 7, 300}) {
        auto const ids = hash_partition_ids(table, keys, count);
        auto parts = partition_and_pack(table, keys, count, *br_);
        std::vector<Table> tables;
        for (auto& part : parts) {
            tables.push_back(unpack(std::move(part)));
        }
        std::vector<std::int64_t> next(static_cast<std::size_t>(count), 0);
        for (std::int64_t row = 0; row < rows; ++row) {
            auto const p = ids[static_cast<std::size_t>(row)];
            ASSERT_TRUE(same_fixed_row(tables[p], next[p]++, table, row)) << "row " << row;
        }
        for (std::size_t p = 0; p < tables.size(); ++p) {
            ASSERT_EQ(next[p], tables[p].num_rows());
        }
    }
}

TEST_F(Partition, more_blocks_than_one_and_more_partitions_than_rows) {
    RandomTables random{99};
    auto const schema = std::make_shared<Schema const>(std::vector{
        Field{"a", "l"}, Field{"b", "b"}, Field{"t", "vu"}, Field{"l", "+L", 2, {Field{"item", "u"}}},
        Field{"c", "I", 2, {}, std::make_shared<Field const>("", "vu")}});
    auto const table = random.table(schema, 20'000);
    std::vector<int> const keys{0, 2};
    for (int const count : {1, 3, 64, 1000, 40'000}) {
        auto const ids = hash_partition_ids(table, keys, count);
        ASSERT_EQ(
            unpacked(partition_and_pack(table, keys, count, *br_)),
            expected(table, ids, static_cast<std::size_t>(count)))
            << count;
    }
}

TEST_F(Partition, without_keys_all_rows_stay_together) {
    auto const parts = unpacked(partition_and_pack(int64_table({1, 2, 3}), {}, 4, *br_));
    auto const sizes =
        std::count_if(parts.begin(), parts.end(), [](auto const& rows) { return !rows.empty(); });
    EXPECT_EQ(sizes, 1);
}

void expect_order(std::vector<PackedData> const& parts, std::vector<std::uint32_t> const& order) {
    for (std::size_t i = 1; i < order.size(); ++i) {
        auto const& before = *parts[order[i - 1]].data;
        EXPECT_EQ(parts[order[i]].data->data(), before.data() + before.size());
    }
}

TEST_F(Partition, lies_in_memory_in_the_order_asked_for) {
    std::vector<std::int64_t> values(1000);
    std::iota(values.begin(), values.end(), 0);
    std::vector<std::uint32_t> const placement{1, 3, 0, 2};
    auto const cut = [&](std::span<std::uint32_t const> asked_for) {
        return partition_and_pack(int64_table(values), std::vector{0}, 4, *br_, 0, asked_for);
    };
    expect_order(cut(placement), placement);
    {
        auto const advised = br_->partition_order_hint().advise({3, 2, 1, 0});
        expect_order(cut({}), *advised);
        expect_order(cut(placement), placement);
        auto const other = br_->partition_order_hint().advise({2, 0, 1});  // for three parts
        expect_order(cut({}), *advised);
    }
    expect_order(cut({}), {0, 1, 2, 3});
    std::vector<std::uint32_t> const wrong{0, 0, 1, 2};
    EXPECT_THROW(
        static_cast<void>(partition_and_pack(int64_table(values), std::vector{0}, 4, *br_, 0, wrong)),
        std::invalid_argument);
}

TEST_F(Partition, memory_is_accounted_part_by_part) {
    RAPIDSMPF_ABOUT_THE_CPU();
    std::vector<std::int64_t> values(100'000);
    std::iota(values.begin(), values.end(), 0);
    auto parts = partition_and_pack(int64_table(values), std::vector{0}, 8, *br_);
    std::size_t total{0};
    for (auto const& part : parts) {
        total += part.data->size();
    }
    EXPECT_EQ(br_->memory_used(MemoryType::DEVICE), static_cast<std::int64_t>(total));
    EXPECT_EQ(br_->memory_reserved(MemoryType::DEVICE), 0);
    parts.clear();
    EXPECT_EQ(br_->memory_used(MemoryType::DEVICE), 0);
}

TEST_F(Partition, a_part_outlives_its_neighbours) {
    std::vector<std::int64_t> values(100'000);
    std::iota(values.begin(), values.end(), 0);
    auto const ids = hash_partition_ids(int64_table(values), std::vector{0}, 8);
    auto parts = partition_and_pack(int64_table(values), std::vector{0}, 8, *br_);
    parts.erase(parts.begin(), parts.begin() + 3);
    parts.erase(parts.begin() + 1, parts.end());
    EXPECT_EQ(unpacked(std::move(parts))[0], expected(int64_table(values), ids, 8)[3]);
}

TEST_F(Partition, refuses_keys_and_counts_that_are_not_there) {
    auto const table = int64_table({1});
    EXPECT_THROW(static_cast<void>(partition_and_pack(table, std::vector{1}, 2, *br_)), std::out_of_range);
    EXPECT_THROW(static_cast<void>(partition_and_pack(table, std::vector{-1}, 2, *br_)), std::out_of_range);
    EXPECT_THROW(
        static_cast<void>(partition_and_pack(table, std::vector{0}, 0, *br_)), std::invalid_argument);
}

TEST_F(Partition, by_column_follows_it_and_leaves_it_out) {
    RandomTables random{4};
    auto const other = random.table(random.schema(2), 5);
    auto const ids = testing::fixed_table<std::uint32_t>("I", {2, 0, 2, 1, 0});
    std::vector<Field> fields{
        other.schema()->fields()[0], ids.schema()->fields()[0], other.schema()->fields()[1]};
    Table const table{
        std::make_shared<Schema const>(fields),
        {other.columns()[0], ids.columns()[0], other.columns()[1]},
        5,
        std::make_shared<std::pair<Table, Table>>(other, ids)};
    EXPECT_EQ(
        unpacked(partition_by_column_and_pack(table, 1, 3, *br_)),
        expected(other, std::vector<std::uint32_t>{2, 0, 2, 1, 0}, 3));
}

TEST_F(Partition, by_column_refuses_wrong_numbers_types_and_nulls) {
    auto const ids = testing::fixed_table<std::uint32_t>("I", {2, 0});
    EXPECT_THROW(static_cast<void>(partition_by_column_and_pack(ids, 0, 2, *br_)), std::out_of_range);
    EXPECT_THROW(static_cast<void>(partition_by_column_and_pack(ids, 1, 3, *br_)), std::out_of_range);
    auto const signed_ids = testing::fixed_table<std::int32_t>("i", {0, 1});
    EXPECT_THROW(
        static_cast<void>(partition_by_column_and_pack(signed_ids, 0, 2, *br_)), std::invalid_argument);
    auto const null_ids = testing::fixed_table<std::uint32_t>("I", {0, 1}, {true, false});
    EXPECT_THROW(
        static_cast<void>(partition_by_column_and_pack(null_ids, 0, 2, *br_)), std::invalid_argument);
}

TEST_F(Partition, splits_cut_at_rows) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.schema(4), 100);
        std::vector<std::int64_t> splits{random.number(0, 100), random.number(0, 100), random.number(0, 100)};
        std::sort(splits.begin(), splits.end());
        auto const parts = unpacked(split_and_pack(table, splits, *br_));
        ASSERT_EQ(parts.size(), 4U);
        auto const texts = row_texts(table);
        ASSERT_EQ(parts[1], (std::vector(texts.begin() + splits[0], texts.begin() + splits[1]))) << seed;
        ASSERT_EQ(parts[3], (std::vector(texts.begin() + splits[2], texts.end()))) << seed;
    }
}

TEST_F(Partition, splits_out_of_range_or_order_throw) {
    auto const table = int64_table({1, 2, 3});
    for (auto const& splits : {std::vector<std::int64_t>{4}, {-1}, {2, 1}}) {
        EXPECT_THROW(static_cast<void>(split_and_pack(table, splits, *br_)), std::out_of_range);
    }
    EXPECT_EQ(split_and_pack(table, {}, *br_).size(), 1U);
}

// Sets where the values of the last column are said to be, with a checksum that is right.
void rewrite_last_column(std::vector<std::uint8_t>& metadata, std::uint64_t offset, std::uint64_t size) {
    constexpr std::size_t crc_at = 16;
    std::memcpy(metadata.data() + metadata.size() - 16, &offset, 8);
    std::memcpy(metadata.data() + metadata.size() - 8, &size, 8);
    auto const bytes = std::span<std::uint8_t const>{metadata};
    auto const crc = crc32c(bytes.subspan(crc_at + 4), crc32c(bytes.first(crc_at)));
    std::memcpy(metadata.data() + crc_at, &crc, sizeof(crc));
}

class Concat : public Partition {
  protected:
    Table concat_packed(std::vector<Table> const& tables) {
        std::vector<PackedData> parts;
        for (auto const& table : tables) {
            parts.push_back(pack(table, *br_));
        }
        return unpack_and_concat(std::move(parts), *br_, ValidateData::full);
    }
};

TEST_F(Concat, puts_rows_of_every_type_one_after_the_other) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        RandomTables random{seed};
        auto const schema = random.schema(5);
        std::vector<Table> tables;
        std::vector<std::string> rows;
        for (auto left = random.number(1, 6); left > 0; --left) {
            // Codes of one byte number few values, so keep the dictionaries' sum small.
            tables.push_back(random.table(schema, random.number(0, 40)));
            auto const texts = row_texts(tables.back());
            rows.insert(rows.end(), texts.begin(), texts.end());
        }
        try {
            ASSERT_EQ(row_texts(concat_packed(tables)), rows) << seed;
            ASSERT_EQ(row_texts(concat(tables, *br_)), rows) << seed;
        } catch (std::invalid_argument const& error) {
            ASSERT_NE(std::string{error.what()}.find("codes of 1 bytes"), std::string::npos) << error.what();
        }
    }
}

TEST_F(Concat, partitions_of_several_tables_hold_all_rows) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        RandomTables random{seed};
        auto const schema = random.schema(4);
        std::vector<PackedData> shuffled[3];
        std::vector<std::string> rows;
        for (int i = 0; i < 3; ++i) {
            auto const table = random.table(schema, random.number(0, 30));
            auto const texts = row_texts(table);
            rows.insert(rows.end(), texts.begin(), texts.end());
            auto parts = partition_and_pack(table, std::vector{1}, 3, *br_);
            for (std::size_t p = 0; p < 3; ++p) {
                shuffled[p].push_back(std::move(parts[p]));
            }
        }
        std::vector<std::string> found;
        try {
            for (auto& parts : shuffled) {
                auto const texts = row_texts(unpack_and_concat(std::move(parts), *br_, ValidateData::full));
                found.insert(found.end(), texts.begin(), texts.end());
            }
        } catch (std::invalid_argument const& error) {
            ASSERT_NE(std::string{error.what()}.find("codes of 1 bytes"), std::string::npos) << error.what();
            continue;
        }
        std::sort(rows.begin(), rows.end());
        std::sort(found.begin(), found.end());
        ASSERT_EQ(found, rows) << seed;
    }
}

// Many parts, small and large, some without rows; plain copies concatenate them.
TEST_F(Concat, many_parts_of_fixed_width) {
    std::vector<PackedData> parts;
    std::int64_t rows = 0;
    for (std::int64_t const count : {3, 0, 1, 5'000, 64, 0, 20'000, 7}) {
        parts.push_back(pack(fixed_width_table(count, static_cast<std::uint64_t>(rows)), *br_));
        rows += count;
    }
    auto const expected = fixed_width_table(rows, 0);
    auto const table = unpack_and_concat(std::move(parts), *br_);
    ASSERT_EQ(table.num_rows(), rows);
    for (std::int64_t row = 0; row < rows; ++row) {
        ASSERT_TRUE(same_fixed_row(table, row, expected, row)) << "row " << row;
    }
    // What comes out is a table like any other.
    EXPECT_EQ(row_texts(unpack(pack(table.slice(0, 5), *br_))), row_texts(expected.slice(0, 5)));
}

TEST_F(Concat, a_malformed_part_of_fixed_width_is_refused) {
    // Of the second part: its only column begins and ends elsewhere than it must.
    for (auto const& [offset, size] :
         {std::pair{std::uint64_t{64}, std::uint64_t{16}}, std::pair{std::uint64_t{8}, std::uint64_t{16}},
          std::pair{std::uint64_t{0}, std::uint64_t{8}}, std::pair{~std::uint64_t{63}, std::uint64_t{16}}}) {
        std::vector<PackedData> parts;
        parts.push_back(pack(int64_table({1, 2}), *br_));
        parts.push_back(pack(int64_table({3, 4}), *br_));
        rewrite_last_column(parts[1].metadata, offset, size);
        EXPECT_THROW(static_cast<void>(unpack_and_concat(std::move(parts), *br_)), FormatError)
            << offset << ", " << size;
    }
    std::vector<PackedData> parts;
    parts.push_back(pack(int64_table({1, 2}), *br_));
    parts.push_back(pack(int64_table({3, 4}), *br_));
    rewrite_last_column(parts[1].metadata, 0, 16);  // as it is: what is refused is not the rewriting
    EXPECT_EQ(unpack_and_concat(std::move(parts), *br_).num_rows(), 4);
}

TEST_F(Concat, one_part_with_rows_is_not_copied) {
    std::vector<PackedData> parts;
    parts.push_back(pack(int64_table({}), *br_));
    parts.push_back(pack(int64_table({1, 2}), *br_));
    auto const* const data = parts[1].data->data();
    auto const table = unpack_and_concat(std::move(parts), *br_);
    EXPECT_EQ(table.columns()[0].values, data);
    EXPECT_TRUE(parts.empty());
}

TEST_F(Concat, empty_parts_are_ignored_and_parts_without_rows_give_the_schema) {
    std::vector<PackedData> parts;
    parts.emplace_back(std::vector<std::uint8_t>{}, br_->allocate(MemoryType::HOST, 0));
    parts.push_back(pack(int64_table({}, "only"), *br_));
    auto const table = unpack_and_concat(std::move(parts), *br_);
    EXPECT_EQ(table.num_rows(), 0);
    EXPECT_EQ(table.schema()->fields()[0].name(), "only");
}

// More than the caches hold, out of pieces of a row and more: they are copied past the caches, and share lines.
TEST_F(Concat, many_pieces_of_a_large_table_come_together) {
    auto const whole = fixed_width_table(400'000, 7);
    std::vector<std::int64_t> splits;
    for (std::int64_t at = 0, rows = 1; at + rows < whole.num_rows(); rows = rows % 800 + 13) {
        splits.push_back(at += rows);
        splits.push_back(at += rows % 3);
    }
    auto parts = split_and_pack(whole, splits, *br_);
    EXPECT_EQ(parts.size(), splits.size() + 1);
    auto const joined = unpack_and_concat(std::move(parts), *br_);
    ASSERT_EQ(joined.num_rows(), whole.num_rows());
    for (std::size_t c = 0; c < whole.num_columns(); ++c) {
        auto const bytes = static_cast<std::size_t>(whole.num_rows() * whole.schema()->fields()[c].width());
        EXPECT_EQ(std::memcmp(joined.columns()[c].values, whole.columns()[c].values, bytes), 0) << c;
    }
}

TEST_F(Concat, without_a_schema_there_is_no_table) {
    EXPECT_THROW(static_cast<void>(unpack_and_concat({}, *br_)), std::invalid_argument);
}

TEST_F(Concat, names_the_column_that_differs) {
    try {
        static_cast<void>(concat_packed({int64_table({1}), testing::fixed_table<double>("g", {1.0})}));
        FAIL() << "no error";
    } catch (std::invalid_argument const& error) {
        EXPECT_NE(std::string{error.what()}.find("column 'x' is int64"), std::string::npos) << error.what();
    }
}

TEST_F(Concat, unifies_categories_that_ranks_number_differently) {
    auto const table = concat_packed(
        {testing::categorical_table({0, 1, -1}, {0, 1, 2}),
         testing::categorical_table({1, 3, 0}, {3, 1, 0})});
    EXPECT_EQ(row_texts(table), row_texts(testing::categorical_table({0, 1, -1, 1, 3, 0}, {0, 1, 2, 3})));
}

TEST_F(Concat, keeps_a_dictionary_that_is_the_same_everywhere) {
    auto const one = testing::categorical_table(
        {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, {0, 1, 2});
    EXPECT_EQ(concat_packed({one, one, one}).columns()[0].dictionary->length, 3);
}

TEST_F(Concat, refuses_more_categories_than_codes_can_number) {
    std::vector<int> first(200);
    std::vector<int> second(200);
    std::iota(first.begin(), first.end(), 0);
    std::iota(second.begin(), second.end(), 1000);
    EXPECT_THROW(
        static_cast<void>(concat_packed(
            {testing::categorical_table(first, first, 2, "C"),
             testing::categorical_table(second, second, 2, "C")})),
        std::invalid_argument);
    EXPECT_NO_THROW(
        static_cast<void>(concat_packed(
            {testing::categorical_table(first, first, 2, "S"),
             testing::categorical_table(second, second, 2, "S")})));
}

TEST_F(Concat, ordered_categories_join_only_when_their_order_can_hold) {
    auto const ordered = ARROW_FLAG_NULLABLE | ARROW_FLAG_DICTIONARY_ORDERED;
    auto const one = testing::categorical_table({0, 1}, {0, 1}, ordered);
    EXPECT_NO_THROW(
        static_cast<void>(concat_packed({one, testing::categorical_table({2}, {0, 1, 2}, ordered)})));
    EXPECT_THROW(
        static_cast<void>(concat_packed({one, testing::categorical_table({0}, {1, 0}, ordered)})),
        std::invalid_argument);
}

TEST_F(Concat, says_when_memory_is_short) {
    RAPIDSMPF_ABOUT_THE_CPU();
    BufferResource::Settings settings;
    settings.limits[0] = 1 << 20;
    settings.available[0] = [] { return std::int64_t{1} << 20; };
    auto const small = BufferResource::make(settings);
    std::vector<PackedData> parts;
    std::vector<std::int64_t> const values(100'000);
    parts.push_back(pack(int64_table(values), *br_));
    parts.push_back(pack(int64_table(values), *br_));
    EXPECT_THROW(static_cast<void>(unpack_and_concat(std::move(parts), *small)), ReservationError);
}

// What a small piece is does not depend on how it was made.
TEST_F(Partition, small_pieces_of_plain_columns_are_what_they_would_be_packed_alone) {
    for (int const count : {1, 2, 7, 8, 200}) {
        for (std::int64_t const rows : {0, 1, 30, 400, 1700}) {
            auto const whole = fixed_width_table(rows + 5, 77);
            auto const table = whole.slice(3, rows);
            std::vector<std::uint32_t> placement(static_cast<std::size_t>(count));
            std::iota(placement.rbegin(), placement.rend(), 0U);
            auto const numbers = hash_partition_ids(table, std::vector{0}, count);
            auto const parts = partition_and_pack(table, std::vector{0}, count, *br_, 0, placement);
            ASSERT_EQ(parts.size(), static_cast<std::size_t>(count));
            for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(count); ++p) {
                std::vector<Table> its_rows;
                for (std::int64_t row = 0; row < rows; ++row) {
                    if (numbers[static_cast<std::size_t>(row)] == p) {
                        its_rows.push_back(table.slice(row, 1));
                    }
                }
                its_rows.push_back(table.slice(0, 0));
                auto const expected = pack(concat(its_rows, *br_), *br_);
                EXPECT_EQ(parts[p].metadata, expected.metadata);
                auto const found = parts[p].data->host_bytes();
                auto const wanted = expected.data->host_bytes();
                ASSERT_EQ(found.size(), wanted.size());
                EXPECT_TRUE(std::equal(found.begin(), found.end(), wanted.begin()));
            }
        }
    }
}

}  // namespace
}  // namespace rapidsmpf
