// Ranks that come to a bad end in the middle of a shuffle under mpirun: every survivor raises the named error in time,
// and nothing is left of the job. docs/exchange.md says what is mpirun's part in this.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bootstrap/failing_job_support.hpp"
#include "mpi/survivors.hpp"

namespace rapidsmpf {
namespace {

using test::contains;
using test::FailingJob;
using test::FailureCase;

// Whether mpirun lets the others go on when a rank has died.
enum class Recovery : bool { no, yes };

// Whether the survivors end only when the test has read what they said: mpirun drops what it has not written yet when it
// ends a job.
enum class Audience : bool { no, yes };

class MpiJob {
  public:
    MpiJob(FailureCase const& failure, Recovery recovery, Audience audience = Audience::no)
        : failure_{failure},
          rendezvous_{rendezvous(failure, audience)},
          job_{failure, launcher(failure, recovery), environment(), {rendezvous_}} {}
    [[nodiscard]] FailingJob* operator->() noexcept { return &job_; }

    // Reads until all survivors have said their last word, and lets them end; false if the job has ended before.
    bool hear_survivors() {
        try {
            job_.launcher().read_until(": closed", failure_.nranks - (failure_.how == "raise" ? 0 : 1));
        } catch (std::runtime_error const&) {
            return false;
        }
        test::Survivors{rendezvous_}.wait();
        return true;
    }

  private:
    static std::vector<std::string> launcher(FailureCase const& failure, Recovery recovery) {
        std::vector<std::string> command{RAPIDSMPF_TEST_MPIEXEC};
        if (recovery == Recovery::yes) {
            command.emplace_back("--enable-recovery");
        }
        command.insert(command.end(), {"-n", std::to_string(failure.nranks), RAPIDSMPF_TEST_MPI_VICTIM});
        return command;
    }
    // The files of Open MPI's own shared memory, too, are in the folder that is looked at in the end.
    static std::vector<std::string> environment() {
        std::vector<std::string> variables{
            "OMPI_MCA_btl_sm_backing_directory=" + FailingJob::shared_memory().string()};
        std::istringstream words{RAPIDSMPF_TEST_MPI_ENVIRONMENT};
        for (std::string word; words >> word;) {
            variables.push_back(word);
        }
        return variables;
    }
    static std::string rendezvous(FailureCase const& failure, Audience audience) {
        std::filesystem::create_directories(FailingJob::folder());
        auto const path = (FailingJob::folder() / "meeting").string();
        bool const all = failure.how == "raise" || failure.how == "malformed";
        // Without mpirun the test cannot tell how many ranks come.
        auto const count = failure.how == "hang" ? 1 : failure.nranks - (all ? 0 : 1);
        test::Survivors::make(path, static_cast<unsigned>(count + (audience == Audience::yes ? 1 : 0)));
        return path;
    }

    FailureCase failure_;
    std::string rendezvous_;
    FailingJob job_;
};

class MpiFailure : public testing::TestWithParam<FailureCase> {};

TEST_P(MpiFailure, EverySurvivorRaisesInTimeAndNothingIsLeft) {
    auto const& c = GetParam();
    MpiJob job{c, c.how == "kill" ? Recovery::yes : Recovery::no, Audience::yes};
    bool const heard = job.hear_survivors();
    auto const& outcome = job->wait();
    if (contains(outcome.err, "unrecognized") || contains(outcome.err, "unrecognised")) {
        GTEST_SKIP() << "this mpirun cannot go on without a rank";
    }
    EXPECT_TRUE(heard) << outcome.out << outcome.err;
    EXPECT_NE(outcome.exit_code, 0);
    job->expect_survivors_raise(test::reason_from_rank_zero(c));
    job->expect_nothing_left();
}

std::vector<FailureCase> cases() {
    auto all = test::failure_cases(3);
    auto const two = test::failure_cases(2);
    std::copy_if(two.begin(), two.end(), std::back_inserter(all), [](FailureCase const& c) {
        return c.how == "kill" || (c.when == "wait" && c.victim == 1);
    });
    return all;
}

INSTANTIATE_TEST_SUITE_P(Moments, MpiFailure, testing::ValuesIn(cases()), [](auto const& info) {
    return info.param.name();
});

// By itself mpirun ends the others, whatever they do.
TEST(MpirunWithoutRecovery, EndsTheOthers) {
    MpiJob job{FailureCase{"wait", "kill", 1, 3}, Recovery::no};
    auto const& outcome = job->wait();
    EXPECT_NE(outcome.exit_code, 0);
    job->expect_nothing_left();
}

// Each is ended by Open MPI, which misses mpirun, or raises because another was. Files of Open MPI stay.
TEST(MpirunKilled, NoProcessOfTheJobIsLeft) {
    MpiJob job{FailureCase{"wait", "hang", 1, 3}, Recovery::no};
    job->launcher().read_until("ends at");
    ::kill(job->launcher().pid(), SIGKILL);
    EXPECT_EQ(job->wait().exit_code, 137);
    job->expect_all_ended();
}

}  // namespace
}  // namespace rapidsmpf
