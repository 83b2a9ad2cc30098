// Runs a body on every rank of an in-process cluster, a thread for each.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>

#include "sanitized.hpp"

namespace rapidsmpf::suite {

// Options of a communicator whose payloads travel through peer memory, or as messages: by turns, so that a test of many
// schedules is one of both.
inline config::Options kind_of_payloads(std::uint64_t turn) {
    return config::Options{config::Strings{{"peer_memory", turn % 2 == 0 ? "auto" : "off"}}};
}

// How many schedules of delay, reordering and death a test tries. The sanitizers see each kind of test with a part of them.
constexpr std::uint64_t schedules(std::uint64_t count) {
    return sanitized ? (count + 3) / 4 : count;
}

// How a rank ended: with no text when it returned, else with what it threw.
struct Ending {
    bool rank_failed{false};  // it threw RankFailedError
    std::string error;
};

// A rank that throws anything but RankFailedError ends the others: no test waits for a rank that is gone.
inline std::vector<Ending> run_ranks(
    std::vector<std::shared_ptr<Communicator>> const& comms,
    std::function<void(std::shared_ptr<Communicator>)> const& body) {
    std::vector<Ending> endings(comms.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
        threads.emplace_back([&, rank] {
            auto& ending = endings[rank];
            try {
                body(comms[rank]);
            } catch (RankFailedError const& error) {
                ending.rank_failed = true;
                ending.error = error.what();
            } catch (std::exception const& error) {
                ending.error = error.what();
                comms[rank]->abort(error.what());
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    return endings;
}

// As run_ranks, but each thread owns its communicator: a body that drops the reference makes its rank leave, and
// ranks leave as soon as their body returns.
inline std::vector<Ending> run_owning_ranks(
    std::vector<std::shared_ptr<Communicator>> comms,
    std::function<void(std::shared_ptr<Communicator>&)> const& body) {
    std::vector<Ending> endings(comms.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
        threads.emplace_back([&ending = endings[rank], &body, comm = std::move(comms[rank])]() mutable {
            try {
                body(comm);
            } catch (RankFailedError const& error) {
                ending.rank_failed = true;
                ending.error = error.what();
            } catch (std::exception const& error) {
                ending.error = error.what();
                if (comm) {
                    comm->abort(error.what());
                }
            }
            comm.reset();
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    return endings;
}

// "rank 1: ..." for each rank that did not return; what caused the rest comes first.
inline std::string errors_of(std::vector<Ending> const& endings) {
    std::string text;
    for (bool const consequences : {false, true}) {
        for (std::size_t rank = 0; rank < endings.size(); ++rank) {
            if (!endings[rank].error.empty() && endings[rank].rank_failed == consequences) {
                text += "rank " + std::to_string(rank) + ": " + endings[rank].error + "\n";
            }
        }
    }
    return text;
}

}  // namespace rapidsmpf::suite
