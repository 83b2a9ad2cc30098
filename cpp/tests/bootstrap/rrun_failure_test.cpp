// Ranks that come to a bad end in the middle of a shuffle under rrun: every survivor raises the named error in time,
// and nothing is left of the job.
#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bootstrap/failing_job_support.hpp"

namespace rapidsmpf {
namespace {

using test::contains;
using test::FailingJob;
using test::FailureCase;

constexpr int nranks = 3;

std::vector<std::string> launcher() {
    return test::rrun_command({"-n", std::to_string(nranks), RAPIDSMPF_TEST_SHUFFLE_VICTIM});
}

class ShuffleFailure : public testing::TestWithParam<FailureCase> {};

struct Ending {
    int exit_code;
    std::string reason;  // a regular expression for what the others are told
    std::string line;    // of rrun
};

Ending ending_of(FailureCase const& c) {
    if (c.how == "kill") {
        return {137, "its process was killed by SIGKILL", "was killed by SIGKILL; ending the other ranks"};
    }
    if (c.how == "raise") {
        return {3, "raised: no such column: x", "failed: raised: no such column: x"};
    }
    if (c.how == "malformed") {
        return {9, "it sent a malformed message", "failed: it sent a malformed message"};
    }
    auto const rank = std::to_string(c.victim);
    return {9, "not done after 1000 ms: .*rank " + rank + " has not finished it", "failed: TimeoutError"};
}

TEST_P(ShuffleFailure, EverySurvivorRaisesInTimeAndNothingIsLeft) {
    auto const expected = ending_of(GetParam());
    FailingJob job{GetParam(), launcher()};
    auto const& outcome = job.wait();
    auto const all = outcome.out + outcome.err;
    EXPECT_EQ(outcome.exit_code, expected.exit_code) << all;
    EXPECT_TRUE(contains(outcome.err, expected.line)) << all;
    EXPECT_FALSE(contains(all, " UCX ")) << "UCX complains: " << all;
    job.expect_survivors_raise(expected.reason);
    job.expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(
    Moments, ShuffleFailure, testing::ValuesIn(test::failure_cases(nranks)),
    [](auto const& info) { return info.param.name(); });

// The ranks are in the middle of a shuffle: rank 1 never finishes it, and does not answer.
TEST(RrunKilled, NothingOfTheJobIsLeft) {
    FailingJob job{FailureCase{"wait", "hang", 1, nranks}, launcher()};
    job.launcher().read_until("ends at");
    ::kill(job.launcher().pid(), SIGKILL);
    auto const& outcome = job.wait();
    EXPECT_EQ(outcome.exit_code, 137);
    job.expect_nothing_left();
}

}  // namespace
}  // namespace rapidsmpf
