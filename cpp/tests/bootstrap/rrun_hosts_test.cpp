// Jobs on several hosts. The hosts are this one: by a program that behaves like ssh, and by one rrun for each.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>
#include <rapidsmpf/core/error.hpp>

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

namespace fs = std::filesystem;

class TemporaryFolder {
  public:
    TemporaryFolder() {
        auto name = (fs::temp_directory_path() / "rrun-hosts-XXXXXX").string();
        EXPECT_NE(::mkdtemp(name.data()), nullptr);
        path_ = name;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    TemporaryFolder(TemporaryFolder const&) = delete;
    TemporaryFolder& operator=(TemporaryFolder const&) = delete;
    [[nodiscard]] fs::path const& path() const { return path_; }

  private:
    fs::path path_;
};

// Like ssh, runs a command by a shell, as a process of its own, in another folder.
class FakeSsh {
  public:
    FakeSsh() : path_{folder_.path() / "ssh"} {
        std::ofstream{path_} << "#!/bin/sh\n"
                                "[ \"$1\" = unreachable ] && { echo no route to $1 >&2; exit 255; }\n"
                                "echo \"ssh-pid $$\" >&2\n"
                                "cd /\n"
                                "shift\n"
                                "sh -c \"$*\"\n"
                                "exit $?\n";
        fs::permissions(path_, fs::perms::owner_all);
    }
    // rrun with these hosts.
    [[nodiscard]] std::vector<std::string> command(
        std::string const& hosts, std::vector<std::string> const& arguments) const {
        auto all =
            rrun_command({"--hosts", hosts, "--ssh-command", path_.string(), "--coordinator", "127.0.0.1"});
        all.insert(all.end(), arguments.begin(), arguments.end());
        return all;
    }
    [[nodiscard]] Outcome run(std::string const& hosts, std::vector<std::string> const& arguments) const {
        Child child{command(hosts, arguments)};
        return child.wait();
    }

  private:
    TemporaryFolder folder_;
    fs::path path_;
};

// The numbers behind each "word " in the text, in order.
std::vector<pid_t> numbers_after(std::string const& text, std::string const& word) {
    std::vector<pid_t> numbers;
    for (auto at = text.find(word + " "); at != std::string::npos; at = text.find(word + " ", at + 1)) {
        numbers.push_back(std::stoi(text.substr(at + word.size() + 1)));
    }
    return numbers;
}

// Ranks that stay, and say so: "rank-pid 1 agent-pid 2 child-pid 3 ready".
std::vector<std::string> staying() {
    return {"sh", "-c", "sleep 1000 & echo \"rank-pid $$ agent-pid $PPID child-pid $! ready\"; wait"};
}

void expect_all_ended(std::string const& out) {
    for (std::string const word : {"rank-pid", "agent-pid", "child-pid"}) {
        for (auto const pid : numbers_after(out, word)) {
            EXPECT_TRUE(has_ended(pid)) << word << " " << pid;
        }
    }
}

TEST(RrunHosts, RanksAreNumberedOverTheHosts) {
    FakeSsh const ssh;
    auto const outcome = ssh.run(
        "nodea:2,nodeb:1,localhost:1", {"--tag-output", "-x", "GREETING=a b", "sh", "-c",
                                        "echo $RRUN_NRANKS $RRUN_LOCAL_RANK/$RRUN_LOCAL_NRANKS "
                                        "$RRUN_NODE_RANK/$RRUN_NNODES $GREETING; pwd"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    auto const here = fs::current_path().string();
    std::vector<std::string> expected{
        "[0] 4 0/2 0/3 a b", "[1] 4 1/2 0/3 a b", "[2] 4 0/1 1/3 a b", "[3] 4 0/1 2/3 a b"};
    for (int rank = 0; rank < 4; ++rank) {
        expected.push_back("[" + std::to_string(rank) + "] " + here);
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(sorted_lines(outcome.out), expected);
}

TEST(RrunHosts, TokenIsOnNoCommandLine) {
    FakeSsh const ssh;
    auto const outcome = ssh.run(
        "nodea:1",
        {"sh", "-c", "printf %s \"$RRUN_SOCKET_TOKEN\" | grep -alFf - /proc/[0-9]*/cmdline; echo end"});
    EXPECT_EQ(outcome.out, "end\n") << outcome.err;
}

TEST(RrunHosts, NothingIsLostAtTheEnd) {
    FakeSsh const ssh;
    auto const outcome = ssh.run("nodea:1,nodeb:1", {"--tag-output", "sh", "-c", "seq 1 20000"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(sorted_lines(outcome.out).size(), 40'000U);
}

TEST(RrunHosts, FirstFailureEndsAllAndIsTheExitCode) {
    FakeSsh const ssh;
    auto const outcome =
        ssh.run("nodea:2,nodeb:2", {"sh", "-c", "[ $RRUN_RANK = 2 ] && exit 7; exec sleep 1000"});
    EXPECT_EQ(outcome.exit_code, 7);
    EXPECT_TRUE(contains(outcome.err, "rrun: rank 2 (pid ")) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "exited with code 7; ending the other ranks\n")) << outcome.err;
    EXPECT_EQ(numbers_after(outcome.err, "exited with code").size(), 1U) << outcome.err;
}

TEST(RrunHosts, ProgramThatIsNotThere) {
    FakeSsh const ssh;
    auto const outcome = ssh.run("nodea:1,localhost:1", {"no-such-command-anywhere"});
    EXPECT_EQ(outcome.exit_code, 127);
    EXPECT_TRUE(contains(outcome.err, "command not found: no-such-command-anywhere")) << outcome.err;
}

TEST(RrunHosts, HostThatCannotBeReachedIsNamed) {
    FakeSsh const ssh;
    auto const outcome = ssh.run("nodea:1,unreachable:2", {"true"});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(contains(outcome.err, "no route to unreachable")) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "host unreachable: rrun did not start there")) << outcome.err;
}

TEST(RrunHosts, RrunThatIsNotThere) {
    FakeSsh const ssh;
    auto const outcome = ssh.run("nodea:1", {"--remote-rrun", "/no/such/rrun", "true"});
    EXPECT_EQ(outcome.exit_code, 127);
    EXPECT_TRUE(contains(outcome.err, "host nodea: rrun did not start there")) << outcome.err;
}

TEST(RrunHosts, DeathOfAHostsRrunEndsTheJob) {
    FakeSsh const ssh;
    Child rrun{ssh.command("nodea:1,nodeb:1", staying())};
    rrun.read_until("ready", 2);
    ::kill(numbers_after(rrun.out(), "agent-pid").front(), SIGKILL);
    auto const outcome = rrun.wait();
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "host node")) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "ending the job")) << outcome.err;
    expect_all_ended(outcome.out);
}

TEST(RrunHosts, DeathOfSshEndsTheJob) {
    FakeSsh const ssh;
    Child rrun{ssh.command("nodea:1,nodeb:1", staying())};
    rrun.read_until("ready", 2);
    ::kill(numbers_after(rrun.err(), "ssh-pid").at(0), SIGKILL);
    auto const outcome = rrun.wait();
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    // Whichever end notices first.
    EXPECT_TRUE(
        contains(outcome.err, "was killed by SIGKILL while its ranks ran")
        || contains(outcome.err, "what rrun was started by there (ssh) is gone"))
        << outcome.err;
    expect_all_ended(outcome.out);
}

TEST(RrunHosts, DeathOfTheHeadLeavesNothing) {
    FakeSsh const ssh;
    Child rrun{ssh.command("nodea:1,localhost:1", staying())};
    rrun.read_until("ready", 2);
    ::kill(rrun.pid(), SIGKILL);
    expect_all_ended(rrun.out());
}

TEST(RrunHosts, SignalsReachAllRanks) {
    FakeSsh const ssh;
    Child rrun{ssh.command(
        "nodea:1,nodeb:1", {"--tag-output", "sh", "-c",
                            "trap 'echo got; exit 0' TERM; echo ready; while :; do sleep 0.05; done"})};
    rrun.read_until("ready", 2);
    ::kill(rrun.pid(), SIGTERM);
    auto const outcome = rrun.wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(contains(outcome.out, "[0] got") && contains(outcome.out, "[1] got")) << outcome.out;
}

TEST(RrunHosts, RanksWithACommunicatorAreTold) {
    FakeSsh const ssh;
    auto const outcome = ssh.run("nodea:2,nodeb:1", {RAPIDSMPF_TEST_UCXX_VICTIM, "kill"});
    EXPECT_EQ(outcome.exit_code, 137) << outcome.err;
    for (std::string const rank : {"0", "2"}) {
        EXPECT_TRUE(contains(outcome.out, "rank " + rank + ": RankFailedError rank=1 pid=known in time"))
            << outcome.out;
    }
}

// One rrun for each host.
class OneRrunPerHost : public ::testing::Test {
  protected:
    // A port that no process has, below those that the kernel gives to others meanwhile.
    static std::string free_address() {
        constexpr int first = 20'000;
        constexpr int count = 12'000;
        static int tried = 0;
        for (;;) {
            auto const port = static_cast<std::uint16_t>(first + (7 * ::getpid() + tried++) % count);
            try {
                return bootstrap::bound_address(bootstrap::listen_on({"127.0.0.1", port})).str();
            } catch (SystemError const&) {
                continue;
            }
        }
    }
    [[nodiscard]] std::vector<std::string> node(
        int number, std::vector<std::string> const& where, std::vector<std::string> const& arguments) const {
        auto command = rrun_command({"-n", "2", "--nnodes", "2", "--node-rank", std::to_string(number)});
        command.insert(command.end(), where.begin(), where.end());
        command.insert(command.end(), arguments.begin(), arguments.end());
        return command;
    }
    std::string const token_{"RRUN_TOKEN=" + Token::random().hex()};
};

TEST_F(OneRrunPerHost, MeetsAtTheCoordinator) {
    std::vector<std::string> const where{"--coordinator", free_address()};
    std::vector<std::string> const program{"sh", "-c", "echo $RRUN_RANK/$RRUN_NRANKS $RRUN_NODE_RANK"};
    Child late{node(1, where, program), {token_}};  // the later number may come first
    Child head{node(0, where, program), {token_}};
    auto const first = head.wait();
    auto const second = late.wait();
    EXPECT_EQ(first.exit_code, 0) << first.err;
    EXPECT_EQ(second.exit_code, 0) << second.err;
    EXPECT_EQ(sorted_lines(first.out), (std::vector<std::string>{"0/4 0", "1/4 0"}));
    EXPECT_EQ(sorted_lines(second.out), (std::vector<std::string>{"2/4 1", "3/4 1"}));
}

TEST_F(OneRrunPerHost, AllEndWithTheExitCodeOfTheFailure) {
    std::vector<std::string> const where{"--coordinator", free_address()};
    std::vector<std::string> const program{"sh", "-c", "[ $RRUN_RANK = 3 ] && exit 5; exec sleep 1000"};
    Child head{node(0, where, program), {token_}};
    Child other{node(1, where, program), {token_}};
    EXPECT_EQ(other.wait().exit_code, 5);
    auto const outcome = head.wait();
    EXPECT_EQ(outcome.exit_code, 5);
    EXPECT_TRUE(contains(outcome.err, "rank 3 (pid ")) << outcome.err;
}

TEST_F(OneRrunPerHost, MeetsInAFolder) {
    TemporaryFolder const folder;
    auto const place = (folder.path() / "job").string();
    // What an earlier job has left there is no reason to fail.
    fs::create_directory(place);
    std::ofstream{fs::path{place} / "coordinator"} << "127.0.0.1:1\n" << Token::random().hex() << "\n";
    Child late{node(1, {"-d", place}, {"sh", "-c", "echo $RRUN_RANK"})};
    Child head{node(0, {"-d", place}, {"sh", "-c", "echo $RRUN_RANK $RRUN_COORD_DIR"})};
    EXPECT_EQ(sorted_lines(head.wait().out), (std::vector<std::string>{"0 " + place, "1 " + place}));
    EXPECT_EQ(sorted_lines(late.wait().out), (std::vector<std::string>{"2", "3"}));
    EXPECT_FALSE(fs::exists(place));
}

TEST_F(OneRrunPerHost, WrongTokenIsRefusedAndTheJobGoesOn) {
    auto const address = free_address();
    std::vector<std::string> const where{"--coordinator", address};
    Child head{node(0, where, {"echo", "ran"}), {token_}};
    Child stranger{node(1, where, {"echo", "stranger"}), {"RRUN_TOKEN=" + Token::random().hex()}};
    auto const refused = stranger.wait();
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_EQ(refused.out, "");
    EXPECT_TRUE(contains(refused.err, "another token")) << refused.err;
    Child other{node(1, where, {"echo", "ran"}), {token_}};
    EXPECT_EQ(other.wait().exit_code, 0);
    auto const outcome = head.wait();
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.out, "ran\nran\n");
    EXPECT_TRUE(contains(outcome.err, "wrong token")) << outcome.err;
}

TEST_F(OneRrunPerHost, DeathOfEitherEndsBoth) {
    for (bool const head_dies : {true, false}) {
        std::vector<std::string> const where{"--coordinator", free_address()};
        Child head{node(0, where, staying()), {token_}};
        Child other{node(1, where, staying()), {token_}};
        head.read_until("ready", 2);
        other.read_until("ready", 2);
        ::kill(head_dies ? head.pid() : other.pid(), SIGKILL);
        auto& survivor = head_dies ? other : head;
        EXPECT_EQ(survivor.wait().exit_code, 1);
        expect_all_ended(head.out() + other.out());
    }
}

TEST_F(OneRrunPerHost, SlurmSaysWhoIsWho) {
    auto const task = [&](int number) {
        return std::vector<std::string>{
            token_,
            "SLURM_PROCID=" + std::to_string(number),
            "SLURM_NTASKS=2",
            "SLURM_LOCALID=" + std::to_string(number),
            "SLURM_TASKS_PER_NODE=2",
            "SLURM_JOB_ID=12",
            "SLURM_JOB_NODELIST=localhost"};
    };
    auto const command = rrun_command(
        {"--slurm", "--coordinator", free_address(), "sh", "-c",
         "echo $RRUN_RANK/$RRUN_NRANKS $RRUN_LOCAL_RANK/$RRUN_LOCAL_NRANKS"});
    Child first{command, task(0)};
    Child second{command, task(1)};
    EXPECT_EQ(first.wait().out, "0/2 0/2\n");
    EXPECT_EQ(second.wait().out, "1/2 1/2\n");
}

TEST_F(OneRrunPerHost, TokenFileThatOthersCanReadIsRefused) {
    TemporaryFolder const folder;
    auto const file = (folder.path() / "token").string();
    std::ofstream{file} << Token::random().hex() << "\n";
    fs::permissions(file, fs::perms::owner_read | fs::perms::group_read);
    std::vector<std::string> const where{"--coordinator", "127.0.0.1:1", "--token-file", file};
    Child readable{node(1, where, {"true"})};
    auto const outcome = readable.wait();
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(contains(outcome.err, "chmod 600")) << outcome.err;
}

}  // namespace
}  // namespace rapidsmpf
