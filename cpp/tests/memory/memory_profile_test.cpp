#include <rapidsmpf/memory/memory_profile.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <rapidsmpf/core/statistics_snapshot.hpp>

namespace rapidsmpf {
namespace {

class MemoryProfileTest : public ::testing::Test {
  protected:
    // Allocates and releases at once.
    void use(std::size_t bytes) {
        auto* const pointer = mr->allocate(bytes, Stream{});
        mr->deallocate(pointer, bytes, Stream{});
    }
    [[nodiscard]] MemoryProfile::Record record(std::string const& name) const {
        return profile->records().at(name);
    }

    std::shared_ptr<RmmResourceAdaptor> mr =
        std::make_shared<RmmResourceAdaptor>(std::make_shared<HostMemoryResource>());
    std::shared_ptr<MemoryProfile> profile = std::make_shared<MemoryProfile>();
};

TEST_F(MemoryProfileTest, AnOuterScopeHoldsWhatTheInnerOneAllocates) {
    {
        MemoryProfileScope const outer{profile, mr, "outer"};
        auto* const kept = mr->allocate(1000, Stream{});
        {
            MemoryProfileScope const inner{profile, mr, "inner"};
            use(500);
        }
        mr->deallocate(kept, 1000, Stream{});
    }
    EXPECT_EQ(record("inner").scoped.peak(), 500);
    EXPECT_EQ(record("inner").global_peak, 1500);
    EXPECT_EQ(record("outer").scoped.peak(), 1500);
    EXPECT_EQ(record("outer").scoped.total(), 1500);
}

TEST_F(MemoryProfileTest, CallsOfOneNameAreGathered) {
    for (std::size_t const bytes : {100, 300, 200}) {
        MemoryProfileScope const scope{profile, mr, "x"};
        use(bytes);
    }
    EXPECT_EQ(record("x").num_calls, 3U);
    EXPECT_EQ(record("x").scoped.peak(), 300);
    EXPECT_EQ(record("x").scoped.total(), 600);
    EXPECT_EQ(record("x").scoped.num_total_allocs(), 3);
}

TEST_F(MemoryProfileTest, OtherThreadsCountInTheGlobalPeakOnly) {
    {
        MemoryProfileScope const scope{profile, mr, "x"};
        std::thread{[&] { use(700); }}.join();
    }
    EXPECT_EQ(record("x").scoped.peak(), 0);
    EXPECT_EQ(record("x").global_peak, 700);
}

TEST_F(MemoryProfileTest, WithoutProfileOrAdaptorNothingIsRecorded) {
    {
        MemoryProfileScope const no_profile{nullptr, mr, "x"};
        MemoryProfileScope const no_adaptor{profile, nullptr, "x"};
        use(10);
    }
    EXPECT_TRUE(profile->records().empty());
    EXPECT_EQ(profile->json_member(), "");
}

TEST_F(MemoryProfileTest, ReportHasTheHighestPeakFirst) {
    {
        MemoryProfileScope const scope{profile, mr, "a"};
        use(1024);
    }
    {
        MemoryProfileScope const scope{profile, mr, "bb"};
        use(2048);
    }
    EXPECT_EQ(
        profile->report(),
        "Memory profile:\n"
        " - bb: peak 2.00 KiB | global peak 2.00 KiB | allocated 2.00 KiB in 1 | calls 1\n"
        " - a:  peak 1.00 KiB | global peak 1.00 KiB | allocated 1.00 KiB in 1 | calls 1\n");
}

TEST_F(MemoryProfileTest, JsonIsAMemberOfThatOfStatistics) {
    {
        MemoryProfileScope const scope{profile, mr, "x"};
        use(8);
    }
    EXPECT_EQ(
        StatisticsSnapshot{}.to_json(profile->json_member()),
        R"({"statistics": {}, "memory_records": {"x": {"num_calls": 1, "peak_bytes": 8, "total_bytes": 8, )"
        R"("global_peak_bytes": 8}}})");
}

TEST_F(MemoryProfileTest, JsonRefusesNamesThatNeedEscapes) {
    {
        MemoryProfileScope const scope{profile, mr, "a\"b"};
    }
    EXPECT_THROW((void)profile->json_member(), std::invalid_argument);
}

}  // namespace
}  // namespace rapidsmpf
