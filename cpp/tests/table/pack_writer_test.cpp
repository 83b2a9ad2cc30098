// What tables of ordinary size do not reach: view columns that need more than one data buffer, for which packing
// allows 2 GiB each. Here it allows a hundred bytes.
#include "table/host/pack_writer.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/table/packed.hpp>

#include "random_table_support.hpp"

namespace rapidsmpf {
namespace {

using testing::row_texts;

constexpr std::int64_t max_segment = 100;

Table long_texts(int first, int count) {
    std::vector<std::string> texts;
    std::vector<char const*> pointers;
    for (int i = first; i < first + count; ++i) {
        texts.push_back("a text of more than thirty letters, number " + std::to_string(i));
    }
    for (auto const& text : texts) {
        pointers.push_back(text.c_str());
    }
    return testing::text_table(pointers);
}

class SmallSegments : public ::testing::Test {
  protected:
    // The tables one after the other in one packed table.
    Table pack_all(std::vector<Table> const& tables) {
        std::vector<Table const*> sources;
        for (auto const& table : tables) {
            sources.push_back(&table);
        }
        auto plan = detail::plan_concat(tables[0].schema(), sources, max_segment);
        detail::PackWriter writer{std::move(plan), {}, *br_, AllowOverbooking::no};
        for (auto const& table : tables) {
            detail::WholeTable const whole{table};
            writer.write(table, whole.blocks());
        }
        auto packed = std::move(writer).finish();
        return unpack(std::move(packed.front()), ValidateData::full);
    }
    static void expect_small_buffers(Table const& table, std::size_t at_least) {
        auto const& buffers = table.columns()[0].variadic;
        EXPECT_GE(buffers.size(), at_least);
        for (auto const& buffer : buffers) {
            EXPECT_LE(buffer.size(), static_cast<std::size_t>(max_segment));
        }
    }
    std::shared_ptr<BufferResource> br_{BufferResource::make()};
};

TEST_F(SmallSegments, texts_copied_one_by_one_are_spread_over_buffers) {
    auto const table = long_texts(0, 50);
    auto const packed = pack_all({table});
    expect_small_buffers(packed, 20);
    EXPECT_EQ(row_texts(packed), row_texts(table));
}

TEST_F(SmallSegments, buffers_moved_as_a_whole_are_spread_over_buffers) {
    std::vector<Table> tables;
    std::vector<std::string> expected;
    for (int i = 0; i < 7; ++i) {
        tables.push_back(long_texts(i * 2, 2));  // 2 texts: one buffer of under 100 bytes
        auto const texts = row_texts(tables.back());
        expected.insert(expected.end(), texts.begin(), texts.end());
    }
    auto const packed = pack_all(tables);
    expect_small_buffers(packed, 7);
    EXPECT_EQ(row_texts(packed), expected);
}

TEST_F(SmallSegments, both_kinds_follow_each_other) {
    auto const many = long_texts(0, 5);
    auto const two = long_texts(10, 2);
    auto const packed = pack_all({many.slice(1, 3), two, many.slice(4, 1)});
    auto expected = row_texts(many.slice(1, 3));
    for (auto const& part : {two, many.slice(4, 1)}) {
        auto const texts = row_texts(part);
        expected.insert(expected.end(), texts.begin(), texts.end());
    }
    EXPECT_EQ(row_texts(packed), expected);
}

}  // namespace
}  // namespace rapidsmpf
