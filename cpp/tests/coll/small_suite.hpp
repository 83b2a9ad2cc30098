// Barrier and broadcast, on every rank. See suite_support.hpp.
#pragma once

#include <string>

#include <rapidsmpf/coll/barrier.hpp>
#include <rapidsmpf/coll/broadcast.hpp>

#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

// No rank passes a barrier before the last has come to it.
inline void barrier_holds(std::shared_ptr<Communicator> comm) {
    Rank const last = comm->nranks() - 1;
    for (int round = 0; round < 5; ++round) {
        if (comm->rank() == last) {
            coll::barrier(comm, 3, patience);  // the others have seen that the next one holds
            coll::barrier(comm, 2, patience);
        } else {
            coll::Barrier held{comm, 2};
            auto const text = SUITE_THROWS(TimeoutError, held.wait(std::chrono::milliseconds{0}));
            SUITE_CHECK(
                text.find("rank " + std::to_string(last) + " has not finished it") != std::string::npos);
            coll::barrier(comm, 3, patience);
            held.wait(patience);
            held.wait(patience);  // passed is passed
        }
    }
}

inline void broadcast_from_each_rank(std::shared_ptr<Communicator> comm) {
    for (std::size_t const size : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
        for (Rank root = 0; root < comm->nranks(); ++root) {
            auto const value = static_cast<std::uint8_t>(root + 1);
            // What the others give does not matter.
            std::vector<std::uint8_t> const mine(
                size + static_cast<std::size_t>(comm->rank() == root ? 0 : 7),
                comm->rank() == root ? value : std::uint8_t{99});
            SUITE_CHECK(
                coll::broadcast_bytes(comm, 2, root, mine, patience)
                == std::vector<std::uint8_t>(size, value));
        }
    }
}

// What it holds counts in the budget of the caller's resource, and is released.
inline void broadcast_within_a_budget(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    std::vector<std::uint8_t> const mine(300'000, 7);
    SUITE_CHECK(coll::broadcast_bytes(comm, 2, comm->nranks() - 1, mine, patience, br) == mine);
    std::int64_t peak = 0;
    std::int64_t used = 0;
    for (auto const type : {MemoryType::DEVICE, MemoryType::PINNED_HOST, MemoryType::HOST}) {
        peak += br->memory_peak(type);
        used += br->memory_used(type);
    }
    SUITE_CHECK(peak >= static_cast<std::int64_t>(mine.size()));
    SUITE_CHECK(used == 0);
}

inline void broadcast_misuse(std::shared_ptr<Communicator> comm) {
    SUITE_THROWS(std::invalid_argument, coll::broadcast_bytes(comm, 2, -1, {}));
    SUITE_THROWS(std::invalid_argument, coll::broadcast_bytes(comm, 2, comm->nranks(), {}));
    coll::Broadcast once{comm, 2, 0, {5}};
    SUITE_CHECK(once.wait_and_extract(patience) == std::vector<std::uint8_t>{5});
    SUITE_THROWS(std::logic_error, once.wait_and_extract(patience));
    if (comm->nranks() > 1) {
        // Rank 0 takes itself for the root, the others take rank 1.
        auto const text = SUITE_THROWS(
            std::invalid_argument, coll::broadcast_bytes(comm, 3, comm->rank() == 0 ? 0 : 1, {1}, patience));
        SUITE_CHECK(text.find("the ranks disagree about the root of broadcast 3") != std::string::npos);
        SUITE_CHECK(text.find("for itself it is rank 0, 1") != std::string::npos);
        // No rank takes itself for the root.
        SUITE_THROWS(
            std::invalid_argument, coll::broadcast_bytes(comm, 3, comm->rank() == 0 ? 1 : 0, {1}, patience));
    }
}

inline std::vector<Body> small_bodies() {
    return {
        {"barrier_holds", barrier_holds},
        {"broadcast_from_each_rank", broadcast_from_each_rank},
        {"broadcast_within_a_budget", broadcast_within_a_budget},
        {"broadcast_misuse", broadcast_misuse},
    };
}

}  // namespace rapidsmpf::suite
