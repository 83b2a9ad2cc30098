// Ranks that come to a bad end in the middle of a shuffle under rrun: every survivor raises the named error in time,
// and nothing is left of the job.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bootstrap/rrun_support.hpp"

namespace rapidsmpf {
namespace {

using test::Child;
using test::contains;
using test::has_ended;
using test::Outcome;
using test::rrun_command;

constexpr std::int64_t promised_ms = 5000;
constexpr std::int64_t short_timeout_ms = 1000;  // of ShuffleVictim
constexpr int nranks = 3;

// A job whose shared memory and spill files have places of their own, so that other jobs do not matter.
class Job {
  public:
    explicit Job(std::vector<std::string> const& arguments)
        : shared_memory_{folder_of_this_test() / "shm"},
          spills_{folder_of_this_test() / "spill"},
          rrun_{command(arguments), environment()} {}
    ~Job() { std::filesystem::remove_all(folder_of_this_test()); }
    Job(Job const&) = delete;
    Job& operator=(Job const&) = delete;

    [[nodiscard]] Child& rrun() noexcept { return rrun_; }
    Outcome const& wait() {
        outcome_ = rrun_.wait();
        return outcome_;
    }
    // Of the ranks, as far as they have said.
    [[nodiscard]] std::vector<pid_t> pids() const {
        std::vector<pid_t> pids;
        for (auto const& match : matches("rank \\d+: pid (\\d+)")) {
            pids.push_back(std::stoi(match[1]));
        }
        return pids;
    }
    // Processes, shared memory, spill files.
    void expect_nothing_left() const {
        auto const ranks = pids();
        EXPECT_EQ(ranks.size(), static_cast<std::size_t>(nranks)) << rrun_.out();
        for (auto const pid : ranks) {
            EXPECT_TRUE(has_ended(pid)) << pid;
        }
        EXPECT_EQ(names_in(shared_memory_), std::vector<std::string>{});
        EXPECT_EQ(names_in(spills_), std::vector<std::string>{});
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
    [[nodiscard]] std::vector<std::smatch> matches(std::string const& pattern) const {
        std::regex const expression{pattern};
        return {std::sregex_iterator{rrun_.out().begin(), rrun_.out().end(), expression}, {}};
    }

  private:
    static std::filesystem::path folder_of_this_test() {
        auto const* const test = testing::UnitTest::GetInstance()->current_test_info();
        std::string title = std::string{test->test_suite_name()} + "." + test->name();
        std::replace(title.begin(), title.end(), '/', '.');
        return std::filesystem::path{testing::TempDir()}
               / ("rapidsmpf." + std::to_string(::getpid()) + "." + title);
    }
    [[nodiscard]] std::vector<std::string> environment() const {
        std::filesystem::create_directories(shared_memory_);
        std::filesystem::create_directories(spills_);
        return {"UCX_POSIX_DIR=" + shared_memory_.string(), "TMPDIR=" + spills_.string()};
    }
    static std::vector<std::string> command(std::vector<std::string> const& arguments) {
        std::vector<std::string> all{"-n", std::to_string(nranks), RAPIDSMPF_TEST_SHUFFLE_VICTIM};
        all.insert(all.end(), arguments.begin(), arguments.end());
        return rrun_command(all);
    }
    static std::vector<std::string> names_in(std::filesystem::path const& folder) {
        std::vector<std::string> names;
        for (auto const& entry : std::filesystem::directory_iterator{folder}) {
            names.push_back(entry.path().filename());
        }
        return names;
    }

    std::filesystem::path shared_memory_;
    std::filesystem::path spills_;
    Child rrun_;
    Outcome outcome_;
};

struct Case {
    std::string when;
    std::string how;
    int victim;
};

void PrintTo(Case const& c, std::ostream* out) {
    *out << c.when << " " << c.how << " " << c.victim;
}

class ShuffleFailure : public testing::TestWithParam<Case> {};

struct Ending {
    int exit_code;
    std::string reason;  // a regular expression for what the others are told
    std::string line;    // of rrun
};

Ending ending_of(Case const& c) {
    auto const rank = std::to_string(c.victim);
    if (c.how == "kill") {
        return {137, "its process was killed by SIGKILL", "was killed by SIGKILL; ending the other ranks"};
    }
    if (c.how == "raise") {
        return {3, "raised: no such column: x", "failed: raised: no such column: x"};
    }
    if (c.how == "malformed") {
        return {9, "it sent a malformed message", "failed: it sent a malformed message"};
    }
    return {9, "not done after 1000 ms: .*rank " + rank + " has not finished it", "failed: TimeoutError"};
}

TEST_P(ShuffleFailure, EverySurvivorRaisesInTimeAndNothingIsLeft) {
    auto const& c = GetParam();
    auto const expected = ending_of(c);
    Job job{{c.when, c.how, std::to_string(c.victim)}};
    auto const& outcome = job.wait();
    auto const all = outcome.out + outcome.err;
    EXPECT_EQ(outcome.exit_code, expected.exit_code) << all;
    EXPECT_TRUE(contains(outcome.err, expected.line)) << all;
    EXPECT_FALSE(contains(all, " UCX ")) << "UCX complains: " << all;

    bool const gives_up = c.how == "stop" || c.how == "absent";
    auto const ends = job.matches("rank " + std::to_string(c.victim) + ": ends at (\\d+)");
    ASSERT_EQ(ends.size(), 1U) << all;
    // On a machine where starting a rank takes a second, its news may take long as well.
    std::int64_t allowed = promised_ms;
    for (auto const& started : job.matches("started in (\\d+) ms")) {
        allowed = std::max<std::int64_t>(allowed, 10 * std::stoll(started[1]));
    }
    allowed += std::stoll(ends[0][1]) + (gives_up ? short_timeout_ms : 0);

    std::set<int> raised;
    for (auto const& match : job.matches("rank (\\d+): at (\\d+) (.*)\n")) {
        int const rank = std::stoi(match[1]);
        std::string const error = match[3];
        EXPECT_LT(std::stoll(match[2]), allowed) << all;
        if (!gives_up) {
            EXPECT_TRUE(contains(error, "RankFailedError rank=" + std::to_string(c.victim) + " ")) << error;
        }
        EXPECT_TRUE(std::regex_search(error, std::regex{expected.reason})) << error;
        EXPECT_TRUE(contains(outcome.out, "rank " + std::to_string(rank) + ": later calls raise")) << all;
        raised.insert(rank);
    }
    for (int rank = 0; rank < nranks; ++rank) {
        bool const told = rank != c.victim || c.how == "malformed";
        EXPECT_EQ(raised.contains(rank), told) << "rank " << rank << "\n" << all;
        EXPECT_EQ(
            contains(outcome.out, "rank " + std::to_string(rank) + ": closed"), told || c.how == "raise")
            << all;
    }
    job.expect_nothing_left();
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (auto const* const when : {"insert", "wait", "teardown"}) {
        for (int victim = 0; victim < nranks; ++victim) {
            all.push_back({when, "kill", victim});
        }
    }
    for (auto const* const when : {"insert", "wait", "teardown"}) {
        all.push_back({when, "raise", 1});
    }
    for (auto const* const when : {"insert", "wait"}) {
        all.push_back({when, "malformed", 0});
        all.push_back({when, "malformed", 2});
    }
    for (auto const* const when : {"wait", "teardown"}) {
        all.push_back({when, "stop", 0});
        all.push_back({when, "stop", 2});
    }
    all.push_back({"wait", "absent", 0});
    all.push_back({"wait", "absent", 1});
    return all;
}

INSTANTIATE_TEST_SUITE_P(Moments, ShuffleFailure, testing::ValuesIn(cases()), [](auto const& info) {
    return info.param.when + "_" + info.param.how + "_" + std::to_string(info.param.victim);
});

// The ranks are in the middle of a shuffle: rank 1 never finishes it, and does not answer.
TEST(RrunKilled, NothingOfTheJobIsLeft) {
    Job job{{"wait", "hang", "1"}};
    job.rrun().read_until("ends at");
    ::kill(job.rrun().pid(), SIGKILL);
    auto const& outcome = job.wait();
    EXPECT_EQ(outcome.exit_code, 137);
    job.expect_nothing_left();
}

}  // namespace
}  // namespace rapidsmpf
