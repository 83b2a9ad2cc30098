#include <rapidsmpf/core/statistics.hpp>

#include <chrono>
#include <latch>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {
namespace {

using Unit = Statistics::Unit;
using Kind = Statistics::Kind;

TEST(Statistics, CountsSumsAndKeepsTheMaximum) {
    Statistics statistics;
    statistics.add("x", 1);
    statistics.add("x", 5);
    statistics.add("x", 2);
    auto const stat = statistics.get("x");
    EXPECT_EQ(stat.count, 3U);
    EXPECT_DOUBLE_EQ(stat.value, 8);
    EXPECT_DOUBLE_EQ(stat.max, 5);
}

TEST(Statistics, TheMaximumOfNegativeValuesIsNegative) {
    Statistics statistics;
    statistics.add("x", -3);
    statistics.add("x", -2);
    EXPECT_DOUBLE_EQ(statistics.get("x").max, -2);
}

TEST(Statistics, APeakIsTheLargestValue) {
    Statistics statistics;
    for (double const value : {1, 5, 2}) {
        statistics.add("x", value, Unit::bytes, Kind::peak);
    }
    EXPECT_DOUBLE_EQ(statistics.get("x").value, 5);
}

TEST(Statistics, UnknownNameIsOutOfRange) {
    Statistics statistics;
    EXPECT_THROW((void)statistics.get("nothing"), std::out_of_range);
}

TEST(Statistics, DisabledRecordsNothing) {
    Statistics statistics{Statistics::Enabled::no};
    statistics.add("x", 1);
    statistics.add(statistic::id("event-loop-total"), 1);
    EXPECT_TRUE(statistics.names().empty());
}

TEST(Statistics, ANameOfTheTableHasItsRowAsIdInEveryObject) {
    Statistics one;
    Statistics other;
    (void)other.id("mine");
    for (std::size_t row = 0; row < statistic::table.size(); ++row) {
        EXPECT_EQ(one.id(statistic::table[row].name.view()), row);
        EXPECT_EQ(other.id(statistic::table[row].name.view()), row);
    }
}

TEST(Statistics, NamesOfUsersFollowTheTable) {
    Statistics statistics;
    auto const id = statistics.id("mine");
    EXPECT_GE(id, statistic::table.size());
    EXPECT_EQ(statistics.id("mine"), id);
}

TEST(Statistics, TooManyNamesAreRefusedAndTheOthersKept) {
    Statistics statistics;
    auto const room = Statistics::max_stats - statistic::table.size();
    for (std::size_t i = 0; i < room; ++i) {
        statistics.add("own" + std::to_string(i), 1);
    }
    EXPECT_THROW(statistics.add("one more", 1), std::length_error);
    EXPECT_EQ(statistics.names().size(), room);
}

TEST(Statistics, ConcurrentUpdatesAreAllCounted) {
    Statistics statistics;
    auto const id = statistics.id("x");
    constexpr int per_thread = 5'000;
    constexpr int num_threads = 20;  // more than there are shards
    std::latch start{num_threads};
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t) {
        threads.emplace_back([&, t] {
            start.arrive_and_wait();
            for (int i = 0; i < per_thread; ++i) {
                statistics.add(id, 1 + (i == 0 ? t : 0));
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    auto const stat = statistics.get("x");
    EXPECT_EQ(stat.count, static_cast<std::uint64_t>(num_threads * per_thread));
    EXPECT_DOUBLE_EQ(stat.value, num_threads * per_thread + num_threads * (num_threads - 1) / 2);
    EXPECT_DOUBLE_EQ(stat.max, num_threads);
}

TEST(Statistics, ClearForgetsValues) {
    Statistics statistics;
    statistics.add("x", 7);
    statistics.clear();
    EXPECT_TRUE(statistics.names().empty());
    statistics.add("x", 2);
    EXPECT_DOUBLE_EQ(statistics.get("x").max, 2);
}

TEST(Statistics, MergeAddsWhatOthersCounted) {
    Statistics here;
    Statistics there;
    for (auto* statistics : {&here, &there}) {
        double const base = statistics == &here ? 1 : 10;
        statistics->add("sum", base, Unit::bytes);
        statistics->add("sum", base + 1, Unit::bytes);
        statistics->add("peak", base, Unit::bytes, Kind::peak);
    }
    there.add("only there", 4, Unit::seconds);
    here.merge(there.snapshot());
    auto const sum = here.get("sum");
    EXPECT_EQ(sum.count, 4U);
    EXPECT_DOUBLE_EQ(sum.value, 24);
    EXPECT_DOUBLE_EQ(sum.max, 11);
    EXPECT_EQ(here.get("peak").count, 2U);
    EXPECT_DOUBLE_EQ(here.get("peak").value, 10);
    EXPECT_EQ(here.snapshot().entries().at("only there").unit, Unit::seconds);
}

TEST(Statistics, DisabledOnesMergeNothing) {
    Statistics here{Statistics::Enabled::no};
    Statistics there;
    there.add("x", 1);
    here.merge(there.snapshot());
    EXPECT_TRUE(here.names().empty());
}

// Counts how often it is read.
struct CountingClock {
    using time_point = std::chrono::steady_clock::time_point;
    static inline thread_local int reads = 0;
    static time_point now() noexcept {
        ++reads;
        return time_point{std::chrono::seconds{reads}};
    }
};

TEST(ScopedTimer, AddsTheSecondsOfItsScope) {
    Statistics statistics;
    CountingClock::reads = 0;
    {
        BasicScopedTimer<CountingClock> const timer{statistics, statistics.id("x", Unit::seconds)};
    }
    EXPECT_DOUBLE_EQ(statistics.get("x").value, 1);
}

TEST(ScopedTimer, DoesNotReadTheClockWhenDisabled) {
    Statistics statistics{Statistics::Enabled::no};
    CountingClock::reads = 0;
    {
        BasicScopedTimer<CountingClock> const timer{statistics, 0};
    }
    EXPECT_EQ(CountingClock::reads, 0);
}

}  // namespace
}  // namespace rapidsmpf
