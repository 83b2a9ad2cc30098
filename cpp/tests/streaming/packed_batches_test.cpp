#include <rapidsmpf/streaming/detail/packed_batches.hpp>

#include <stdexcept>
#include <string>

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

class PackedBatchesTest : public ::testing::Test {
  protected:
    std::shared_ptr<BufferResource> resource = BufferResource::make();
    BatchSizes sizes;

    std::vector<PackedData> chunks(std::vector<std::int64_t> const& lengths) {
        return testing::packed_chunks(lengths, *resource);
    }
    // The lengths of the batches; checks that all rows are there in order.
    std::vector<std::int64_t> batch_lengths(std::vector<std::int64_t> const& lengths) {
        PackedBatches batches{testing::row_schema(), resource, sizes};
        batches.add(chunks(lengths));
        std::vector<std::int64_t> result;
        Rows rows;
        while (auto table = batches.next()) {
            result.push_back(table->num_rows());
            testing::append(rows, *table);
        }
        EXPECT_EQ(rows, count_rows(0, static_cast<std::int64_t>(rows.size())));
        return result;
    }
};

TEST_F(PackedBatchesTest, GivesNothingForNothing) {
    EXPECT_TRUE(batch_lengths({}).empty());
}

TEST_F(PackedBatchesTest, SkipsChunksWithoutRows) {
    EXPECT_EQ(batch_lengths({0, 0}), std::vector<std::int64_t>{});
    EXPECT_EQ(batch_lengths({0, 3, 0, 4, 0}), std::vector<std::int64_t>{7});
}

TEST_F(PackedBatchesTest, PutsSmallNeighboursTogether) {
    sizes.enough_rows = 10;
    EXPECT_EQ(batch_lengths({4, 4, 4, 4, 4}), (std::vector<std::int64_t>{12, 8}));
}

TEST_F(PackedBatchesTest, LeavesLargeChunksAlone) {
    sizes.enough_rows = 10;
    EXPECT_EQ(batch_lengths({2, 15, 3, 2}), (std::vector<std::int64_t>{2, 15, 5}));
}

TEST_F(PackedBatchesTest, CutsHugeChunks) {
    sizes.enough_rows = 10;
    sizes.most_rows = 20;
    EXPECT_EQ(batch_lengths({50}), (std::vector<std::int64_t>{17, 17, 16}));
}

TEST_F(PackedBatchesTest, FreesAChunkWithItsLastSlice) {
    RAPIDSMPF_ABOUT_THE_CPU();
    sizes.enough_rows = 10;
    sizes.most_rows = 20;
    PackedBatches batches{testing::row_schema(), resource, sizes};
    batches.add(chunks({50, 50}));
    auto const all = resource->memory_used(MemoryType::DEVICE);
    std::optional<Table> kept;
    for (int i = 0; i < 3; ++i) {
        kept = batches.next();
    }
    EXPECT_EQ(resource->memory_used(MemoryType::DEVICE), all);
    kept = batches.next();  // of the second chunk
    EXPECT_LT(resource->memory_used(MemoryType::DEVICE), all);
    while (batches.next()) {
    }
    kept.reset();
    EXPECT_EQ(resource->memory_used(MemoryType::DEVICE), 0);
}

TEST_F(PackedBatchesTest, ReadsNothingTwice) {
    RAPIDSMPF_ABOUT_THE_CPU();
    constexpr std::size_t all = std::size_t{1} << 40U;
    sizes.enough_rows = 10;
    PackedBatches batches{testing::row_schema(), resource, sizes};
    batches.add(chunks(std::vector<std::int64_t>(20, 10)));
    EXPECT_GT(resource->spill_buffers(MemoryType::DEVICE, all), 0U);
    std::size_t given = 0;
    while (batches.next()) {
        ++given;
        // What has been read back for the next batches is not moved down again.
        EXPECT_EQ(resource->spill_buffers(MemoryType::DEVICE, all), 0U);
    }
    EXPECT_EQ(given, 20U);
}

TEST_F(PackedBatchesTest, RejectsAnotherSchema) {
    std::vector<Field> fields;
    fields.emplace_back("key", "i");
    fields.emplace_back("text", "u");
    fields.emplace_back("target", "I");
    PackedBatches batches{std::make_shared<Schema const>(std::move(fields)), resource};
    batches.add(chunks({5}));
    try {
        (void)batches.next();
        FAIL() << "no error";
    } catch (std::invalid_argument const& error) {
        EXPECT_NE(std::string{error.what()}.find("key"), std::string::npos) << error.what();
    }
}

TEST_F(PackedBatchesTest, RejectsMalformedChunks) {
    auto packed = chunks({5});
    packed.front().metadata.back() ^= 1U;
    PackedBatches batches{testing::row_schema(), resource};
    batches.add(std::move(packed));
    EXPECT_THROW((void)batches.next(), FormatError);
}

}  // namespace
}  // namespace rapidsmpf::streaming
