// The collective suite over the single communicator and over loopback, plain and with seeded schedules of
// delay and reordering. collective_process.cpp runs the same bodies over UCXX.
#include <tuple>

#include <gtest/gtest.h>

#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/communicator/single.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include "coll/loopback_ranks.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {
namespace {

// Body (by number, so that gtest can name and filter it) and number of ranks; 0: the single communicator.
using Case = std::tuple<std::size_t, Rank>;

class Collective : public testing::TestWithParam<Case> {
  protected:
    [[nodiscard]] Body const& body() const { return bodies()[std::get<0>(GetParam())]; }
    [[nodiscard]] Rank nranks() const { return std::get<1>(GetParam()); }
};

std::string name_of(testing::TestParamInfo<Case> const& info) {
    auto const nranks = std::get<1>(info.param);
    return bodies()[std::get<0>(info.param)].name + (nranks == 0 ? "_single" : "_" + std::to_string(nranks));
}

TEST_P(Collective, IsRight) {
    if (nranks() == 0) {
        EXPECT_EQ(errors_of(run_ranks({std::make_shared<SingleCommunicator>()}, body().run)), "");
        return;
    }
    LoopbackCluster const cluster{nranks()};
    EXPECT_EQ(errors_of(run_ranks(cluster.communicators(), body().run)), "");
}

INSTANTIATE_TEST_SUITE_P(
    Plain, Collective,
    testing::Combine(testing::Range<std::size_t>(0, bodies().size()), testing::Values(0, 1, 2, 3, 5)),
    name_of);

class DelayedCollective : public Collective {};

TEST_P(DelayedCollective, IsRightOnEverySchedule) {
    // The sanitizers see two of the eight, one for each kind of payloads, and other ones with each body.
    constexpr std::uint64_t step = sanitized ? 4 : 1;
    auto const body_number = std::get<0>(GetParam());
    auto const first = (body_number + static_cast<std::uint64_t>(nranks())) % step;
    for (std::uint64_t seed = first; seed < 8; seed += step) {
        LoopbackFaults faults;
        faults.seed = mix(seed * 31 + static_cast<std::uint64_t>(nranks()));
        faults.delay_probability = seed % 2 == 0 ? 0.3 : 0.9;
        faults.longest_delay = seed % 4 < 2 ? 10 : 200;
        LoopbackCluster const cluster{nranks(), faults, kind_of_payloads(seed / 4)};
        ASSERT_EQ(errors_of(run_ranks(cluster.communicators(), body().run)), "") << "schedule " << seed;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Delayed, DelayedCollective,
    testing::Combine(testing::Range<std::size_t>(0, bodies().size()), testing::Values(2, 3, 4)), name_of);

// One communicator for all bodies, one after the other: nothing of one may disturb the next.
TEST(CollectiveSequence, BodiesDoNotDisturbEachOther) {
    LoopbackFaults faults;
    faults.seed = 5;
    faults.delay_probability = 0.5;
    faults.longest_delay = 30;
    LoopbackCluster const cluster{3, faults};
    auto const all = [](std::shared_ptr<Communicator> const& comm) {
        for (auto const& body : bodies()) {
            try {
                body.run(comm);
            } catch (CheckFailed const& error) {
                throw CheckFailed{body.name + ": " + error.what()};
            }
        }
    };
    EXPECT_EQ(errors_of(run_ranks(cluster.communicators(), all)), "");
}

}  // namespace
}  // namespace rapidsmpf::suite
