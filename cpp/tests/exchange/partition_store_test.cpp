#include "exchange/partition_store.hpp"

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf::exchange {
namespace {

StoredChunk piece(Rank source, std::uint64_t sequence) {
    static auto const br = BufferResource::make();
    return StoredChunk{
        source, sequence, std::make_shared<Payload>(PackedData{{1}, br->allocate(MemoryType::HOST, 4)}, 0)};
}

TEST(PartitionStore, CompleteWhenEverySourceIsDone) {
    PartitionStore store{{3, 5}, 2};
    store.add(3, piece(0, 0));
    store.announce(3, 0, 1);
    EXPECT_FALSE(store.is_complete(0));
    store.announce(3, 1, 1);
    EXPECT_FALSE(store.is_complete(0));
    store.add(3, piece(1, 0));
    EXPECT_TRUE(store.is_complete(0));
    EXPECT_FALSE(store.all_complete());
    EXPECT_EQ(store.first_ready(), 0U);
}

TEST(PartitionStore, DrainedWhenOneSourceIsDoneEverywhere) {
    PartitionStore store{{3, 5}, 2};
    store.announce(3, 1, 0);
    EXPECT_FALSE(store.drained(1));
    store.announce(5, 1, 0);
    EXPECT_TRUE(store.drained(1));
    EXPECT_FALSE(store.drained(0));
    EXPECT_TRUE(store.all_announced(1));
}

TEST(PartitionStore, FindsItsPartitionsHoweverTheyLie) {
    for (std::vector<PartitionId> const& local :
         {std::vector<PartitionId>{}, {7}, {4, 5, 6, 7}, {1, 3, 5, 7}, {0, 1, 9, 10, 50}, {0, 48, 49, 50}}) {
        PartitionStore const store{local, 1};
        std::size_t found = 0;
        for (PartitionId partition = 0; partition < 60; ++partition) {
            auto const index = store.find(partition);
            if (index) {
                EXPECT_EQ(local.at(*index), partition);
                ++found;
            }
        }
        EXPECT_EQ(found, local.size());
    }
}

TEST(PartitionStore, WithoutPartitionsEverythingIsDone) {
    PartitionStore const store{{}, 2};
    EXPECT_TRUE(store.all_complete());
    EXPECT_TRUE(store.drained(0));
    EXPECT_TRUE(store.all_taken());
}

TEST(PartitionStore, WhatCannotBeIsRefused) {
    PartitionStore store{{3}, 2};
    EXPECT_THROW(store.add(4, piece(1, 0)), FormatError);
    EXPECT_THROW(store.announce(4, 1, 0), FormatError);
    store.announce(3, 1, 1);
    EXPECT_THROW(store.announce(3, 1, 1), FormatError);
    store.add(3, piece(1, 0));
    EXPECT_THROW(store.add(3, piece(1, 1)), FormatError);
    store.add(3, piece(0, 0));
    store.add(3, piece(0, 1));
    EXPECT_THROW(store.announce(3, 0, 1), FormatError);
}

TEST(PartitionStore, TakenPartitionsAreNotReadyAgain) {
    PartitionStore store{{0, 1}, 1};
    store.announce(1, 0, 0);
    store.announce(0, 0, 0);
    EXPECT_EQ(store.first_ready(), 1U);
    store.take(1);
    EXPECT_EQ(store.first_ready(), 0U);
    store.take(0);
    EXPECT_FALSE(store.first_ready());
    EXPECT_TRUE(store.all_taken());
}

TEST(PartitionStore, ExtractedOnlyCountsWhenComplete) {
    PartitionStore store{{0}, 1};
    store.add(0, piece(0, 0));
    EXPECT_EQ(store.extract(0).size(), 1U);
    EXPECT_FALSE(store.all_extracted());
    store.announce(0, 0, 1);
    EXPECT_TRUE(store.extract(0).empty());
    EXPECT_TRUE(store.all_extracted());
}

TEST(PartitionStore, DiscardedChunksAreCountedAndDropped) {
    PartitionStore store{{0}, 1};
    store.add(0, piece(0, 0));
    store.discard();
    store.add(0, piece(0, 1));
    EXPECT_TRUE(store.extract(0).empty());
    store.announce(0, 0, 2);
    EXPECT_TRUE(store.is_complete(0));
}

TEST(PartitionStore, MissingIsNamed) {
    PartitionStore store{{4}, 3};
    store.add(4, piece(1, 0));
    store.announce(4, 2, 2);
    store.announce(4, 0, 0);
    EXPECT_EQ(
        store.describe_missing(),
        "partition 4: rank 1 has not finished it (1 chunks so far), 0 of 2 chunks of rank 2 have come"
        " [ranks still to finish: 1, 2]");
}

}  // namespace
}  // namespace rapidsmpf::exchange
