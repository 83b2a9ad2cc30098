#include <rapidsmpf/core/statistics.hpp>

#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

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

TEST(Statistics, UnknownNameIsOutOfRange) {
    Statistics statistics;
    EXPECT_THROW((void)statistics.get("nothing"), std::out_of_range);
}

TEST(Statistics, DisabledRecordsNothing) {
    Statistics statistics{Statistics::Enabled::no};
    statistics.add("x", 1);
    EXPECT_TRUE(statistics.names().empty());
}

TEST(Statistics, ConcurrentUpdatesAreAllCounted) {
    Statistics statistics;
    auto const id = statistics.id("x");
    constexpr int per_thread = 10'000;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < per_thread; ++i) {
                statistics.add(id, 1);
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_DOUBLE_EQ(statistics.get("x").value, 4 * per_thread);
}

TEST(Statistics, ClearForgetsValues) {
    Statistics statistics;
    statistics.add("x", 1);
    statistics.clear();
    EXPECT_TRUE(statistics.names().empty());
}

TEST(Statistics, JsonHasCountValueAndMax) {
    Statistics statistics;
    statistics.add("x", 2.5);
    EXPECT_EQ(statistics.to_json(), R"({"statistics": {"x": {"count": 1, "value": 2.5, "max": 2.5}}})");
}

TEST(Statistics, JsonRefusesNamesThatNeedEscapes) {
    Statistics statistics;
    statistics.add("a\"b", 1);
    EXPECT_THROW((void)statistics.to_json(), std::invalid_argument);
}

TEST(Statistics, ReportFormatsUnits) {
    Statistics statistics;
    statistics.add("bytes", 2048, Statistics::Unit::bytes);
    EXPECT_NE(statistics.report().find("2.00 KiB"), std::string::npos);
}

}  // namespace
}  // namespace rapidsmpf
