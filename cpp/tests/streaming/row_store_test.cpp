#include <rapidsmpf/streaming/detail/row_store.hpp>

#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/packed.hpp>

#include "about_the_cpu.hpp"
#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

using testing::count_rows;
using testing::make_table;
using testing::Rows;

class RowStoreTest : public ::testing::Test {
  protected:
    std::shared_ptr<BufferResource> resource = BufferResource::make();
    BatchSizes sizes;

    std::vector<PackedData> chunks(std::vector<std::int64_t> const& lengths) {
        return testing::packed_chunks(lengths, *resource);
    }
    std::shared_ptr<RowStore> store(std::vector<std::int64_t> const& lengths) {
        return std::make_shared<RowStore>(testing::row_schema(), resource, chunks(lengths));
    }
    Rows read(std::shared_ptr<RowStore> from, StoreUse use) {
        RowStoreOutput output{std::move(from), use, sizes};
        Rows rows;
        while (auto table = output.next()) {
            testing::append(rows, *table);
        }
        EXPECT_EQ(output.next(), std::nullopt);
        return rows;
    }
};

TEST_F(RowStoreTest, CountsItsRows) {
    auto const held = store({3, 0, 40});
    EXPECT_EQ(held->rows(), 43);
    EXPECT_EQ(held->num_chunks(), 3U);
    EXPECT_GT(held->bytes(), 0U);
    EXPECT_EQ(store({})->rows(), 0);
}

TEST_F(RowStoreTest, GivesItsRowsAsOftenAsTheyAreRead) {
    sizes.enough_bytes = 100;
    auto const held = store({5, 60, 0, 7});
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(read(held, StoreUse::read), count_rows(0, 72));
    }
    EXPECT_EQ(held->rows(), 72);
}

TEST_F(RowStoreTest, GivesRowsToSeveralAtOnce) {
    sizes.enough_bytes = 100;
    auto const held = store(std::vector<std::int64_t>(50, 20));
    std::vector<std::thread> readers;
    std::vector<Rows> found(4);
    for (auto& rows : found) {
        readers.emplace_back([&] { rows = read(held, StoreUse::read); });
    }
    for (auto& reader : readers) {
        reader.join();
    }
    for (auto const& rows : found) {
        EXPECT_EQ(rows, count_rows(0, 1000));
    }
}

TEST_F(RowStoreTest, GivesItsRowsAway) {
    auto const held = store({5, 60});
    EXPECT_EQ(read(held, StoreUse::take), count_rows(0, 65));
    EXPECT_EQ(held->rows(), 0);
    EXPECT_TRUE(read(held, StoreUse::read).empty());
}

TEST_F(RowStoreTest, FreesWhatWasTaken) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto held = store({50, 50});
    RowStoreOutput output{std::move(held), StoreUse::take, sizes};
    while (output.next()) {
    }
    EXPECT_EQ(resource->memory_used(MemoryType::DEVICE), 0);
}

TEST_F(RowStoreTest, ReadsWhatWasSpilled) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const held = store({50, 50, 50});
    (void)resource->spill(MemoryType::DEVICE, held->bytes());
    EXPECT_EQ(resource->memory_used(MemoryType::DEVICE), 0);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(read(held, StoreUse::read), count_rows(0, 150));
    }
    (void)resource->spill(MemoryType::DEVICE, held->bytes());
    EXPECT_EQ(read(held, StoreUse::take), count_rows(0, 150));
    EXPECT_EQ(resource->memory_used(MemoryType::DEVICE), 0);
}

TEST_F(RowStoreTest, RejectsMalformedChunks) {
    auto packed = chunks({5});
    packed.front().metadata.back() ^= 1U;
    EXPECT_THROW((RowStore{testing::row_schema(), resource, std::move(packed)}), FormatError);
}

}  // namespace
}  // namespace rapidsmpf::streaming
