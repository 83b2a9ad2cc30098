// What rrun does with real processes: shells as ranks, and ranks that hold a communicator (ucxx_victim).
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "bootstrap/rrun_support.hpp"

namespace rapidsmpf {
namespace {

using test::Child;
using test::contains;
using test::has_ended;
using test::Outcome;
using test::rrun_command;
using test::run_rrun;
using test::sorted_lines;

std::vector<std::string> shell(std::string const& n, std::string const& script) {
    return {"-n", n, "sh", "-c", script};
}

TEST(RrunCommandLine, MistakesAreToldAndGiveTwo) {
    for (auto const& [arguments, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{}, "-n N"},
             {{"-n", "2", "--node-rank", "0", "--nnodes", "2", "--coordinator", "localhost:1", "true"},
              "RRUN_TOKEN"},
             {{"--slurm", "true"}, "SLURM_PROCID"},
             {{"true"}, "-n N"},
             {{"-n"}, "needs a value"},
             {{"-n", "0", "true"}, "not '0'"},
             {{"-n", "two", "true"}, "not 'two'"},
             {{"-n", "2"}, "program to run is missing"},
             {{"-n", "2", "--what", "true"}, "unknown option '--what'"},
             {{"-n", "2", "-x", "FOO", "true"}, "VAR=value"}}) {
        auto const outcome = run_rrun(arguments);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
        EXPECT_TRUE(contains(outcome.err, part)) << outcome.err;
        EXPECT_TRUE(outcome.err.starts_with("rrun: ")) << outcome.err;
        EXPECT_EQ(outcome.out, "");
    }
}

TEST(RrunCommandLine, HelpGoesToStandardOutput) {
    auto const outcome = run_rrun({"--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_TRUE(contains(outcome.out, "usage: rrun -n N")) << outcome.out;
}

TEST(RrunStart, CommandThatDoesNotExist) {
    auto const by_name = run_rrun({"-n", "3", "no-such-command-anywhere"});
    EXPECT_EQ(by_name.exit_code, 127);
    EXPECT_EQ(by_name.err, "rrun: command not found: no-such-command-anywhere\n");
    auto const by_path = run_rrun({"-n", "3", "./no/such/path"});
    EXPECT_EQ(by_path.exit_code, 127);
    auto const not_executable = run_rrun({"-n", "3", "/etc/passwd"});
    EXPECT_EQ(not_executable.exit_code, 126);
}

TEST(RrunStart, RanksKnowWhoTheyAre) {
    auto const outcome = run_rrun(shell(
        "3",
        "echo $RRUN_RANK $RRUN_NRANKS $RRUN_LOCAL_RANK $RRUN_LOCAL_NRANKS ${#RRUN_SOCKET_TOKEN} "
        "${RRUN_SOCKET_ADDR%:*}"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(
        sorted_lines(outcome.out),
        (std::vector<std::string>{"0 3 0 3 64 127.0.0.1", "1 3 1 3 64 127.0.0.1", "2 3 2 3 64 127.0.0.1"}));
    EXPECT_EQ(outcome.err, "");
}

TEST(RrunStart, ArgumentsAfterTheProgramAreItsOwn) {
    auto const outcome = run_rrun(
        {"-n1", "-xA=b c", "--set-env=D=", "--", "sh", "-c", "echo \"$A|$D|$*\"", "x", "-n", "--tag-output"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "b c||-n --tag-output\n");
}

TEST(RrunStart, CoresAreShared) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    ASSERT_EQ(::sched_getaffinity(0, sizeof(mine), &mine), 0);
    auto const cores = static_cast<unsigned>(CPU_COUNT(&mine));
    // nproc counts the CPUs that the process may use.
    std::vector<std::string> const no_limit{"OMP_NUM_THREADS="};
    auto const alone = run_rrun(shell("1", "nproc"), no_limit);
    EXPECT_EQ(alone.out, std::to_string(cores) + "\n");
    auto const crowded = run_rrun(shell(std::to_string(cores + 1), "nproc"), no_limit);
    EXPECT_EQ(sorted_lines(crowded.out), std::vector<std::string>(cores + 1, "1"));
    auto const unbound = run_rrun({"-n", "2", "--bind-to", "none", "nproc"}, no_limit);
    EXPECT_EQ(sorted_lines(unbound.out), std::vector<std::string>(2, std::to_string(cores)));
}

TEST(RrunStart, GpusOfTheCommandLineAreWhatRanksSee) {
    std::vector<std::string> const all_visible{"CUDA_VISIBLE_DEVICES=4,5,6"};
    auto const outcome =
        run_rrun({"-n", "3", "-g", "2,0", "sh", "-c", "echo $RRUN_RANK $CUDA_VISIBLE_DEVICES"}, all_visible);
    EXPECT_EQ(sorted_lines(outcome.out), (std::vector<std::string>{"0 6", "1 4", "2 6"})) << outcome.err;
    auto const missing = run_rrun({"-g", "3", "true"}, all_visible);
    EXPECT_EQ(missing.exit_code, 2);
    EXPECT_TRUE(contains(missing.err, "-g 3: CUDA_VISIBLE_DEVICES=4,5,6 shows 3 GPUs")) << missing.err;
}

TEST(RrunOutput, LinesAreTaggedWhole) {
    auto const outcome = run_rrun(
        {"-n", "2", "--tag-output", "sh", "-c", "printf 'a'; printf 'b\\n\\nc'; echo err$RRUN_RANK >&2"});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(
        sorted_lines(outcome.out),
        (std::vector<std::string>{"[0] ", "[0] ab", "[0] c", "[1] ", "[1] ab", "[1] c"}));
    EXPECT_EQ(sorted_lines(outcome.err), (std::vector<std::string>{"[0] err0", "[1] err1"}));
}

TEST(RrunOutput, NothingIsLostAtTheEnd) {
    auto const outcome = run_rrun({"-n", "2", "--tag-output", "sh", "-c", "seq 1 50000"});
    auto const lines = sorted_lines(outcome.out);
    ASSERT_EQ(lines.size(), 100'000U);
    EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 100'000U);
}

TEST(RrunOutput, RankZeroReadsStandardInput) {
    auto const outcome = run_rrun({"-n", "2", "--tag-output", "cat"}, {}, "hello\n");
    EXPECT_EQ(outcome.out, "[0] hello\n");
    EXPECT_EQ(outcome.exit_code, 0);
}

TEST(RrunFailure, OneLineAndTheExitCodeOfTheOneThatFailed) {
    auto const outcome = run_rrun(shell("3", "[ $RRUN_RANK = 1 ] && exit 7; exec sleep 1000"));
    EXPECT_EQ(outcome.exit_code, 7);
    EXPECT_TRUE(outcome.err.starts_with("rrun: rank 1 (pid ")) << outcome.err;
    EXPECT_TRUE(outcome.err.ends_with(") exited with code 7; ending the other ranks\n")) << outcome.err;
    EXPECT_EQ(sorted_lines(outcome.err).size(), 1U);
}

TEST(RrunFailure, SignalIsNamedAndStubbornRanksAreKilled) {
    auto const outcome = run_rrun(
        shell("3", "[ $RRUN_RANK = 2 ] && kill -9 $$; trap '' TERM INT; while :; do sleep 1000; done"));
    EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
    EXPECT_TRUE(contains(outcome.err, "rank 2 (pid ")) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "was killed by SIGKILL; ending the other ranks")) << outcome.err;
}

TEST(RrunFailure, StoppedRanksAreEndedToo) {
    auto const outcome = run_rrun(shell("2", "[ $RRUN_RANK = 1 ] && exit 4; kill -STOP $$"));
    EXPECT_EQ(outcome.exit_code, 4);
}

TEST(RrunFailure, WhatRanksStartedEndsWithThem) {
    // A rank whose shell leaves a child behind, and fails.
    Child rrun{rrun_command(shell("2", "sleep 1000 & echo child $! end; wait $!"))};
    rrun.read_until("end", 2);
    auto const child = std::stoi(rrun.out().substr(rrun.out().find("child ") + 6));
    ::kill(child, SIGUSR1);  // ends that sleep, and so its shell, with an error
    auto const outcome = rrun.wait();
    EXPECT_NE(outcome.exit_code, 0);
    for (auto const& line : sorted_lines(outcome.out)) {
        EXPECT_TRUE(has_ended(std::stoi(line.substr(6)))) << line;
    }
}

TEST(RrunFailure, KilledRrunLeavesNothingBehind) {
    Child rrun{rrun_command(shell("2", "sleep 1000 & echo $$ $! end; wait"))};
    rrun.read_until("end", 2);
    std::vector<pid_t> pids;
    std::istringstream words{rrun.out()};
    for (std::string word; words >> word;) {
        if (word != "end") {
            pids.push_back(std::stoi(word));
        }
    }
    ASSERT_EQ(pids.size(), 4U) << rrun.out();
    ::kill(rrun.pid(), SIGKILL);
    for (auto const pid : pids) {
        EXPECT_TRUE(has_ended(pid)) << pid;
    }
}

TEST(RrunSignals, ArePassedOn) {
    for (auto const& [signal, name] :
         {std::pair{SIGINT, "INT"}, std::pair{SIGTERM, "TERM"}, std::pair{SIGHUP, "HUP"},
          std::pair{SIGUSR1, "USR1"}}) {
        Child rrun{rrun_command(
            {"-n", "2", "--tag-output", "sh", "-c",
             std::string{"trap 'echo got; exit 0' "} + name + "; echo ready; while :; do sleep 0.05; done"})};
        rrun.read_until("[0] ready");
        rrun.read_until("[1] ready");
        ::kill(rrun.pid(), signal);
        auto const outcome = rrun.wait();
        EXPECT_EQ(outcome.exit_code, 0) << name << outcome.err;
        EXPECT_TRUE(contains(outcome.out, "[0] got")) << name << outcome.out;
        EXPECT_TRUE(contains(outcome.out, "[1] got")) << name << outcome.out;
    }
}

TEST(RrunSignals, GiveTheUsualExitCode) {
    Child rrun{rrun_command(shell("2", "echo ready; exec sleep 1000"))};
    rrun.read_until("ready", 2);
    ::kill(rrun.pid(), SIGTERM);
    EXPECT_EQ(rrun.wait().exit_code, 128 + SIGTERM);
}

// Ranks that hold a communicator: rank 1 of 3 ends in the middle of transfers.
struct Ending {
    std::string how;
    int exit_code;
    std::string told;  // to the survivors
    std::string line;  // of rrun
};

void PrintTo(Ending const& ending, std::ostream* out) {
    *out << ending.how;
}

class RrunVictim : public ::testing::TestWithParam<Ending> {};

TEST_P(RrunVictim, SurvivorsAreToldInTime) {
    auto const& ending = GetParam();
    auto const outcome = run_rrun({"-n", "3", RAPIDSMPF_TEST_UCXX_VICTIM, ending.how});
    EXPECT_EQ(outcome.exit_code, ending.exit_code) << outcome.err;
    for (std::string const rank : {"0", "2"}) {
        EXPECT_TRUE(contains(outcome.out, "rank " + rank + ": RankFailedError rank=1 " + ending.told))
            << outcome.out;
        EXPECT_TRUE(contains(outcome.out, "rank " + rank + ": barrier refused")) << outcome.out;
    }
    EXPECT_TRUE(contains(outcome.err, ending.line)) << outcome.err;
    EXPECT_FALSE(contains(outcome.out + outcome.err, " UCX "))
        << "UCX complains: " << outcome.out + outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    Endings, RrunVictim,
    ::testing::Values(
        Ending{
            "kill", 137, "pid=known in time reason=its process was killed by SIGKILL",
            "was killed by SIGKILL; ending the other ranks"},
        Ending{
            "exit3", 3, "pid=known in time reason=its process exited with code 3",
            "exited with code 3; ending the other ranks"},
        Ending{
            "exit0", 9,
            "pid=known in time reason=its process exited with code 0 and left its communicator open",
            "failed: its process exited with code 0 and left its communicator open"},
        Ending{"abort", 1, "pid=known in time reason=ValueError: enough", "failed: ValueError: enough"},
        Ending{"report_abort", 1, "pid=known in time reason=KeyError: 'x'", "failed: KeyError: 'x'"},
        Ending{"stay", 137, "pid=known in time reason=stuck", "failed: stuck; ending the other ranks"},
        Ending{
            "leave", 9, "pid=unknown in time reason=it closed its communicator while", "exited with code 9"}),
    [](auto const& ending) { return ending.param.how; });

TEST(RrunBootstrap, RankThatEndsBeforeItJoinsIsAFailure) {
    auto const outcome = run_rrun({"-n", "3", RAPIDSMPF_TEST_UCXX_VICTIM, "absent"});
    EXPECT_EQ(outcome.exit_code, 9);
    EXPECT_TRUE(contains(outcome.out, "its process ended before it joined the communicator")) << outcome.out;
}

TEST(RrunBootstrap, RankThatDoesNotComeIsNamed) {
    auto const outcome = run_rrun({"-n", "3", RAPIDSMPF_TEST_UCXX_VICTIM, "late"});
    EXPECT_EQ(outcome.exit_code, 9);
    // Of ranks 0 and 2 one may come too late as well.
    EXPECT_TRUE(
        std::regex_search(
            outcome.out, std::regex{"rank 1 did not come|ranks (0 and 1|1 and 2) did not come"}))
        << outcome.out;
}

TEST(RrunBootstrap, OutsideOfRrunTheErrorSaysWhatToDo) {
    Child alone{{RAPIDSMPF_TEST_UCXX_VICTIM, "kill"}};
    auto const outcome = alone.wait();
    EXPECT_NE(outcome.exit_code, 0);
}

TEST(RrunBootstrap, NothingStaysInSharedMemory) {
    // In a folder of its own, so that other jobs do not matter.
    auto name = (std::filesystem::temp_directory_path() / "rrun-shm-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    auto const outcome = run_rrun(
        {"-n", "3", RAPIDSMPF_TEST_UCXX_VICTIM, "kill"}, {"UCX_TLS=posix,cma,self", "UCX_POSIX_DIR=" + name});
    EXPECT_EQ(outcome.exit_code, 137) << outcome.err;
    EXPECT_TRUE(std::filesystem::is_empty(name));
    std::filesystem::remove_all(name);
}

}  // namespace
}  // namespace rapidsmpf
