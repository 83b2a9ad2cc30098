// The GPU's hashes against the host's. Needs a GPU; without one only the checks of arguments run.
#include <rapidsmpf/table/hash_cuda.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/table/hash.hpp>

#include "random_table_support.hpp"

namespace rapidsmpf {
namespace {

class HashCuda : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string reason;
        gpu_ = device::make_cuda_device(reason);
        if (!gpu_) {
            GTEST_SKIP() << "no GPU: " << reason;
        }
    }
    void TearDown() override {
        for (auto const& [pointer, size] : blocks_) {
            gpu_->deallocate(pointer, size, Stream{});
        }
    }
    void* to_gpu(void const* bytes, std::int64_t size) {
        auto const count = static_cast<std::size_t>(size);
        auto* const pointer = gpu_->allocate(count + 1, Stream{});
        blocks_.emplace_back(pointer, count + 1);
        gpu_->copy(pointer, bytes, count, Stream{});
        return pointer;
    }
    // A column of a host table, moved over.
    DeviceKeyColumn to_gpu(Field const& field, Column const& column) {
        DeviceKeyColumn key;
        auto const rows = column.offset + column.length;
        auto const is_bits = field.layout() == Layout::bits;
        key.values = to_gpu(column.values, is_bits ? (rows + 7) / 8 : rows * field.width());
        key.validity = column.validity == nullptr
                           ? nullptr
                           : static_cast<std::uint8_t const*>(to_gpu(column.validity, (rows + 7) / 8));
        key.offset = column.offset;
        key.width = is_bits ? 0 : static_cast<std::int32_t>(field.width());
        key.kind = field.value_kind();
        return key;
    }
    std::vector<std::uint64_t> hashes_on_gpu(Table const& table, std::uint64_t seed) {
        std::vector<DeviceKeyColumn> keys;
        for (std::size_t i = 0; i < table.num_columns(); ++i) {
            keys.push_back(to_gpu(table.schema()->fields()[i], table.columns()[i]));
        }
        std::vector<std::uint64_t> hashes(static_cast<std::size_t>(table.num_rows()), 1);
        auto* const out = static_cast<std::uint64_t*>(to_gpu(hashes.data(), table.num_rows() * 8));
        hash_rows_cuda(keys, table.num_rows(), out, seed, Stream{});
        gpu_->copy(hashes.data(), out, hashes.size() * 8, Stream{});
        gpu_->synchronize(Stream{});
        return hashes;
    }

    std::unique_ptr<Device> gpu_;
    std::vector<std::pair<void*, std::size_t>> blocks_;
};

std::vector<std::uint64_t> hashes_on_host(Table const& table, std::uint64_t seed) {
    std::vector<int> keys;
    for (std::size_t i = 0; i < table.num_columns(); ++i) {
        keys.push_back(static_cast<int>(i));
    }
    std::vector<std::uint64_t> hashes(static_cast<std::size_t>(table.num_rows()));
    hash_rows(table, keys, 0, hashes, seed);
    return hashes;
}

TEST_F(HashCuda, agrees_with_the_host_for_every_fixed_width_type) {
    std::vector<Field> fields;
    for (auto const* const format :
         {"b", "c", "S", "i", "l", "e", "f", "g", "d:38,2", "d:60,3,256", "_pli128", "tsu:", "w:24"}) {
        fields.emplace_back(format, format);
    }
    auto const schema = std::make_shared<Schema const>(fields);
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        testing::RandomTables random{seed};
        auto const table = random.table(schema, 1000);
        EXPECT_EQ(hashes_on_gpu(table, seed), hashes_on_host(table, seed)) << seed;
    }
}

TEST_F(HashCuda, agrees_on_zeros_and_nans) {
    auto const table = testing::fixed_table<std::uint64_t>(
        "g", {0, 0x8000000000000000, 0x7ff8000000000000, 0xfff8000000000001, 0x7ff0000000000000,
              0x3ff0000000000000});
    EXPECT_EQ(hashes_on_gpu(table, 5), hashes_on_host(table, 5));
}

TEST_F(HashCuda, takes_more_columns_than_one_launch_does) {
    std::vector<Field> fields;
    for (int i = 0; i < 40; ++i) {
        fields.emplace_back("c" + std::to_string(i), "l");
    }
    testing::RandomTables random{1};
    auto const table = random.table(std::make_shared<Schema const>(fields), 300);
    EXPECT_EQ(hashes_on_gpu(table, 0), hashes_on_host(table, 0));
}

TEST_F(HashCuda, takes_more_rows_than_one_wave_of_threads) {
    testing::RandomTables random{2};
    auto const table = random.table(std::make_shared<Schema const>(std::vector{Field{"a", "i"}}), 3'000'000);
    EXPECT_EQ(hashes_on_gpu(table, 0), hashes_on_host(table, 0));
}

TEST(HashCudaArguments, a_width_that_it_cannot_hash_is_refused) {
    std::vector<DeviceKeyColumn> const columns{
        DeviceKeyColumn{.values = nullptr, .validity = nullptr, .width = 5}};
    EXPECT_ANY_THROW(hash_rows_cuda(columns, 1, nullptr, 0, Stream{}));
}

}  // namespace
}  // namespace rapidsmpf
