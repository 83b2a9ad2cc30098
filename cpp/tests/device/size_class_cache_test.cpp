#include "device/size_class_cache.hpp"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::device::detail {
namespace {

constexpr std::size_t kib = 1024;

TEST(SizeClass, HoldsWhatIsAskedForAndAnEighthMoreAtMost) {
    EXPECT_EQ(size_class_of(smallest_class).index, 0U);
    EXPECT_EQ(size_class_of(largest_class).index, size_class_count - 1);
    EXPECT_EQ(size_class_of(largest_class).size, largest_class);
    std::size_t index{0};
    for (std::size_t bytes = smallest_class; bytes <= largest_class; bytes += bytes / 100 + 1) {
        auto const found = size_class_of(bytes);
        EXPECT_GE(found.size, bytes);
        EXPECT_LE(found.size - bytes, bytes / 8);
        EXPECT_GE(found.index, index);
        EXPECT_LT(found.index, size_class_count);
        EXPECT_EQ(size_class_of(found.size).index, found.index);
        index = found.index;
    }
}

TEST(SizeClassCache, GivesTheBlockThatWasPutLast) {
    SizeClassCache<int, size_class_count> cache{1024 * kib};
    auto const where = size_class_of(64 * kib);
    EXPECT_EQ(cache.take(where), std::nullopt);
    EXPECT_TRUE(cache.put(1, where));
    EXPECT_TRUE(cache.put(2, where));
    EXPECT_EQ(cache.bytes(), 128 * kib);
    EXPECT_EQ(cache.take(size_class_of(128 * kib)), std::nullopt);
    EXPECT_EQ(cache.take(where), 2);
    EXPECT_EQ(cache.take(where), 1);
    EXPECT_EQ(cache.bytes(), 0U);
}

TEST(SizeClassCache, ReleasesWhatHasBeenKeptLongestOfAnySize) {
    SizeClassCache<int, size_class_count> cache{1024 * kib};
    auto const small = size_class_of(64 * kib);
    auto const large = size_class_of(128 * kib);
    EXPECT_TRUE(cache.put(1, small));
    EXPECT_TRUE(cache.put(2, large));
    EXPECT_TRUE(cache.put(3, small));
    std::vector<int> released;
    std::vector<std::size_t> sizes;
    auto const release = [&](int block, SizeClass where) {
        released.push_back(block);
        sizes.push_back(where.size);
    };
    EXPECT_EQ(cache.trim(64 * kib, release), 192 * kib);
    EXPECT_EQ(released, (std::vector{1, 2}));
    EXPECT_EQ(sizes, (std::vector{64 * kib, 128 * kib}));
    EXPECT_EQ(cache.trim(64 * kib, release), 0U);
    EXPECT_EQ(cache.take(small), 3);
}

TEST(SizeClassCache, DoesNotKeepABlockThatTakesMostOfTheBound) {
    SizeClassCache<int, size_class_count> cache{256 * kib};
    EXPECT_TRUE(cache.put(1, size_class_of(128 * kib)));
    EXPECT_FALSE(cache.put(2, size_class_of(144 * kib)));
    EXPECT_EQ(cache.bytes(), 128 * kib);
}

}  // namespace
}  // namespace rapidsmpf::device::detail
