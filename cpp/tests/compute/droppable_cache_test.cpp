// What may be dropped: the least recently used first, nothing that is held, nothing that readers come back to.
#include "compute/scan/droppable_cache.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::compute {
namespace {

constexpr std::uint64_t patience = 3;

// Counts those that live.
struct Counted {
    explicit Counted(std::atomic<int>& count) : alive{count} { ++alive; }
    ~Counted() { --alive; }
    Counted(Counted const&) = delete;
    Counted& operator=(Counted const&) = delete;
    std::atomic<int>& alive;
};

class DroppableCacheTest : public ::testing::Test {
  protected:
    bool add(std::string const& key, std::size_t bytes) {
        return cache_.add(key, std::make_shared<Counted>(alive_), bytes);
    }

    std::atomic<int> alive_{0};
    DroppableCache cache_{100, patience};
};

TEST_F(DroppableCacheTest, KeepsUpToItsLimit) {
    EXPECT_TRUE(add("a", 60));
    EXPECT_TRUE(add("b", 40));
    EXPECT_FALSE(add("c", 1));
    EXPECT_FALSE(add("larger than all", 101));
    EXPECT_EQ(cache_.bytes(), 100U);
    EXPECT_TRUE(cache_.has("a"));
    EXPECT_EQ(cache_.find("c"), nullptr);
    EXPECT_EQ(alive_, 2);
}

TEST_F(DroppableCacheTest, KeepsTheFirstValueOfAKey) {
    EXPECT_TRUE(add("a", 10));
    auto const first = cache_.find("a");
    EXPECT_TRUE(add("a", 20));
    EXPECT_EQ(cache_.find("a"), first);
    EXPECT_EQ(cache_.bytes(), 10U);
    cache_.remove("a");
    cache_.remove("a");
    EXPECT_EQ(cache_.bytes(), 0U);
    EXPECT_EQ(alive_, 1);  // the one that is held
}

TEST_F(DroppableCacheTest, DropsTheLeastRecentlyUsedFirst) {
    for (auto const* const key : {"a", "b", "c"}) {
        cache_.begin_use();
        ASSERT_TRUE(add(key, 30));
    }
    cache_.begin_use();
    (void)cache_.find("a");
    EXPECT_EQ(cache_.drop(31), 60U);
    EXPECT_TRUE(cache_.has("a"));
    EXPECT_FALSE(cache_.has("b"));
    EXPECT_FALSE(cache_.has("c"));
    EXPECT_EQ(alive_, 1);
    EXPECT_EQ(cache_.drop(1000), 30U);
    EXPECT_EQ(cache_.drop(1000), 0U);
    EXPECT_EQ(alive_, 0);
}

TEST_F(DroppableCacheTest, DropsNothingThatAReaderHolds) {
    ASSERT_TRUE(add("a", 50));
    ASSERT_TRUE(add("b", 50));
    auto held = cache_.find("a");
    EXPECT_EQ(cache_.drop(100), 50U);
    EXPECT_EQ(cache_.drop(100), 0U);
    EXPECT_TRUE(cache_.has("a"));
    held.reset();
    EXPECT_EQ(cache_.drop(100), 50U);
}

// Three uses that go over 120 bytes again and again: what was kept first stays, so that two of them find theirs.
TEST_F(DroppableCacheTest, ReadersThatComeBackFindWhatFits) {
    int found = 0;
    for (int round = 0; round < 4; ++round) {
        for (auto const* const key : {"a", "b", "c"}) {
            cache_.begin_use();
            if (cache_.find(key)) {
                ++found;
            } else {
                (void)add(key, 40);
            }
        }
    }
    EXPECT_EQ(found, 6);
}

TEST_F(DroppableCacheTest, WhatIsNotUsedForLongMakesRoom) {
    cache_.begin_use();
    ASSERT_TRUE(add("old", 60));
    ASSERT_TRUE(add("older", 40));
    for (std::uint64_t i = 0; i + 1 < patience; ++i) {
        cache_.begin_use();
        EXPECT_FALSE(cache_.has_room(40));
    }
    (void)cache_.find("old");
    cache_.begin_use();
    EXPECT_TRUE(add("new", 40));
    EXPECT_FALSE(cache_.has("older"));
    EXPECT_TRUE(cache_.has("old"));
    EXPECT_EQ(cache_.bytes(), 100U);
}

TEST_F(DroppableCacheTest, WhatWasDroppedForOthersIsNotKeptAnewAtOnce) {
    DroppableCache cache{25'600, patience};
    ASSERT_TRUE(cache.add("a", std::make_shared<Counted>(alive_), 10'000));
    ASSERT_TRUE(cache.add("b", std::make_shared<Counted>(alive_), 10'000));
    EXPECT_EQ(cache.drop(1), 10'000U);
    EXPECT_FALSE(cache.has_room(1));
    EXPECT_FALSE(cache.add("c", std::make_shared<Counted>(alive_), 1));
    for (int i = 0; i < 100; ++i) {
        cache.begin_use();
        EXPECT_EQ(cache.has_room(100 * static_cast<std::size_t>(i + 1)), true);
        EXPECT_EQ(cache.has_room(100 * static_cast<std::size_t>(i + 1) + 1), false);
        // What is left is in use, and so does not make room.
        (void)cache.find("a");
        (void)cache.find("b");
    }
    for (int i = 0; i < 1000; ++i) {
        cache.begin_use();
    }
    EXPECT_FALSE(cache.has_room(25'601));
}

TEST_F(DroppableCacheTest, ThreadsMayUseItAtOnce) {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([this, t] {
            for (int i = 0; i < 2000; ++i) {
                auto const key = std::to_string((i * 7 + t) % 30);
                cache_.begin_use();
                if (!cache_.find(key)) {
                    (void)add(key, 9);
                }
                if (i % 50 == t) {
                    (void)cache_.drop(20);
                }
                if (i % 70 == t) {
                    cache_.remove(key);
                }
            }
        });
    }
    threads.clear();
    EXPECT_LE(cache_.bytes(), 100U);
    EXPECT_EQ(static_cast<std::size_t>(alive_) * 9, cache_.bytes());
}

}  // namespace
}  // namespace rapidsmpf::compute
