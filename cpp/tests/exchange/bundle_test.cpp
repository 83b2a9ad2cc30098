#include "exchange/bundle.hpp"

#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf::exchange {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Chunks = std::vector<std::pair<PartitionId, PackedData>>;

constexpr BundleLimits limits{16UL << 10U, 512UL << 10U, 1UL << 20U};

class BundleTest : public testing::Test {
  protected:
    [[nodiscard]] PackedData chunk(std::size_t size, std::uint8_t mark) const {
        auto buffer = br->allocate(MemoryType::HOST, size);
        std::fill_n(buffer->mutable_host_bytes().data(), size, std::byte{mark});
        return {Bytes(1 + mark % 5, mark), std::move(buffer)};
    }
    // Neighbours in one block.
    [[nodiscard]] Chunks cut(std::vector<std::size_t> const& sizes) const {
        auto const total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
        auto whole = br->allocate(MemoryType::HOST, total);
        for (std::size_t i = 0; i < total; ++i) {
            whole->mutable_host_bytes()[i] = static_cast<std::byte>(i);
        }
        Chunks chunks;
        std::size_t at = 0;
        for (auto const size : sizes) {
            chunks.emplace_back(chunks.size(), PackedData{Bytes{1}, whole->split_off(at, size)});
            at += size;
        }
        return chunks;
    }
    static std::vector<BundledChunk> read(NewBundle const& bundle) {
        return read_bundle(bundle.partitions.size(), bundle.packed.metadata, bundle.packed.data->size());
    }
    static Bytes bytes(PackedData const& data) {
        auto const found = data.data->host_bytes();
        auto const* const begin = reinterpret_cast<std::uint8_t const*>(found.data());
        return {begin, begin + found.size()};
    }

    std::shared_ptr<BufferResource> br = BufferResource::make();
};

TEST_F(BundleTest, ComesApartAsItWasPutTogether) {
    std::mt19937_64 random{5};
    for (int round = 0; round < 200; ++round) {
        Chunks chunks;
        std::vector<std::size_t> sizes;
        for (auto left = 2 + random() % 20; left > 0; --left) {
            sizes.push_back(random() % 3 == 0 ? 0 : random() % 300);
            chunks.emplace_back(sizes.size(), chunk(sizes.back(), static_cast<std::uint8_t>(sizes.size())));
        }
        auto bundles = make_bundles(chunks, *br, limits);
        EXPECT_TRUE(chunks.empty());
        ASSERT_EQ(bundles.size(), 1U);
        auto& made = bundles.front();
        EXPECT_EQ(made.data_bytes, std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            set_bundle_sequence(made.packed.metadata, i, 1000 + i);
        }
        auto rows = read(made);
        Bundle bundle{std::move(made.packed), std::move(rows), 1};
        ASSERT_EQ(bundle.chunks().size(), sizes.size());
        for (auto i = sizes.size(); i-- > 0;) {
            auto const& row = bundle.chunks()[i];
            EXPECT_EQ(row.partition, i + 1);
            EXPECT_EQ(row.sequence, 1000 + i);
            auto const expected = chunk(sizes[i], static_cast<std::uint8_t>(i + 1));
            auto const found = bundle.release(i);
            EXPECT_EQ(found.metadata, expected.metadata);
            EXPECT_EQ(bytes(found), bytes(expected));
        }
    }
    EXPECT_EQ(br->memory_used(MemoryType::HOST), 0);
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 0);
}

TEST_F(BundleTest, NeighboursStayWhereTheyAre) {
    auto chunks = cut({64, 0, 128, 100});
    auto const* const begin = chunks.front().second.data->data();
    auto const bundles = make_bundles(chunks, *br, limits);
    ASSERT_EQ(bundles.size(), 1U);
    EXPECT_EQ(bundles[0].packed.data->data(), begin);
    EXPECT_EQ(bundles[0].packed.data->size(), 292U);
    EXPECT_EQ(br->memory_used(MemoryType::HOST), 292);
    EXPECT_EQ(read(bundles[0]).back().data.offset, 192U);
}

// Where a chunk has to be in a bundle follows from the sizes of those before it.
TEST_F(BundleTest, NeighboursThatAreNotAlignedAreCopied) {
    auto chunks = cut({10, 64});
    auto const* const begin = chunks.front().second.data->data();
    auto const bundles = make_bundles(chunks, *br, limits);
    ASSERT_EQ(bundles.size(), 1U);
    EXPECT_NE(bundles[0].packed.data->data(), begin);
    EXPECT_EQ(bundles[0].packed.data->size(), 128U);
    EXPECT_EQ(bytes(bundles[0].packed)[64], 10U);
}

// Many neighbours here and many there are two bundles rather than one copy.
TEST_F(BundleTest, ManyNeighboursAreNotCopiedForTheSakeOfOthers) {
    auto chunks = cut(std::vector<std::size_t>(10, 6'400));
    auto more = cut(std::vector<std::size_t>(3, 6'400));
    std::move(more.begin(), more.end(), std::back_inserter(chunks));
    auto const* const begin = chunks.front().second.data->data();
    auto const bundles = make_bundles(chunks, *br, limits);
    ASSERT_EQ(bundles.size(), 2U);
    EXPECT_EQ(bundles[0].packed.data->data(), begin);
    EXPECT_EQ(bundles[0].partitions.size(), 10U);
    EXPECT_EQ(bundles[1].partitions.size(), 3U);
}

// Large ones, too, go together where they are neighbours, and are not copied where they are not.
TEST_F(BundleTest, LargeNeighboursGoTogether) {
    auto chunks = cut(std::vector<std::size_t>(10, 128'000));
    auto const* const begin = chunks.front().second.data->data();
    chunks.emplace_back(10, chunk(128'000, 1));
    chunks.emplace_back(11, chunk(100, 1));
    chunks.emplace_back(12, chunk(100, 1));
    auto const bundles = make_bundles(chunks, *br, limits);
    ASSERT_EQ(bundles.size(), 3U);
    EXPECT_EQ(bundles[0].packed.data->data(), begin);
    EXPECT_EQ(bundles[0].partitions.size(), 8U);
    EXPECT_EQ(bundles[1].packed.data->data(), begin + 8 * 128'000);
    EXPECT_EQ(bundles[1].partitions.size(), 2U);
    EXPECT_EQ(bundles[2].partitions.size(), 2U);
    ASSERT_EQ(chunks.size(), 1U);
    EXPECT_EQ(chunks[0].first, 10U);
}

TEST_F(BundleTest, SmallOnesAreNotCopiedBesideALargeOne) {
    auto chunks = cut({64, 128'000});
    chunks.emplace_back(2, chunk(100, 1));
    chunks.emplace_back(3, chunk(100, 1));
    auto const bundles = make_bundles(chunks, *br, limits);
    ASSERT_EQ(bundles.size(), 2U);
    EXPECT_EQ(bundles[0].data_bytes, 128'064U);
    EXPECT_EQ(bundles[1].data_bytes, 200U);
}

TEST_F(BundleTest, WhatCanBePartOfOne) {
    auto const fits = [&](std::size_t size, BundleLimits const& of) {
        return can_be_bundled(chunk(size, 1), of);
    };
    EXPECT_TRUE(fits(100, {100, 0, 100}));
    EXPECT_FALSE(fits(101, {100, 0, 1'000}));
    EXPECT_TRUE(fits(101, {100, 101, 1'000}));
    EXPECT_FALSE(fits(102, {100, 101, 1'000}));
    auto stored = chunk(50, 1);
    auto memory = br->reserve(MemoryType::DISK, 50, AllowOverbooking::yes).first;
    stored.data = br->move(std::move(stored.data), memory);
    EXPECT_FALSE(can_be_bundled(stored, {100, 100, 100}));
}

TEST_F(BundleTest, WhatIsAloneStaysAlone) {
    Chunks chunks;
    chunks.emplace_back(3, chunk(100, 7));
    EXPECT_TRUE(make_bundles(chunks, *br, limits).empty());
    ASSERT_EQ(chunks.size(), 1U);
    EXPECT_EQ(chunks[0].first, 3U);
    Chunks none;
    EXPECT_TRUE(make_bundles(none, *br, limits).empty());
}

TEST_F(BundleTest, OnlyEmptyChunks) {
    Chunks chunks;
    chunks.emplace_back(0, chunk(0, 1));
    chunks.emplace_back(1, chunk(0, 2));
    auto const bundles = make_bundles(chunks, *br, limits);
    ASSERT_EQ(bundles.size(), 1U);
    EXPECT_EQ(bundles[0].packed.data->size(), 0U);
    EXPECT_EQ(read(bundles[0]).size(), 2U);
}

TEST_F(BundleTest, ABundleHasABound) {
    Chunks chunks;
    for (PartitionId p = 0; p < 100; ++p) {
        chunks.emplace_back(p, chunk(std::size_t{16} << 10U, 1));
    }
    std::size_t found = 0;
    for (auto const& bundle : make_bundles(chunks, *br, limits)) {
        EXPECT_LE(bundle.data_bytes, limits.whole);
        found += bundle.partitions.size();
    }
    EXPECT_EQ(found + chunks.size(), 100U);

    Chunks few;
    for (PartitionId p = 0; p < 5; ++p) {
        few.emplace_back(p, chunk(100, 1));
    }
    EXPECT_EQ(make_bundles(few, *br, {250, 0, 250}).size(), 2U);
    EXPECT_EQ(few.size(), 1U);
}

// Two chunks of 70 and 5 bytes with 3 and 1 bytes of metadata.
struct Raw {
    Bytes metadata;
    std::uint64_t size;
};

Raw raw(BufferResource& br) {
    Chunks chunks;
    chunks.emplace_back(4, PackedData{Bytes(3, 1), br.allocate(MemoryType::HOST, 70)});
    chunks.emplace_back(6, PackedData{Bytes(1, 1), br.allocate(MemoryType::HOST, 5)});
    auto bundles = make_bundles(chunks, br, limits);
    return {bundles.front().packed.metadata, bundles.front().packed.data->size()};
}

TEST_F(BundleTest, WhatDoesNotAddUpIsRefused) {
    auto const [metadata, size] = raw(*br);
    EXPECT_EQ(size, 133U);
    EXPECT_EQ(read_bundle(2, metadata, size).size(), 2U);
    EXPECT_THROW((void)read_bundle(0, metadata, size), FormatError);
    EXPECT_THROW((void)read_bundle(1, metadata, size), FormatError);
    EXPECT_THROW((void)read_bundle(3, metadata, size), FormatError);
    EXPECT_THROW((void)read_bundle(~std::uint64_t{0}, metadata, size), FormatError);
    EXPECT_THROW((void)read_bundle(2, metadata, size - 1), FormatError);
    EXPECT_THROW((void)read_bundle(2, metadata, size + 1), FormatError);
    for (std::size_t end = 0; end < metadata.size(); ++end) {
        EXPECT_THROW((void)read_bundle(2, std::span{metadata}.first(end), size), FormatError);
    }
}

TEST_F(BundleTest, DataWithoutMetadataIsRefused) {
    auto [metadata, size] = raw(*br);
    metadata[12] = 0;  // of the first chunk
    metadata.resize(metadata.size() - 3);
    EXPECT_THROW((void)read_bundle(2, metadata, size), FormatError);
}

TEST_F(BundleTest, GarbageIsRefusedOrReadWithinItsBounds) {
    std::mt19937_64 random{7};
    auto const [original, size] = raw(*br);
    for (int round = 0; round < 20'000; ++round) {
        auto metadata = original;
        for (auto flips = 1 + random() % 4; flips > 0; --flips) {
            metadata[random() % metadata.size()] = static_cast<std::uint8_t>(random());
        }
        auto const data_size = random() % 2 == 0 ? size : random() % 300;
        try {
            for (auto const& row : read_bundle(1 + random() % 3, metadata, data_size)) {
                ASSERT_LE(row.metadata + row.metadata_size, metadata.size());
                ASSERT_LE(row.data.offset + row.data.size, data_size);
            }
        } catch (FormatError const&) {
            // as it should be
        }
    }
}

}  // namespace
}  // namespace rapidsmpf::exchange
