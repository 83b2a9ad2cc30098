// Ranks that come to a bad end in the middle of a shuffle, without a launcher that looks after them: every
// survivor raises the named error in time, and nothing is left.
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

// Three processes, of which the first tells the others its address.
std::vector<std::string> launcher() {
    return {
        "/bin/sh", "-c",
        "folder=$1; shift; mkfifo $folder/1 $folder/2; "
        "\"$0\" \"$@\" root 3 $folder/1 $folder/2 & \"$0\" \"$@\" join 3 $folder/1 & \"$0\" \"$@\" join 3 "
        "$folder/2 & wait",
        RAPIDSMPF_TEST_SHUFFLE_VICTIM, FailingJob::folder().string()};
}

class FailureByHand : public testing::TestWithParam<FailureCase> {};

TEST_P(FailureByHand, EverySurvivorRaisesInTimeAndNothingIsLeft) {
    auto const& c = GetParam();
    FailingJob job{c, launcher()};
    if (c.gives_up()) {
        job.end_victim();
    }
    auto const& outcome = job.wait();
    EXPECT_FALSE(contains(outcome.out + outcome.err, " UCX ")) << "UCX complains: " << outcome.err;
    job.expect_survivors_raise(test::reason_from_rank_zero(c));
    job.expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(
    Moments, FailureByHand, testing::ValuesIn(test::failure_cases(nranks)),
    [](auto const& info) { return info.param.name(); });

}  // namespace
}  // namespace rapidsmpf
