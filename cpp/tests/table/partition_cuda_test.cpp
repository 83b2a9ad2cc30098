// Partitioning and concatenating tables on a GPU, compared with the same on the host. Needs a GPU.
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/detail/narrow.hpp>
#include <rapidsmpf/table/partition.hpp>
#include <rapidsmpf/table/table.hpp>

#include "random_table_support.hpp"
#include "table/host/hash.hpp"

namespace rapidsmpf {
namespace {

using testing::fixed_table;
using testing::RandomTables;
using testing::row_texts;

class PartitionCuda : public ::testing::Test {
  protected:
    void SetUp() override {
        if (Device::current().kind() != DeviceKind::cuda) {
            GTEST_SKIP() << "the compute device is the CPU";
        }
        br_ = BufferResource::make();
        stream_ = br_->next_stream();
    }
    // The same rows in the memory of the GPU.
    Table to_gpu(Table const& table) {
        std::vector<PackedData> parts;
        parts.push_back(pack(table, *br_));
        return unpack_and_concat_on_device(std::move(parts), *br_, stream_);
    }
    PackedData to_host(PackedData packed) {
        packed.data = br_->move_to_host_access(std::move(packed.data));
        return packed;
    }
    Table to_host(Table const& table) { return unpack(to_host(pack(table, *br_)), ValidateData::full); }
    std::vector<std::vector<std::string>> texts(std::vector<PackedData>&& parts) {
        std::vector<std::vector<std::string>> rows;
        for (auto& part : parts) {
            rows.push_back(row_texts(unpack(to_host(std::move(part)), ValidateData::full)));
        }
        return rows;
    }
    static std::vector<int> some_keys(RandomTables& random, Table const& table) {
        std::vector<int> keys;
        for (auto left = random.number(0, 3); left > 0; --left) {
            keys.push_back(
                static_cast<int>(random.number(0, static_cast<std::int64_t>(table.num_columns()) - 1)));
        }
        return keys;
    }

    void expect_same_hashes(Table const& table, std::vector<int> const& keys, std::uint64_t seed) {
        std::vector<std::uint64_t> expected(static_cast<std::size_t>(table.num_rows()));
        auto found = expected;
        hash_rows(table, keys, 0, expected, seed);
        hash_rows(to_gpu(table), keys, 0, found, seed);
        EXPECT_EQ(found, expected) << seed;
    }

    std::shared_ptr<BufferResource> br_;
    Stream stream_;
};

TEST_F(PartitionCuda, a_table_survives_the_way_there_and_back) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.gpu_schema(5), random.number(0, 400));
        ASSERT_EQ(row_texts(to_host(to_gpu(table))), row_texts(table)) << seed;
    }
}

TEST_F(PartitionCuda, hashes_are_those_of_the_host) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.gpu_schema(5), random.number(1, 300));
        expect_same_hashes(table, some_keys(random, table), seed);
    }
}

TEST_F(PartitionCuda, hashes_agree_on_zeros_and_nans) {
    auto const table = fixed_table<std::uint64_t>(
        "g", {0, 0x8000000000000000, 0x7ff8000000000000, 0xfff8000000000001, 0x7ff0000000000000,
              0x3ff0000000000000});
    expect_same_hashes(table, std::vector{0}, 5);
}

TEST_F(PartitionCuda, hashes_of_many_columns_and_of_many_rows) {
    std::vector<Field> fields;
    std::vector<int> keys;
    for (int i = 0; i < 40; ++i) {
        fields.emplace_back("c" + std::to_string(i), "l");
        keys.push_back(i);
    }
    RandomTables random{1};
    expect_same_hashes(random.table(std::make_shared<Schema const>(fields), 300), keys, 0);
    auto const schema = std::make_shared<Schema const>(std::vector{Field{"a", "i"}});
    expect_same_hashes(random.table(schema, 3'000'000), std::vector{0}, 0);
}

TEST_F(PartitionCuda, rows_of_every_type_go_where_they_do_on_the_host_in_order) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.gpu_schema(5), random.number(0, 700));
        auto const count = static_cast<int>(random.number(1, 20));
        auto const keys = some_keys(random, table);
        auto const expected = texts(partition_and_pack(table, keys, count, *br_, seed));
        ASSERT_EQ(texts(partition_and_pack(to_gpu(table), keys, count, *br_, seed)), expected) << seed;
    }
}

TEST_F(PartitionCuda, slices_are_cut_as_on_the_host) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.gpu_schema(4), random.number(1, 500));
        auto const begin = random.number(0, table.num_rows() - 1);
        auto const rows = random.number(0, table.num_rows() - begin);
        std::vector<int> const keys{0, 2};
        auto const expected = texts(partition_and_pack(table.slice(begin, rows), keys, 7, *br_));
        auto const on_gpu = to_gpu(table).slice(begin, rows);
        ASSERT_EQ(texts(partition_and_pack(on_gpu, keys, 7, *br_)), expected) << seed;
    }
}

TEST_F(PartitionCuda, more_tiles_than_one_and_more_partitions_than_rows) {
    RandomTables random{7};
    std::vector<Field> fields{Field{"a", "l"}, Field{"b", "b"}, Field{"t", "u"}, Field{"s", "c"}};
    fields.emplace_back("l", "+l", ARROW_FLAG_NULLABLE, std::vector{Field{"item", "U"}});
    auto const schema = std::make_shared<Schema const>(fields);
    auto const table = random.table(schema, 60'000);
    auto const on_gpu = to_gpu(table);
    for (int const count : {1, 2, 32, 257, 1024, 5000}) {
        auto const expected = texts(partition_and_pack(table, std::vector{0}, count, *br_));
        ASSERT_EQ(texts(partition_and_pack(on_gpu, std::vector{0}, count, *br_)), expected) << count;
    }
}

TEST_F(PartitionCuda, values_of_all_widths_are_written) {
    std::vector<Field> fields;
    for (auto const* const format :
         {"b", "c", "S", "i", "l", "e", "f", "g", "d:38,2", "d:60,3,256", "_pli128", "tsu:", "w:24", "w:3",
          "tiM"}) {
        fields.emplace_back(format, format);
    }
    RandomTables random{8};
    auto const table = random.table(std::make_shared<Schema const>(fields), 20'000);
    for (int const count : {3, 300}) {
        auto const expected = texts(partition_and_pack(table, std::vector{4}, count, *br_));
        ASSERT_EQ(texts(partition_and_pack(to_gpu(table), std::vector{4}, count, *br_)), expected);
    }
}

TEST_F(PartitionCuda, neighbours_in_the_placement_lie_side_by_side) {
    RandomTables random{9};
    auto const table = random.table(std::make_shared<Schema const>(std::vector{Field{"a", "l"}}), 1000);
    std::vector<std::uint32_t> const placement{2, 0, 3, 1};
    auto const parts = partition_and_pack(to_gpu(table), std::vector{0}, 4, *br_, 0, placement);
    for (std::size_t i = 0; i + 1 < 4; ++i) {
        auto const& part = *parts[placement[i]].data;
        EXPECT_EQ(part.data() + part.size(), parts[placement[i + 1]].data->data());
    }
}

TEST_F(PartitionCuda, ranges_of_rows_are_cut_as_on_the_host) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.gpu_schema(4), random.number(0, 500));
        std::vector<std::int64_t> splits;
        for (auto left = random.number(0, 8); left > 0; --left) {
            splits.push_back(random.number(splits.empty() ? 0 : splits.back(), table.num_rows()));
        }
        auto const expected = texts(split_and_pack(table, splits, *br_));
        ASSERT_EQ(texts(split_and_pack(to_gpu(table), splits, *br_)), expected) << seed;
    }
}

TEST_F(PartitionCuda, rows_go_where_a_column_says) {
    RandomTables random{3};
    std::vector<std::uint32_t> numbers;
    for (int i = 0; i < 10'000; ++i) {
        numbers.push_back(static_cast<std::uint32_t>(random.number(0, 9)));
    }
    auto const table = testing::fixed_table<std::uint32_t>("I", numbers);
    std::vector<std::size_t> const twice{0, 0};
    auto const both = table.select(twice);
    auto const expected = texts(partition_by_column_and_pack(both, 0, 10, *br_));
    EXPECT_EQ(texts(partition_by_column_and_pack(to_gpu(both), 0, 10, *br_)), expected);
    EXPECT_THROW((void)partition_by_column_and_pack(to_gpu(both), 0, 9, *br_), std::out_of_range);
}

TEST_F(PartitionCuda, parts_of_every_type_are_concatenated) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        RandomTables random{seed};
        auto const schema = random.gpu_schema(5);
        std::vector<PackedData> parts;
        std::vector<std::string> expected;
        for (auto left = random.number(1, 6); left > 0; --left) {
            auto const table = random.table(schema, random.number(0, 200));
            auto const rows = row_texts(table);
            expected.insert(expected.end(), rows.begin(), rows.end());
            parts.push_back(pack(random.number(0, 1) == 0 ? table : to_gpu(table), *br_));
        }
        auto const joined = unpack_and_concat_on_device(std::move(parts), *br_, stream_);
        ASSERT_EQ(joined.place(), TablePlace::gpu);
        ASSERT_EQ(row_texts(to_host(joined)), expected) << seed;
    }
}

// Only the host partitions string views, which may then travel to a GPU.
TEST_F(PartitionCuda, parts_with_views_are_concatenated) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        RandomTables random{seed};
        std::vector<Field> fields{
            Field{"v", "vu"}, Field{"l", "+l", ARROW_FLAG_NULLABLE, {Field{"item", "vz"}}}};
        fields.push_back(random.gpu_schema(1)->fields()[0]);
        auto const schema = std::make_shared<Schema const>(fields);
        std::vector<PackedData> parts;
        std::vector<std::string> expected;
        for (auto left = random.number(1, 4); left > 0; --left) {
            auto const table = random.table(schema, random.number(0, 200));
            auto const rows = row_texts(table);
            expected.insert(expected.end(), rows.begin(), rows.end());
            auto part = pack(table, *br_);
            if (random.number(0, 1) == 0) {
                auto memory =
                    br_->reserve(MemoryType::DEVICE, part.data->size(), AllowOverbooking::yes).first;
                part.data = br_->move(std::move(part.data), memory);
            }
            parts.push_back(std::move(part));
        }
        auto const joined = unpack_and_concat_on_device(std::move(parts), *br_, stream_);
        ASSERT_EQ(joined.place(), TablePlace::gpu);
        ASSERT_EQ(row_texts(copy_to_host(joined)), expected) << seed;
        auto twice = expected;
        twice.insert(twice.end(), expected.begin(), expected.end());
        ASSERT_EQ(row_texts(copy_to_host(concat(std::vector{joined, joined}, *br_))), twice) << seed;
    }
}

// Ranks without a GPU may send them. They are widened on the host.
TEST_F(PartitionCuda, narrow_parts_are_concatenated) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        RandomTables random{seed};
        std::vector<Field> const fields{
            Field{"d", "tdD"}, Field{"v", "vu"}, Field{"g", "g"}, Field{"i", "s"}};
        auto const schema = std::make_shared<Schema const>(fields);
        std::vector<PackedData> parts;
        std::vector<std::string> expected;
        for (auto left = random.number(1, 4); left > 0; --left) {
            auto const table = random.table(schema, random.number(0, 200));
            auto const rows = row_texts(table);
            expected.insert(expected.end(), rows.begin(), rows.end());
            auto part = pack(narrow({&table, 1}, *br_), *br_);
            if (random.number(0, 1) == 0) {
                auto memory =
                    br_->reserve(MemoryType::DEVICE, part.data->size(), AllowOverbooking::yes).first;
                part.data = br_->move(std::move(part.data), memory);
                part.data->synchronize();
            }
            parts.push_back(std::move(part));
        }
        auto const joined = unpack_and_concat_on_device(std::move(parts), *br_, stream_);
        ASSERT_EQ(joined.place(), TablePlace::gpu);
        ASSERT_EQ(*joined.schema(), *schema);
        ASSERT_EQ(row_texts(copy_to_host(joined)), expected) << seed;
    }
}

TEST_F(PartitionCuda, thousands_of_parts_are_concatenated) {
    RandomTables random{11};
    std::vector<Field> const fields{Field{"a", "l"}, Field{"b", "b"}, Field{"t", "u"}, Field{"u", "U"}};
    auto const table = random.table(std::make_shared<Schema const>(fields), 30'000);
    auto parts = partition_and_pack(to_gpu(table), std::vector{0}, 3000, *br_);
    std::vector<std::string> expected;
    for (auto const& rows : texts(partition_and_pack(table, std::vector{0}, 3000, *br_))) {
        expected.insert(expected.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(row_texts(to_host(unpack_and_concat(std::move(parts), *br_))), expected);
}

TEST_F(PartitionCuda, one_part_is_not_copied) {
    RandomTables random{12};
    auto const table = random.table(std::make_shared<Schema const>(std::vector{Field{"a", "l"}}), 100);
    std::vector<PackedData> parts;
    parts.push_back(pack(to_gpu(table), *br_));
    auto const* const data = parts[0].data->data();
    auto const joined = unpack_and_concat(std::move(parts), *br_);
    EXPECT_GE(joined.columns()[0].values, data);
}

TEST_F(PartitionCuda, the_device_interface_leads_out_and_in) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.gpu_schema(5), random.number(0, 200));
        ArrowDeviceArray array{};
        to_gpu(table).export_device_array(&array);
        ASSERT_EQ(array.device_type, ARROW_DEVICE_CUDA);
        auto const other = br_->next_stream();
        auto const back = Table::import_device_array(table.schema(), &array, other);
        ASSERT_EQ(row_texts(to_host(back)), row_texts(table)) << seed;
    }
}

TEST_F(PartitionCuda, what_a_gpu_cannot_cut_is_named) {
    auto const views = to_gpu(testing::text_table({"a", "b"}));
    EXPECT_THROW((void)partition_and_pack(views, std::vector{0}, 2, *br_), std::invalid_argument);
    auto const table = to_gpu(testing::int64_table({1, 2, 3}));
    EXPECT_THROW((void)partition_and_pack(table, std::vector{1}, 2, *br_), std::out_of_range);
    EXPECT_THROW((void)partition_and_pack(table, std::vector{0}, 100'000, *br_), std::invalid_argument);
    std::vector<std::int64_t> const splits{2, 1};
    EXPECT_THROW((void)split_and_pack(table, splits, *br_), std::out_of_range);
}

}  // namespace
}  // namespace rapidsmpf
