// The parts of rrun that are no process: command line, shares of the CPUs, tagged lines.
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "rrun/cpu_share.hpp"
#include "rrun/options.hpp"
#include "rrun/output.hpp"

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
    EXPECT_EQ(parse({"-n", "2", "-h", "what"}).action, Action::show_help);
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
             {"-n", "2", "-x"}}) {
        EXPECT_THROW(static_cast<void>(parse_command_line(arguments)), UsageError);
    }
}

TEST(CpuShare, SharesAreEqualContiguousAndComplete) {
    for (int count = 1; count <= 20; ++count) {
        std::vector<int> cpus(static_cast<std::size_t>(count));
        std::iota(cpus.begin(), cpus.end(), 100);
        for (int nranks = 1; nranks <= count; ++nranks) {
            std::vector<int> all;
            for (int rank = 0; rank < nranks; ++rank) {
                auto const share = cpu_share(cpus, rank, nranks);
                EXPECT_GE(share.size(), static_cast<std::size_t>(count / nranks));
                EXPECT_LE(share.size(), static_cast<std::size_t>(count / nranks + 1));
                all.insert(all.end(), share.begin(), share.end());
            }
            EXPECT_EQ(all, cpus) << nranks << " ranks";
        }
    }
}

TEST(CpuShare, MoreRanksThanCpusTakeTurns) {
    std::vector<int> const cpus{4, 5, 7};
    for (int rank = 0; rank < 8; ++rank) {
        EXPECT_EQ(cpu_share(cpus, rank, 8), std::vector<int>{cpus[static_cast<std::size_t>(rank) % 3]});
    }
    EXPECT_TRUE(cpu_share({}, 0, 1).empty());
}

TEST(CpuShare, UsableCpusAreThoseOfTheProcess) {
    auto const cpus = usable_cpus();
    ASSERT_FALSE(cpus.empty());
    EXPECT_EQ(bind_to_cpus(cpus), 0);
}

TEST(CpuShare, Format) {
    EXPECT_EQ(format_cpus({}), "");
    EXPECT_EQ(format_cpus({3}), "3");
    EXPECT_EQ(format_cpus({5, 0, 1, 2, 7, 8}), "0-2,5,7-8");
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
