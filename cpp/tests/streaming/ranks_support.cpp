#include <exception>
#include <thread>

#include <gtest/gtest.h>

#include "streaming/ranks.hpp"

namespace rapidsmpf::streaming::testing {

std::vector<std::string> run_ranks(
    LoopbackCluster& cluster, std::function<void(Context const&)> const& body) {
    std::vector<std::string> errors(static_cast<std::size_t>(cluster.nranks()));
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < cluster.nranks(); ++rank) {
        threads.emplace_back([&, rank] {
            auto const& comm = cluster[rank];
            auto& error = errors[static_cast<std::size_t>(rank)];
            try {
                Context const context{
                    config::Options{{{"num_streaming_threads", "2"}}}, comm, BufferResource::make()};
                body(context);
            } catch (std::exception const& caught) {
                error = caught.what();
                comm->abort(error);
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    return errors;
}

void run_all(Rank nranks, std::uint64_t seed, std::function<void(Context const&)> const& body) {
    LoopbackFaults faults;
    faults.seed = seed;
    faults.delay_probability = 0.3;
    LoopbackCluster cluster{nranks, faults};
    auto const errors = run_ranks(cluster, body);
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
        EXPECT_EQ(errors[rank], "") << "rank " << rank << " of " << nranks << ", seed " << seed;
    }
}

}  // namespace rapidsmpf::streaming::testing
