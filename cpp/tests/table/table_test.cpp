#include <rapidsmpf/table/table.hpp>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "random_table_support.hpp"

namespace rapidsmpf {
namespace {

using testing::RandomTables;
using testing::row_texts;

Table through_arrow(Table const& table) {
    ArrowSchemaOwner schema;
    ArrowArrayOwner array;
    table.export_schema(schema.out());
    table.export_array(array.out());
    return Table::import_arrow(schema.get(), array.get());
}

TEST(Table, survives_the_arrow_interface_without_a_copy) {
    auto const table = testing::int64_table({1, 2, 3});
    auto const again = through_arrow(table);
    EXPECT_EQ(again.columns()[0].values, table.columns()[0].values);
}

TEST(Table, survives_the_arrow_interface_whatever_its_types) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.schema(5), random.number(0, 200));
        auto const again = through_arrow(table);
        ASSERT_EQ(*again.schema(), *table.schema()) << seed;
        ASSERT_EQ(row_texts(again), row_texts(table)) << seed;
    }
}

TEST(Table, slices_hold_their_rows) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.schema(4), 100);
        auto const begin = random.number(0, 100);
        auto const length = random.number(0, 100 - begin);
        auto const texts = row_texts(table);
        std::vector const expected(texts.begin() + begin, texts.begin() + begin + length);
        auto const slice = table.slice(begin, length);
        ASSERT_EQ(row_texts(slice), expected) << seed;
        ASSERT_EQ(row_texts(through_arrow(slice)), expected) << seed;
    }
}

TEST(Table, a_slice_of_a_struct_array_with_an_offset_is_read_from_there) {
    RandomTables random{3};
    auto const schema = std::make_shared<Schema const>(std::vector{Field{
        "s", "+s", 2, {Field{"a", "l"}, Field{"l", "+w:2", 2, {Field{"item", "i"}}}, Field{"t", "vu"}}}});
    auto const table = random.table(schema, 50);
    ArrowSchemaOwner arrow_schema;
    ArrowArrayOwner array;
    table.export_schema(arrow_schema.out());
    table.export_array(array.out());
    array->offset = 13;  // what a producer that slices without touching the children gives
    array->length = 20;
    auto const again = Table::import_arrow(arrow_schema.get(), array.get());
    auto const texts = row_texts(table);
    EXPECT_EQ(row_texts(again), (std::vector(texts.begin() + 13, texts.begin() + 33)));
}

TEST(Table, slicing_counts_nulls_anew) {
    auto const table = testing::fixed_table<std::int32_t>("i", {1, 2, 3, 4}, {true, false, true, true});
    EXPECT_EQ(table.slice(1, 2).columns()[0].null_count, 1);
    EXPECT_EQ(table.slice(2, 2).columns()[0].validity, nullptr);
}

TEST(Table, slice_out_of_range_throws) {
    auto const table = testing::int64_table({1, 2, 3});
    EXPECT_THROW(static_cast<void>(table.slice(2, 2)), std::out_of_range);
    EXPECT_THROW(static_cast<void>(table.slice(-1, 1)), std::out_of_range);
}

TEST(Table, without_columns_keeps_its_rows) {
    Table const table{std::make_shared<Schema const>(std::vector<Field>{}), {}, 5, nullptr};
    EXPECT_EQ(through_arrow(table).num_rows(), 5);
}

TEST(Table, empty_of_any_schema_can_be_exported) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        RandomTables random{seed};
        EXPECT_EQ(through_arrow(Table::empty(random.schema(5))).num_rows(), 0);
    }
}

TEST(Table, selects_columns_by_number) {
    RandomTables random{1};
    auto const table = random.table(random.schema(4), 10);
    std::vector<std::size_t> const picked{2, 0};
    auto const two = table.select(picked);
    EXPECT_EQ(two.schema()->fields()[0].name(), "column 2");
    EXPECT_THROW(static_cast<void>(two.select(picked)), std::out_of_range);
}

TEST(Table, exported_children_may_outlive_the_table) {
    ArrowArrayOwner array;
    testing::int64_table({7, 8}).export_array(array.out());
    ArrowArrayOwner const child{array->children[0]};
    array.reset();
    EXPECT_EQ(static_cast<std::int64_t const*>(child->buffers[1])[1], 8);
}

TEST(Table, takes_a_null_column_with_a_buffer_as_polars_gives_it) {
    auto const schema = std::make_shared<Schema const>(std::vector{Field{"n", "n"}});
    auto const table = RandomTables{0}.table(schema, 3);
    ArrowArrayOwner array;
    table.export_array(array.out());
    void const* no_buffer[1] = {nullptr};
    array->children[0]->n_buffers = 1;
    array->children[0]->buffers = no_buffer;
    EXPECT_EQ(Table::import_arrow(table.schema(), array.get()).num_rows(), 3);
}

class MalformedArray : public ::testing::Test {
  protected:
    void SetUp() override { table_.export_array(array_.out()); }
    void expect_refused() {
        EXPECT_THROW(
            static_cast<void>(Table::import_arrow(table_.schema(), array_.get())), std::invalid_argument);
    }
    Table table_{testing::int64_table({1, 2, 3})};
    ArrowArrayOwner array_;
};

TEST_F(MalformedArray, released) {
    array_.reset();
    expect_refused();
}

TEST_F(MalformedArray, too_few_buffers) {
    array_->children[0]->n_buffers = 1;
    expect_refused();
}

TEST_F(MalformedArray, null_buffer) {
    array_->children[0]->buffers[1] = nullptr;
    expect_refused();
}

TEST_F(MalformedArray, child_shorter_than_its_parent) {
    array_->children[0]->length = 2;
    expect_refused();
}

TEST_F(MalformedArray, null_rows_at_the_top) {
    std::uint8_t const bits = 0b101;
    array_->buffers[0] = &bits;
    array_->null_count = 1;
    expect_refused();
}

}  // namespace
}  // namespace rapidsmpf
