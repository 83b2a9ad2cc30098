#include "mpi/poll_pace.hpp"

#include <gtest/gtest.h>
#include <poll.h>

namespace rapidsmpf::detail {
namespace {

TEST(PollPace, LooksAllTheTimeWhileSomethingMoves) {
    PollPace pace;
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(pace.is_due());
        pace.looked(true);
    }
    // And when nothing does, until the thread parks.
    pace.looked(false);
    EXPECT_TRUE(pace.is_due());
}

TEST(PollPace, LooksOnceForEachPark) {
    PollPace pace;
    for (int i = 0; i < 3; ++i) {
        pace.arm(false);
        EXPECT_TRUE(pace.is_due());
        pace.looked(false);
        EXPECT_FALSE(pace.is_due());
    }
    pace.arm(true);
    pace.looked(true);
    EXPECT_TRUE(pace.is_due());
}

TEST(PollPace, HurriesWhenSomethingIsPosted) {
    PollPace pace;
    pace.arm(false);
    pace.looked(false);
    ASSERT_FALSE(pace.is_due());
    pace.hurry();
    EXPECT_TRUE(pace.is_due());
    pace.looked(false);
    EXPECT_TRUE(pace.is_due());
}

TEST(PollPace, ItsTimerEndsAPark) {
    PollPace pace;
    for (int i = 0; i < 100; ++i) {
        pace.arm(i % 2 == 0);
        pollfd waiting{pace.descriptor(), POLLIN, 0};
        EXPECT_EQ(::poll(&waiting, 1, 60'000), 1);
        pace.looked(false);
    }
}

}  // namespace
}  // namespace rapidsmpf::detail
