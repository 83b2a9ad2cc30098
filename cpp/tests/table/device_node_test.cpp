// What the kernels compute with, run on the host: the flat form of a table and its hash.
#include "table/gpu/device_node.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "random_table_support.hpp"
#include "table/host/hash.hpp"

namespace rapidsmpf::detail {
namespace {

TEST(DeviceNode, nodes_hash_as_rows_do) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        testing::RandomTables random{seed};
        auto const table = random.table(random.gpu_schema(6), 50);
        auto const flat = flatten(*table.schema(), table.columns());
        for (std::size_t column = 0; column < table.num_columns(); ++column) {
            std::vector<int> const keys{static_cast<int>(column), 0};
            std::vector<std::uint64_t> expected(50);
            hash_rows(table, keys, 0, expected, seed);
            for (std::int64_t row = 0; row < 50; ++row) {
                auto state = hash::start(seed);
                state = take_in(flat.nodes.data(), flat.columns[column], row, state);
                state = take_in(flat.nodes.data(), flat.columns[0], row, state);
                ASSERT_EQ(hash::finish(state), expected[static_cast<std::size_t>(row)])
                    << seed << ", " << table.schema()->fields()[column].type_name();
            }
        }
    }
}

TEST(DeviceNode, nodes_are_in_the_order_of_the_metadata) {
    Field const item{"item", "i"};
    auto const values = std::make_shared<Field const>("values", "u");
    Schema const schema{
        {Field{"a", "l"}, Field{"b", "+s", 2, {Field{"x", "+l", 2, {item}}, Field{"y", "I", 2, {}, values}}},
         Field{"c", "u"}}};
    auto const table = Table::empty(std::make_shared<Schema const>(schema));
    auto const flat = flatten(schema, table.columns());
    ASSERT_EQ(flat.nodes.size(), 7U);
    EXPECT_EQ(flat.columns, (std::vector<std::int32_t>{0, 1, 6}));
    std::vector<std::string> names;
    for (auto const* const field : flat.fields) {
        names.push_back(field->name());
    }
    EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "x", "item", "y", "values", "c"}));
    EXPECT_EQ(flat.nodes[1].first_child, 2);
    EXPECT_EQ(flat.nodes[2].sibling, 4);
    EXPECT_EQ(flat.nodes[4].dictionary, 5);
    EXPECT_EQ(flat.nodes[5].parent, 4);
    EXPECT_EQ(nesting(flat.nodes.data(), 1), 2);
    EXPECT_EQ(nesting(flat.nodes.data(), 0), 0);
}

}  // namespace
}  // namespace rapidsmpf::detail
