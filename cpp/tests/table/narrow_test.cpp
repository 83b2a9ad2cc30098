#include <rapidsmpf/table/detail/narrow.hpp>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/partition.hpp>

#include "random_table_support.hpp"
#include "table/host/scatter.hpp"

namespace rapidsmpf {
namespace {

using testing::fixed_table;
using testing::RandomTables;
using testing::row_texts;
using testing::text_table;

class Narrow : public ::testing::Test {
  protected:
    [[nodiscard]] Table narrowed(Table const& table) const { return narrow({&table, 1}, *br_); }
    [[nodiscard]] Table back(Table const& table) const {
        return unpack(pack(table, *br_), ValidateData::full);
    }
    // Both ways, and what the rows took on the way.
    void expect_same_after(Table const& table, std::string const& format) const {
        auto const rows = narrowed(table);
        EXPECT_EQ(rows.schema()->fields()[0].format(), format);
        auto const again = back(rows);
        EXPECT_EQ(*again.schema(), *table.schema());
        EXPECT_EQ(row_texts(again), row_texts(table));
    }

    std::shared_ptr<BufferResource> br_{BufferResource::make()};
};

std::vector<std::string> texts_of(std::vector<Table> const& tables) {
    std::vector<std::string> all;
    for (auto const& table : tables) {
        auto const texts = row_texts(table);
        all.insert(all.end(), texts.begin(), texts.end());
    }
    return all;
}

// Numbers of all magnitudes, so that each width is chosen by some table.
template <typename T>
void fill_numbers(RandomTables& random, std::vector<T>& values, int bits) {
    auto const most_of = [](int some) {
        return some >= 63 ? std::numeric_limits<std::int64_t>::max() : (std::int64_t{1} << some) - 1;
    };
    auto const most = most_of(bits);
    for (auto& value : values) {
        auto const number = random.number(-most - 1, most);
        if constexpr (std::is_same_v<T, detail::Bytes16>) {
            auto high = number >> 63;
            if (bits > 63) {  // the number is the lower half
                high = random.number(-most_of(bits - 64) - 1, most_of(bits - 64));
            }
            value = {static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(high)};
        } else {
            value = static_cast<T>(number);
        }
    }
}

TEST_F(Narrow, TablesOfEveryTypeComeBack) {
    std::size_t narrow_ones = 0;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
        RandomTables random{seed};
        auto const schema = random.schema(6);
        std::vector<Table> tables;
        for (auto left = random.number(1, 4); left > 0; --left) {
            tables.push_back(random.table(schema, random.number(0, 120)));
        }
        Table rows{schema, Table::empty(schema).columns(), 0, nullptr};
        try {
            rows = narrow(tables, *br_);
        } catch (std::invalid_argument const& error) {  // dictionaries that are too large together
            EXPECT_THROW(static_cast<void>(concat(tables, *br_)), std::invalid_argument) << error.what();
            continue;
        }
        narrow_ones += rows.schema()->is_narrow() ? 1 : 0;
        auto packed = pack(rows, *br_);
        auto const info = packed_info(packed.metadata);
        ASSERT_EQ(info.form, rows.schema()->form());
        ASSERT_EQ(info.data_size, packed.data->size());
        ASSERT_GE(info.unpacked_size, info.data_size);
        auto const again = unpack(std::move(packed), ValidateData::full);
        ASSERT_EQ(*again.schema(), *schema) << seed;
        ASSERT_EQ(row_texts(again), texts_of(tables)) << seed;
    }
    EXPECT_GT(narrow_ones, 10U);
}

// Parts of one partition come from tables that are narrow each in its own way, or not at all.
TEST_F(Narrow, PartsOfDifferentWidthsAreConcatenated) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        RandomTables random{seed};
        std::vector<Field> fields;
        fields.emplace_back("long", "l");
        fields.emplace_back("decimal", "d:38,2");
        fields.emplace_back("text", "vu");
        fields.emplace_back("bytes", "vz");
        fields.emplace_back("date", "tdD");
        fields.emplace_back("float", "g");
        fields.emplace_back("flag", "b");
        auto const schema = std::make_shared<Schema const>(std::move(fields));
        constexpr int partitions = 3;
        std::vector<std::vector<PackedData>> parts(partitions);
        std::vector<std::vector<Table>> expected(partitions);
        for (auto left = random.number(1, 6); left > 0; --left) {
            auto table = random.table(schema, random.number(0, 90));
            auto columns = table.columns();
            std::vector<std::int64_t> longs(static_cast<std::size_t>(table.num_rows()));
            std::vector<detail::Bytes16> decimals(longs.size());
            fill_numbers(random, longs, static_cast<int>(random.number(1, 63)));
            fill_numbers(random, decimals, static_cast<int>(random.number(1, 127)));
            struct Owner {
                Table table;
                std::vector<std::int64_t> longs;
                std::vector<detail::Bytes16> decimals;
            };
            auto const owner = std::make_shared<Owner>(Owner{table, longs, decimals});
            for (auto const at : {0, 1}) {
                auto& column = columns[static_cast<std::size_t>(at)];
                column = Column{};
                column.length = table.num_rows();
            }
            columns[0].values = reinterpret_cast<std::byte const*>(owner->longs.data());
            columns[1].values = reinterpret_cast<std::byte const*>(owner->decimals.data());
            table = Table{schema, std::move(columns), table.num_rows(), owner};
            std::vector<std::uint32_t> numbers;
            for (std::int64_t row = 0; row < table.num_rows(); ++row) {
                numbers.push_back(static_cast<std::uint32_t>(random.number(0, partitions - 1)));
            }
            auto const rows = random.number(0, 3) == 0 ? table : narrowed(table);
            auto packed = partition_by_numbers_and_pack(rows, numbers, partitions, *br_);
            auto plain = partition_by_numbers_and_pack(table, numbers, partitions, *br_);
            for (std::size_t p = 0; p < partitions; ++p) {
                parts[p].push_back(std::move(packed[p]));
                expected[p].push_back(unpack(std::move(plain[p])));
            }
        }
        for (std::size_t p = 0; p < partitions; ++p) {
            auto const table = unpack_and_concat(std::move(parts[p]), *br_, ValidateData::full);
            ASSERT_EQ(*table.schema(), *schema) << seed;
            ASSERT_EQ(row_texts(table), texts_of(expected[p])) << seed;
        }
    }
}

TEST_F(Narrow, WidthsFollowFromTheValues) {
    std::int64_t const zero = 0;
    for (auto const bits : {7, 15, 31}) {
        auto const most = (std::int64_t{1} << bits) - 1;
        auto const format = bits == 7 ? "c" : bits == 15 ? "s" : "i";
        auto const next = [&](char const* own) { return bits == 7 ? "s" : bits == 15 ? "i" : own; };
        expect_same_after(fixed_table<std::int64_t>("l", {zero, most, -most - 1}), format);
        expect_same_after(fixed_table<std::int64_t>("l", {zero, most + 1}), next("l"));
        expect_same_after(fixed_table<std::int64_t>("tsu:UTC", {zero, -most - 2}), next("tsu:UTC"));
        expect_same_after(fixed_table<std::uint64_t>("L", {static_cast<std::uint64_t>(most)}), format);
        expect_same_after(fixed_table<std::uint64_t>("L", {static_cast<std::uint64_t>(most) + 1}), next("L"));
    }
    expect_same_after(fixed_table<std::uint64_t>("L", {std::uint64_t{1} << 63}), "L");
    expect_same_after(fixed_table<std::int32_t>("tdD", {20'000, -1}), "s");
    expect_same_after(fixed_table<std::int32_t>("i", {1 << 20}), "i");
    expect_same_after(fixed_table<std::int8_t>("c", {1}), "c");
    expect_same_after(fixed_table<double>("g", {1.0}), "g");
}

TEST_F(Narrow, DecimalsOfMoreThan64BitsStay) {
    auto const decimals = [](std::vector<detail::Bytes16> const& values) {
        return fixed_table<detail::Bytes16>("d:38,2", values);
    };
    constexpr auto all = ~std::uint64_t{0};
    constexpr auto top = std::uint64_t{1} << 63;
    expect_same_after(decimals({{5, 0}, {all, all}}), "c");
    expect_same_after(decimals({{top - 1, 0}}), "l");
    expect_same_after(decimals({{top, all}}), "l");
    expect_same_after(decimals({{top, 0}}), "d:38,2");
    expect_same_after(decimals({{all, 0}}), "d:38,2");
    expect_same_after(decimals({{top - 1, all}}), "d:38,2");
    expect_same_after(decimals({{0, 1}}), "d:38,2");
}

TEST_F(Narrow, WhatNullRowsHoldDoesNotMatter) {
    constexpr auto wild = std::numeric_limits<std::int64_t>::max();
    expect_same_after(fixed_table<std::int64_t>("l", {1, wild, 3}, {true, false, true}), "c");
    expect_same_after(fixed_table<std::int64_t>("l", {wild, wild}, {false, false}), "c");
}

TEST_F(Narrow, TextsOfEveryLength) {
    std::vector<std::string> texts;
    for (std::size_t size = 0; size < 40; ++size) {
        texts.push_back(std::string(size, static_cast<char>('a' + size % 26)));
    }
    std::vector<char const*> values;
    for (auto const& text : texts) {
        values.push_back(text.c_str());
        values.push_back(size(values) % 3 == 0 ? nullptr : "x");
    }
    expect_same_after(text_table(values), "u");
    // The last text ends the data: no byte behind it may be read.
    for (std::size_t size = 0; size <= 12; ++size) {
        expect_same_after(text_table({"abc", texts[size].c_str()}), "u");
    }
}

TEST_F(Narrow, TextsThatAreSharedStayViews) {
    auto const one = text_table({"a text that is longer than a view holds"});
    auto const& column = one.columns()[0];
    std::vector<detail::View> views(100, detail::load_view(column, 0));
    auto shared = column;
    shared.length = 100;
    shared.values = reinterpret_cast<std::byte const*>(views.data());
    Table const table{one.schema(), {shared}, 100, one.owner()};
    EXPECT_EQ(narrowed(table).schema()->form(), RowForm::plain);
}

TEST_F(Narrow, LittleGainIsNotWorthIt) {
    std::vector<Field> fields;
    std::vector<Column> columns;
    std::vector<double> const floats(64, 0.5);
    std::vector<std::int16_t> const shorts(64, 1);
    for (int i = 0; i < 4; ++i) {
        fields.emplace_back("f" + std::to_string(i), "g");
        Column column;
        column.length = 64;
        column.values = reinterpret_cast<std::byte const*>(floats.data());
        columns.push_back(column);
    }
    fields.emplace_back("s", "s");
    columns.push_back(columns.front());
    columns.back().values = reinterpret_cast<std::byte const*>(shorts.data());
    Table const table{std::make_shared<Schema const>(std::move(fields)), std::move(columns), 64, nullptr};
    EXPECT_EQ(narrowed(table).schema()->form(), RowForm::plain);
}

TEST_F(Narrow, UserMetadataWithOurKeyIsNotTakenForOurs) {
    Field::Metadata const mark{{"riverrun:narrow", "6;l"}};
    auto const schema = std::make_shared<Schema const>(
        std::vector{Field{"x", "s", ARROW_FLAG_NULLABLE, {}, nullptr, mark}, Field{"y", "l"}});
    std::vector<std::int64_t> const zeros(8, 0);
    Column column;
    column.length = 8;
    column.values = reinterpret_cast<std::byte const*>(zeros.data());
    Table const table{schema, {column, column}, 8, nullptr};
    auto const rows = narrowed(table);
    EXPECT_EQ(rows.schema()->form(), RowForm::plain);
    EXPECT_EQ(*back(rows).schema(), *schema);
}

TEST_F(Narrow, AFieldThatSaysSomethingImpossibleIsRefused) {
    std::vector<std::int64_t> const zeros(8, 0);
    for (auto const* const text :
         {"", "6", "6;", ";l", "-1;l", "1000;l", "6;s", "6;c", "6;g", "6;vu", "6;nonsense", "6;+s",
          "99999999999999999999;l"}) {
        Field::Metadata const mark{{"riverrun:narrow", text}};
        auto const refuse = [&] {
            auto const schema = std::make_shared<Schema const>(
                std::vector{Field{"x", "s", ARROW_FLAG_NULLABLE, {}, nullptr, mark}}, Field::Metadata{},
                RowForm::narrow);
            Column column;
            column.length = 8;
            column.values = reinterpret_cast<std::byte const*>(zeros.data());
            static_cast<void>(back(Table{schema, {column}, 8, nullptr}));
        };
        EXPECT_THROW(refuse(), FormatError) << text;
    }
}

TEST_F(Narrow, SchemasThatDifferAreRefused) {
    std::vector<Table> const tables{fixed_table<std::int64_t>("l", {1}), fixed_table<std::int32_t>("i", {1})};
    EXPECT_THROW(static_cast<void>(narrow(tables, *br_)), std::invalid_argument);
    EXPECT_THROW(static_cast<void>(narrow({}, *br_)), std::invalid_argument);
    std::vector<PackedData> parts;
    parts.push_back(pack(narrowed(tables[0]), *br_));
    parts.push_back(pack(narrowed(tables[1]), *br_));
    EXPECT_THROW(static_cast<void>(unpack_and_concat(std::move(parts), *br_)), std::invalid_argument);
}

}  // namespace
}  // namespace rapidsmpf
