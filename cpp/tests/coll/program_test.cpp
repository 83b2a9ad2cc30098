// Random programs: a few collectives one after the other or at once, on a random number of ranks, with random delay
// and reordering, and in some of them a rank that dies or leaves. Everything follows from the seed. Whatever happens,
// every rank ends: with the right results, or with the error that names the rank at fault.
//
// RAPIDSMPF_TEST_PROGRAMS is how many are run (`make test-long` runs many).
#include <algorithm>
#include <cstdlib>
#include <optional>

#include <gtest/gtest.h>

#include <rapidsmpf/communicator/loopback.hpp>

#include "coll/loopback_ranks.hpp"
#include "coll/steps.hpp"

namespace rapidsmpf::suite {
namespace {

constexpr std::uint64_t shards = 8;

std::uint64_t programs() {
    char const* const text = std::getenv("RAPIDSMPF_TEST_PROGRAMS");
    return text == nullptr ? schedules(1'200) : std::strtoull(text, nullptr, 10);
}

struct Program {
    explicit Program(std::uint64_t seed_) : seed{seed_} {
        Draw draw{seed * 2 + 1};
        nranks = static_cast<Rank>(1 + draw(5));
        steps = 1 + draw(3);
        at_once = draw(4) == 0;
        faults.seed = draw(~std::uint64_t{0});
        faults.delay_probability = std::array{0.0, 0.2, 0.7}[draw(3)];
        faults.longest_delay = std::array{5U, 40U, 150U}[draw(3)];
        auto const culprit = static_cast<Rank>(draw(static_cast<std::uint64_t>(nranks)));
        switch (draw(5)) {
            case 0:
                faults.dying_rank = culprit;
                faults.dies_after = draw(60);
                break;
            case 1:
                leaver = culprit;
                leaves_before = draw(steps);
                break;
            default:
                break;
        }
    }

    void run(std::shared_ptr<Communicator>& comm) const {
        bool const leaves = leaver == comm->rank();
        if (at_once && !leaver) {
            run_at_once(comm);
            return;
        }
        if (leaver) {
            barrier_step(comm, 5, Draw{seed});
        }
        for (std::uint64_t step = 0; step < steps; ++step) {
            if (leaves && step == leaves_before) {
                comm.reset();
                return;
            }
            random_step(comm, static_cast<OpId>(step % 2), seed * 10 + step);
        }
        if (leaver) {
            barrier_step(comm, 5, Draw{seed});  // a rank may need nothing in the others
        }
    }

    void run_at_once(std::shared_ptr<Communicator> const& comm) const {
        std::vector<std::thread> threads;
        std::vector<std::exception_ptr> errors(steps);
        for (std::uint64_t step = 0; step < steps; ++step) {
            threads.emplace_back([&, step] {
                try {
                    random_step(comm, static_cast<OpId>(step), seed * 10 + step);
                } catch (RankFailedError const&) {
                    errors[step] = std::current_exception();
                } catch (std::exception const& error) {
                    errors[step] = std::current_exception();
                    comm->abort(error.what());  // the other steps end, too
                }
            });
        }
        for (auto& thread : threads) {
            thread.join();
        }
        for (auto const& error : errors) {
            if (error) {
                std::rethrow_exception(error);
            }
        }
    }

    // What is wrong with how a rank ended; empty: nothing.
    [[nodiscard]] std::string judge(Rank rank, Ending const& ending) const {
        std::string const text = "seed " + std::to_string(seed) + ", rank " + std::to_string(rank) + " of "
                                 + std::to_string(nranks) + ": ";
        if (faults.dying_rank) {
            // It may have been through before.
            bool const right =
                ending.error.empty()
                || (ending.rank_failed && blames(ending, *faults.dying_rank, "killed by the test"));
            return right ? "" : text + ending.error;
        }
        if (leaver && rank != *leaver) {
            // Of that rank, or of one that has raised for that, and so left, too.
            bool const right =
                ending.rank_failed && ending.error.find(" failed: it left before ") != std::string::npos;
            return right ? "" : text + (ending.error.empty() ? "no error" : ending.error);
        }
        return ending.error.empty() ? "" : text + ending.error;
    }

    static bool blames(Ending const& ending, Rank rank, std::string const& reason) {
        return ending.error.find("rank " + std::to_string(rank) + " failed: " + reason) == 0;
    }

    std::uint64_t seed;
    Rank nranks{1};
    std::uint64_t steps{1};
    bool at_once{false};
    LoopbackFaults faults;
    std::optional<Rank> leaver;
    std::uint64_t leaves_before{0};
};

// The cluster's object goes: each communicator has one owner.
std::vector<std::shared_ptr<Communicator>> make_ranks(Program const& program) {
    return LoopbackCluster{program.nranks, program.faults, kind_of_payloads(program.seed / shards)}
        .communicators();
}

class Programs : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Programs, EndOnEveryRank) {
    for (std::uint64_t seed = GetParam(); seed < programs(); seed += shards) {
        Program const program{seed};
        auto const endings = run_owning_ranks(
            make_ranks(program), [&](std::shared_ptr<Communicator>& comm) { program.run(comm); });
        for (std::size_t rank = 0; rank < endings.size(); ++rank) {
            ASSERT_EQ(program.judge(static_cast<Rank>(rank), endings[rank]), "");
        }
        if (program.leaver && program.nranks > 1) {
            ASSERT_TRUE(
                std::any_of(
                    endings.begin(), endings.end(),
                    [&](Ending const& ending) {
                        return Program::blames(ending, *program.leaver, "it left before ");
                    }))
                << "seed " << seed;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Random, Programs, testing::Range<std::uint64_t>(0, shards));

// The schedules are worth something only if all of these happen.
TEST(ProgramMix, HasEveryKind) {
    std::uint64_t deaths = 0;
    std::uint64_t closings = 0;
    std::uint64_t at_once = 0;
    constexpr std::uint64_t sample = 1'000;
    for (std::uint64_t seed = 0; seed < sample; ++seed) {
        Program const program{seed};
        deaths += program.faults.dying_rank ? 1 : 0;
        closings += program.leaver && program.nranks > 1 ? 1 : 0;
        at_once += program.at_once && program.steps > 1 ? 1 : 0;
    }
    EXPECT_GT(deaths, sample / 10);
    EXPECT_GT(closings, sample / 10);
    EXPECT_GT(at_once, sample / 10);
}

}  // namespace
}  // namespace rapidsmpf::suite
