#include "bootstrap/failing_job_support.hpp"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <ostream>
#include <set>
#include <sstream>
#include <utility>

#include <gtest/gtest.h>
#include <unistd.h>

namespace rapidsmpf::test {

namespace {

constexpr std::int64_t promised_ms = 5000;
constexpr std::int64_t short_timeout_ms = 1000;  // of ShuffleVictim

std::filesystem::path spills() {
    return FailingJob::folder() / "spill";
}

std::vector<std::string> with_places(std::vector<std::string> environment) {
    std::filesystem::create_directories(FailingJob::shared_memory());
    std::filesystem::create_directories(spills());
    environment.push_back("UCX_POSIX_DIR=" + FailingJob::shared_memory().string());
    environment.push_back("TMPDIR=" + spills().string());
    return environment;
}

std::vector<std::string> command_line(
    FailureCase const& failure, std::vector<std::string> command, std::vector<std::string> const& more) {
    command.insert(command.end(), {failure.when, failure.how, std::to_string(failure.victim)});
    command.insert(command.end(), more.begin(), more.end());
    return command;
}

std::vector<std::string> names_in(std::filesystem::path const& folder) {
    std::vector<std::string> names;
    for (auto const& entry : std::filesystem::directory_iterator{folder}) {
        names.push_back(entry.path().filename());
    }
    return names;
}

}  // namespace

std::string FailureCase::name() const {
    return when + "_" + how + "_" + std::to_string(victim) + "_of_" + std::to_string(nranks);
}

void PrintTo(FailureCase const& c, std::ostream* out) {
    *out << c.name();
}

std::string reason_from_rank_zero(FailureCase const& c) {
    if (c.how == "kill") {
        return c.victim == 0 ? "it ended or was killed \\(the coordinator that it hosts is gone\\)"
                             : "it closed its connection to the coordinator without a goodbye";
    }
    if (c.how == "raise") {
        return "raised: no such column: x";
    }
    if (c.how == "malformed") {
        return "it sent a malformed message";
    }
    return "not done after 1000 ms: .*rank " + std::to_string(c.victim) + " has not finished it";
}

std::vector<FailureCase> failure_cases(int nranks) {
    int const last = nranks - 1;
    std::vector<FailureCase> all;
    for (auto const* const when : {"insert", "wait", "teardown"}) {
        for (int victim = 0; victim < nranks; ++victim) {
            all.push_back({when, "kill", victim, nranks});
        }
        all.push_back({when, "raise", 1, nranks});
    }
    for (auto const* const when : {"insert", "wait"}) {
        all.push_back({when, "malformed", 0, nranks});
        all.push_back({when, "malformed", last, nranks});
    }
    for (auto const* const when : {"wait", "teardown"}) {
        all.push_back({when, "stop", 0, nranks});
        all.push_back({when, "stop", last, nranks});
    }
    all.push_back({"wait", "absent", 0, nranks});
    all.push_back({"wait", "absent", 1, nranks});
    return all;
}

FailingJob::FailingJob(
    FailureCase failure, std::vector<std::string> const& launcher, std::vector<std::string> environment,
    std::vector<std::string> const& more)
    : failure_{std::move(failure)},
      launcher_{command_line(failure_, launcher, more), with_places(std::move(environment))} {}

FailingJob::~FailingJob() {
    std::error_code ignored;
    std::filesystem::remove_all(folder(), ignored);
}

std::filesystem::path FailingJob::folder() {
    auto const* const test = testing::UnitTest::GetInstance()->current_test_info();
    std::string title = std::string{test->test_suite_name()} + "." + test->name();
    std::replace(title.begin(), title.end(), '/', '.');
    return std::filesystem::path{testing::TempDir()}
           / ("rapidsmpf." + std::to_string(::getpid()) + "." + title);
}

Outcome const& FailingJob::wait() {
    outcome_ = launcher_.wait();
    return outcome_;
}

std::vector<std::smatch> FailingJob::matches(std::string const& pattern) const {
    std::regex const expression{pattern};
    return {std::sregex_iterator{launcher_.out().begin(), launcher_.out().end(), expression}, {}};
}

std::vector<pid_t> FailingJob::pids() const {
    std::vector<pid_t> pids;
    for (auto const& match : matches("rank \\d+: pid (\\d+)")) {
        pids.push_back(std::stoi(match[1]));
    }
    return pids;
}

void FailingJob::end_victim() {
    launcher_.read_until(": closed", failure_.nranks - 1);
    auto const pid = matches("rank " + std::to_string(failure_.victim) + ": pid (\\d+)");
    ASSERT_EQ(pid.size(), 1U) << launcher_.out();
    ::kill(std::stoi(pid[0][1]), SIGKILL);
}

void FailingJob::expect_survivors_raise(std::string const& reason) const {
    auto const all = outcome_.out + outcome_.err;
    auto const ends = matches("rank " + std::to_string(failure_.victim) + ": ends at (\\d+)");
    ASSERT_EQ(ends.size(), 1U) << all;
    // On a machine where starting a rank takes a second, its news may take long as well.
    std::int64_t allowed = promised_ms;
    for (auto const& started : matches("started in (\\d+) ms")) {
        allowed = std::max<std::int64_t>(allowed, 10 * std::stoll(started[1]));
    }
    allowed += std::stoll(ends[0][1]) + (failure_.gives_up() ? short_timeout_ms : 0);

    std::set<int> raised;
    for (auto const& match : matches("rank (\\d+): at (\\d+) (.*)\n")) {
        int const rank = std::stoi(match[1]);
        std::string const error = match[3];
        if (failure_.how == "stop" && rank == failure_.victim) {
            continue;  // a launcher may let it go on for a moment, to end it
        }
        EXPECT_LT(std::stoll(match[2]), allowed) << all;
        if (!failure_.gives_up()) {
            EXPECT_TRUE(contains(error, "RankFailedError rank=" + std::to_string(failure_.victim) + " "))
                << error;
        }
        EXPECT_TRUE(std::regex_search(error, std::regex{reason})) << error;
        EXPECT_TRUE(contains(outcome_.out, "rank " + std::to_string(rank) + ": later calls raise")) << all;
        raised.insert(rank);
    }
    for (int rank = 0; rank < failure_.nranks; ++rank) {
        bool const told = failure_.is_told(rank);
        EXPECT_EQ(raised.contains(rank), told) << "rank " << rank << "\n" << all;
        if (told || failure_.how == "raise") {
            EXPECT_TRUE(contains(outcome_.out, "rank " + std::to_string(rank) + ": closed")) << all;
        }
    }
}

void FailingJob::expect_all_ended() const {
    auto const ranks = pids();
    EXPECT_EQ(ranks.size(), static_cast<std::size_t>(failure_.nranks)) << launcher_.out();
    for (auto const pid : ranks) {
        EXPECT_TRUE(has_ended(pid)) << pid;
    }
}

void FailingJob::expect_nothing_left() const {
    expect_all_ended();
    EXPECT_EQ(names_in(shared_memory()), std::vector<std::string>{});
    EXPECT_EQ(names_in(spills()), std::vector<std::string>{});
    auto const ranks = pids();
    std::ifstream segments{"/proc/sysvipc/shm"};
    std::string line;
    std::getline(segments, line);  // the titles
    while (std::getline(segments, line)) {
        std::istringstream words{line};
        std::string key;
        std::string id;
        std::string mode;
        std::string size;
        pid_t maker = 0;
        words >> key >> id >> mode >> size >> maker;
        EXPECT_EQ(std::count(ranks.begin(), ranks.end(), maker), 0) << line;
    }
}

}  // namespace rapidsmpf::test
