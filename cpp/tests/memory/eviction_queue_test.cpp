#include "memory/spill/eviction_queue.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::detail {
namespace {

struct Entry {
    Entry(std::uint64_t next_use_, std::size_t size_, void const* lower_ = nullptr)
        : next_use{next_use_}, size{size_}, lower{lower_} {}
    std::uint64_t next_use;
    std::size_t size;
    void const* lower;
    VictimHook<Entry> hook{};
};

std::vector<Entry*> taken_out(EvictionQueue<Entry>& order) {
    std::vector<Entry*> entries;
    while (!order.empty()) {
        auto& entry = order.first();
        order.erase(entry);
        entries.push_back(&entry);
    }
    return entries;
}

TEST(EvictionQueue, LastNeededThenLargestThenAlreadyWritten) {
    int below = 0;
    Entry soon{1, 1 << 20};
    Entry late_large{9, 1 << 20};
    Entry late_written{9, 1 << 16, &below};
    Entry late_unwritten{9, 1 << 16};
    Entry late_small{9, 100};
    Entry late_small_written{9, 90, &below};
    Entry late_smaller{9, 10};
    EvictionQueue<Entry> order;
    EXPECT_TRUE(order.empty());
    for (auto* entry :
         {&late_small, &soon, &late_unwritten, &late_small_written, &late_smaller, &late_written,
          &late_large}) {
        order.insert(*entry);
    }
    std::vector<Entry*> const expected{
        &late_large, &late_written, &late_unwritten, &late_small_written, &late_small, &late_smaller, &soon};
    EXPECT_EQ(taken_out(order), expected);
}

// Entries come and go from everywhere; the order holds among those that are there, small ones by the power of two.
TEST(EvictionQueue, HoldsWhateverComesAndGoes) {
    std::mt19937_64 random{7};
    std::vector<std::unique_ptr<Entry>> entries;
    for (int i = 0; i < 300; ++i) {
        auto const size = std::size_t{1} << random() % 16U;
        entries.push_back(std::make_unique<Entry>(random() % 5, size));
    }
    EvictionQueue<Entry> order;
    std::set<Entry*> in;
    for (int step = 0; step < 5'000; ++step) {
        auto* const entry = entries[random() % entries.size()].get();
        if (in.erase(entry) > 0) {
            order.erase(*entry);
        } else {
            order.insert(*entry);
            in.insert(entry);
        }
        ASSERT_EQ(order.empty(), in.empty());
        if (!in.empty()) {
            auto const& first = order.first();
            ASSERT_TRUE(std::all_of(in.begin(), in.end(), [&](Entry const* other) {
                return std::pair{first.next_use, first.size} >= std::pair{other->next_use, other->size};
            }));
        }
    }
    auto const left = taken_out(order);
    EXPECT_EQ(std::set<Entry*>(left.begin(), left.end()), in);
    EXPECT_TRUE(std::is_sorted(left.begin(), left.end(), [](Entry const* a, Entry const* b) {
        return std::pair{a->next_use, a->size} > std::pair{b->next_use, b->size};
    }));
}

}  // namespace
}  // namespace rapidsmpf::detail
