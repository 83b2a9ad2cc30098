// The parts of rrun that are no process: command line, GPUs, hosts, launch specifications, tagged lines.
#include <array>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>

#include "rrun/host.hpp"
#include "rrun/launch_spec.hpp"
#include "rrun/options.hpp"
#include "rrun/output.hpp"
#include "rrun/placement.hpp"
#include "rrun/rendezvous_file.hpp"

namespace rapidsmpf::rrun {
namespace {

CommandLine parse(std::initializer_list<char const*> arguments) {
    return parse_command_line({arguments.begin(), arguments.size()});
}

TEST(CommandLine, Everything) {
    auto const line =
        parse({"-n", "4", "--tag-output", "-v", "-x", "A=1", "--set-env", "B=x=y", "--", "prog", "-n", "9"});
    EXPECT_EQ(line.action, Action::run);
    EXPECT_EQ(line.nranks, 4);
    EXPECT_EQ(line.tag_output, TagOutput::yes);
    EXPECT_EQ(line.verbose, Verbose::yes);
    EXPECT_EQ(line.environment, (std::vector<std::pair<std::string, std::string>>{{"A", "1"}, {"B", "x=y"}}));
    EXPECT_EQ(line.command, (std::vector<std::string>{"prog", "-n", "9"}));
}

TEST(CommandLine, OptionsEndAtTheProgram) {
    auto const line = parse({"-n2", "prog", "--tag-output", "--", "-x"});
    EXPECT_EQ(line.tag_output, TagOutput::no);
    EXPECT_EQ(line.command, (std::vector<std::string>{"prog", "--tag-output", "--", "-x"}));
}

TEST(CommandLine, HelpNeedsNothingElse) {
    EXPECT_EQ(parse({"--help"}).action, Action::show_help);
    EXPECT_EQ(parse({"--version"}).action, Action::show_version);
    EXPECT_EQ(parse({"-n", "2", "-h", "what"}).action, Action::show_help);
}

TEST(CommandLine, BindingsAddUp) {
    EXPECT_EQ(parse({"-n", "1", "p"}).bind_to, (BindTo{true, true, true}));
    EXPECT_EQ(parse({"-n", "1", "--bind-to", "none", "p"}).bind_to, (BindTo{false, false, false}));
    EXPECT_EQ(
        parse({"-n", "1", "--bind-to", "cpu", "--bind-to=network", "p"}).bind_to,
        (BindTo{true, false, true}));
    EXPECT_EQ(parse({"-n", "1", "--bind-to", "memory,cpu", "p"}).bind_to, (BindTo{true, true, false}));
    EXPECT_EQ(parse({"-n", "1", "--bind-to", "cpu", "--bind-to", "all", "p"}).bind_to, BindTo{});
}

TEST(CommandLine, GpusGiveTheNumberOfRanks) {
    auto const line = parse({"-g", "0,GPU-12,3", "-d/tmp/x", "--no-cleanup", "p"});
    EXPECT_EQ(line.nranks, 3);
    EXPECT_EQ(line.gpus, (std::vector<std::string>{"0", "GPU-12", "3"}));
    EXPECT_EQ(line.coordination_dir, "/tmp/x");
    EXPECT_EQ(line.cleanup, Cleanup::no);
    EXPECT_EQ(parse({"-n", "2", "-g", "5", "p"}).nranks, 2);
}

TEST(CommandLine, SeveralHosts) {
    auto const line = parse(
        {"--hosts", "a:4,b,10.0.0.1:2", "--ssh-command", "ssh -p 2222", "--remote-rrun", "/opt/rrun",
         "--coordinator", ":4711", "p"});
    EXPECT_EQ(line.hosts, (std::vector<HostSpec>{{"a", 4}, {"b", 1}, {"10.0.0.1", 2}}));
    EXPECT_EQ(line.ssh_command, (std::vector<std::string>{"ssh", "-p", "2222"}));
    EXPECT_EQ(line.remote_rrun, "/opt/rrun");
    EXPECT_EQ(line.coordinator->host, "");
    EXPECT_EQ(line.coordinator->port, 4711);
    auto const node = parse(
        {"-n", "2", "--node-rank", "1", "--nnodes=3", "--coordinator", "head:80", "--token-file", "t", "p"});
    EXPECT_EQ(node.node_rank, 1);
    EXPECT_EQ(node.nnodes, 3);
    EXPECT_EQ(node.coordinator->host, "head");
    EXPECT_EQ(node.token_file, "t");
    EXPECT_EQ(parse({"--slurm", "p"}).nranks, 1);
}

TEST(CommandLine, NodeGetsTheSameWithoutSecrets) {
    auto const line = parse(
        {"-n", "9", "-g", "1,0", "-d", "/d", "--tag-output", "-v", "-x", "PASSWORD=secret", "--bind-to",
         "memory", "p", "-n"});
    auto const arguments = arguments_for_node(line, 3);
    std::vector<char const*> pointers;
    for (auto const& argument : arguments) {
        EXPECT_EQ(argument.find("secret"), std::string::npos);
        pointers.push_back(argument.c_str());
    }
    auto const node = parse_command_line(pointers);
    EXPECT_EQ(node.nranks, 3);
    EXPECT_EQ(node.coordination_dir, line.coordination_dir);
    EXPECT_EQ(node.gpus, line.gpus);
    EXPECT_EQ(node.tag_output, line.tag_output);
    EXPECT_EQ(node.verbose, line.verbose);
    EXPECT_EQ(node.bind_to, line.bind_to);
    EXPECT_EQ(node.command, line.command);
}

TEST(Gpus, AreCountedAsCudaCountsThem) {
    using Names = std::vector<std::string>;
    EXPECT_EQ(choose_gpus({}, nullptr, 3), (Names{"0", "1", "2"}));
    EXPECT_EQ(choose_gpus({"2", "0"}, nullptr, 3), (Names{"2", "0"}));
    EXPECT_EQ(choose_gpus({}, "5,GPU-a", 8), (Names{"5", "GPU-a"}));
    EXPECT_EQ(choose_gpus({"1", "0"}, "5,GPU-a", 8), (Names{"GPU-a", "5"}));
    EXPECT_EQ(choose_gpus({"GPU-b"}, "5", 8), Names{"GPU-b"});
    EXPECT_TRUE(choose_gpus({}, "", 8).empty()) << "the user hides them all";
    EXPECT_TRUE(choose_gpus({}, "-1,2", 8).empty());
    EXPECT_THROW(static_cast<void>(choose_gpus({"2"}, "5,6", 8)), UsageError);
}

TEST(Hosts, ThatAreNamedTwiceShareTheirMachine) {
    auto const hosts = hosts_of({{"a", 2}, {"localhost", 1}, {"a", 3}});
    EXPECT_EQ(hosts[0].kind, HostKind::remote);
    EXPECT_EQ(hosts[1].kind, HostKind::here);
    EXPECT_EQ(hosts[2].seats.first, 2);
    EXPECT_EQ(hosts[2].seats.count, 3);
    EXPECT_EQ(hosts[2].seats.on_host, 5);
    CommandLine line;
    line.remote_rrun = "/it's/rrun";
    EXPECT_EQ(
        command_for(hosts[0], line),
        (std::vector<std::string>{"ssh", "-o", "BatchMode=yes", "a", "'/it'\\''s/rrun' --obey"}));
}

class Pipe {
  public:
    Pipe() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
    ~Pipe() {
        ::close(ends_[0]);
        close_writing();
    }
    Pipe(Pipe const&) = delete;
    Pipe& operator=(Pipe const&) = delete;
    [[nodiscard]] int reading() const { return ends_[0]; }
    void write(bootstrap::Bytes const& bytes) const {
        EXPECT_EQ(::write(ends_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
    void close_writing() {
        if (ends_[1] >= 0) {
            ::close(std::exchange(ends_[1], -1));
        }
    }

  private:
    std::array<int, 2> ends_{-1, -1};
};

TEST(LaunchSpec, ArriveWholeAndNothingElseIsRead) {
    LaunchSpec spec;
    spec.address = "10.0.0.1:4711";
    spec.token = "token";
    spec.node_rank = 2;
    spec.nnodes = 3;
    spec.seats = LocalSeats{4, 2, 8};
    spec.directory = "/a/b";
    spec.environment = {"A=1", "B="};
    spec.variables = {"C=x\ny"};
    spec.arguments = {"-n", "2", "--", "p", ""};
    Pipe pipe;
    pipe.write(spec.encode());
    pipe.write({'x'});
    auto const read = LaunchSpec::read_from(pipe.reading());
    EXPECT_EQ(read.encode(), spec.encode());
    EXPECT_EQ(read.seats.on_host, 8);
    EXPECT_EQ(read.arguments, spec.arguments);
    std::array<char, 2> rest{};
    EXPECT_EQ(::read(pipe.reading(), rest.data(), rest.size()), 1) << "the lifeline";
}

TEST(LaunchSpec, AreRefusedWhenTheyAreNone) {
    for (bootstrap::Bytes const& bytes :
         {bootstrap::Bytes{}, bootstrap::Bytes(8, 0), bootstrap::Bytes(100, 'a')}) {
        Pipe pipe;
        pipe.write(bytes);
        pipe.close_writing();
        EXPECT_ANY_THROW(static_cast<void>(LaunchSpec::read_from(pipe.reading())));
    }
    auto cut = LaunchSpec{}.encode();
    cut.pop_back();
    Pipe pipe;
    pipe.write(cut);
    pipe.close_writing();
    EXPECT_THROW(static_cast<void>(LaunchSpec::read_from(pipe.reading())), std::runtime_error);
}

TEST(RendezvousFiles, LeaveNothingButForNoCleanup) {
    auto name = (std::filesystem::temp_directory_path() / "rrun-rendezvous-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    auto const folder = std::filesystem::path{name} / "job";
    EXPECT_FALSE(read_rendezvous(folder));
    Rendezvous const rendezvous{bootstrap::SocketAddress{"10.0.0.1", 4711}, Token::random()};
    {
        RendezvousFile const place{folder, rendezvous, Cleanup::yes};
        auto const read = read_rendezvous(folder);
        ASSERT_TRUE(read);
        EXPECT_EQ(read->address.str(), "10.0.0.1:4711");
        EXPECT_TRUE(read->token.matches(rendezvous.token));
        auto const mode = std::filesystem::status(folder / "coordinator").permissions();
        EXPECT_EQ(mode & std::filesystem::perms::group_read, std::filesystem::perms::none);
        EXPECT_EQ(mode & std::filesystem::perms::others_read, std::filesystem::perms::none);
    }
    EXPECT_FALSE(std::filesystem::exists(folder));
    {
        RendezvousFile const place{folder, rendezvous, Cleanup::no};
    }
    EXPECT_TRUE(read_rendezvous(folder));
    std::ofstream{folder / "coordinator"} << "something\nelse\n";
    EXPECT_FALSE(read_rendezvous(folder));
    std::filesystem::remove_all(name);
}

TEST(CommandLine, Mistakes) {
    for (auto const& arguments : std::vector<std::vector<char const*>>{
             {},
             {"prog"},
             {"-n", "2"},
             {"-n", "2", "--"},
             {"-n"},
             {"-n", "-1", "p"},
             {"-n", "", "p"},
             {"-n", "1e3", "p"},
             {"-n", "99999", "p"},
             {"-np", "2", "p"},
             {"-n", "2", "-x", "=1", "p"},
             {"-n", "2", "-x", "RRUN_RANK=1", "p"},
             {"-n", "2", "-q", "p"},
             {"-n", "2", "-x"},
             {"-n", "2", "--bind-to", "disk", "p"},
             {"-n", "2", "-g", "", "p"},
             {"-n", "2", "--hosts", "a:2,b:1", "p"},
             {"--hosts", "-oProxyCommand=x", "p"},
             {"--hosts", "a;b", "p"},
             {"--hosts", "a:0", "p"},
             {"--hosts", "", "p"},
             {"--hosts", "a", "--slurm", "p"},
             {"-n", "2", "--node-rank", "0", "p"},
             {"-n", "2", "--nnodes", "2", "p"},
             {"-n", "2", "--node-rank", "2", "--nnodes", "2", "-d", "x", "p"},
             {"-n", "2", "--node-rank", "1", "--nnodes", "2", "p"},
             {"-n", "2", "--node-rank", "1", "--nnodes", "2", "--coordinator", "a", "p"},
             {"-n", "2", "--coordinator", "a:1", "p"},
             {"-n", "2", "--node-rank", "1", "--nnodes", "2", "--coordinator", "a:70000", "p"},
             {"--slurm", "--node-rank", "0", "p"}}) {
        EXPECT_THROW(static_cast<void>(parse_command_line(arguments)), UsageError);
    }
}

TEST(LineTagger, WholeLinesOnly) {
    LineTagger tagger{"[3] "};
    EXPECT_EQ(tagger.append("a"), "");
    EXPECT_EQ(tagger.append("b\ncd"), "[3] ab\n");
    EXPECT_EQ(tagger.append("\n\ne\n"), "[3] cd\n[3] \n[3] e\n");
    EXPECT_EQ(tagger.append("end"), "");
    EXPECT_EQ(tagger.finish(), "[3] end\n");
    EXPECT_EQ(tagger.finish(), "");
}

TEST(LineTagger, EndlessLineIsPassedOnInPieces) {
    LineTagger tagger{"> "};
    std::string const piece(LineTagger::longest_line, 'x');
    EXPECT_EQ(tagger.append(piece), "");
    EXPECT_EQ(tagger.append("yz\n"), "> " + piece + "\n> yz\n");
}

TEST(OutputSink, KeepsWhatDoesNotFitAndWritesItLater) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    OutputSink sink{ends[1]};
    std::string const text(300'000, 'x');
    sink.add(text);
    sink.write_some();
    EXPECT_TRUE(sink.has_waiting()) << "a pipe does not hold so much";
    std::string got;
    std::vector<char> bytes(65536);
    while (got.size() < text.size()) {
        auto const count = ::read(ends[0], bytes.data(), bytes.size());
        ASSERT_GT(count, 0);
        got.append(bytes.data(), static_cast<std::size_t>(count));
        sink.write_some();
    }
    EXPECT_EQ(got, text);
    EXPECT_FALSE(sink.has_waiting());
    ::close(ends[0]);
    ::close(ends[1]);
}

TEST(OutputSink, IsBrokenWhenNobodyReads) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    ::close(ends[0]);
    auto const before = ::signal(SIGPIPE, SIG_IGN);
    OutputSink sink{ends[1]};
    sink.add("text");
    sink.write_some();
    EXPECT_TRUE(sink.is_broken());
    EXPECT_FALSE(sink.has_waiting());
    ::signal(SIGPIPE, before);
    ::close(ends[1]);
}

}  // namespace
}  // namespace rapidsmpf::rrun
