// A rank gives up the collectives of a query: it ends everywhere, and the next one works. See suite_support.hpp.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include <rapidsmpf/coll/detail/abandon.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include "coll/steps.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

// Where the rank is when it gives up.
enum class GivingUp : std::uint8_t {
    before_it_begins,  // the others wait in a collective that it has not begun
    inside,            // it has begun one and given a part of its rows
    elsewhere,         // it has begun one that the others will never begin
    after_it_is_done,  // it has what it needs of one, others perhaps not
    everyone_at_once,  // and so do all others, each with its own reason
};

inline void give_up(std::shared_ptr<Communicator> const& comm, GivingUp how, OpId first, Rank quitter) {
    auto const me = comm->rank();
    auto const abandon = [&](std::string const& reason) {
        coll::abandon_operations(*comm, first, first + 9, reason);
    };
    auto const br = BufferResource::make();
    auto const n = static_cast<PartitionId>(comm->nranks());
    if (how == GivingUp::everyone_at_once) {
        Shuffler shuffler{comm, first, n, br};
        shuffler.insert(0, make_chunk(*br, 1, me, 0, 0, 5'000));
        coll::barrier(comm, 6, patience);  // the first to give up would end the others' insertions
        abandon("as planned");
        SUITE_THROWS(RankFailedError, shuffler.wait_any(patience));
        return;
    }
    auto const common = [&] {
        if (how == GivingUp::after_it_is_done) {
            shuffle_step(comm, first, Draw{static_cast<std::uint64_t>(first)});
        }
    };
    if (me != quitter) {
        SUITE_CHECK(n > 1);
        auto const text = SUITE_THROWS(RankFailedError, [&] {
            common();
            gather_step(comm, first + 1, Draw{static_cast<std::uint64_t>(first)});
            shuffle_step(comm, first + 2, Draw{static_cast<std::uint64_t>(first)});
            coll::barrier(comm, first + 3, patience);
        }());
        SUITE_CHECK(text == "rank " + std::to_string(quitter) + " failed: as planned");
        return;
    }
    common();
    if (how == GivingUp::inside) {
        Shuffler shuffler{comm, first + 1, n, br, PartitionAssignment::round_robin, tiny_settings()};
        for (PartitionId p = 0; p < n; ++p) {
            shuffler.insert(p, make_chunk(*br, 1, me, p, 0, 50'000));
        }
        abandon("as planned");
        SUITE_THROWS(RankFailedError, shuffler.insert_finished());
    } else if (how == GivingUp::elsewhere) {
        AllGather gather{comm, first + 7, br, tiny_settings()};
        gather.insert(0, make_chunk(*br, 1, me, 0, 0, 50'000));
        gather.insert_finished();
        abandon("as planned");
        if (n > 1) {
            SUITE_THROWS(RankFailedError, gather.wait_and_extract(Ordered::yes, patience));
        }
    } else {
        abandon("as planned");
    }
}

inline void query_is_given_up_and_the_next_works(std::shared_ptr<Communicator> comm) {
    constexpr std::array ways{
        GivingUp::before_it_begins, GivingUp::inside, GivingUp::elsewhere, GivingUp::after_it_is_done,
        GivingUp::everyone_at_once};
    OpId first = 10'000;
    for (std::size_t round = 0; round < ways.size(); ++round, first += 10) {
        auto const quitter = static_cast<Rank>(round % static_cast<std::size_t>(comm->nranks()));
        give_up(comm, ways[round], first, quitter);
        // The ids are gone, here and, once this has passed, on every rank.
        SUITE_THROWS(RankFailedError, coll::barrier(comm, first + 5, patience));
        shuffle_step(comm, 5, Draw{round});
        coll::barrier(comm, 6, patience);
    }
    // Nothing stays: the stand-ins for what was never begun end with the others' last messages.
    auto const dispatcher = exchange::OperationDispatcher::of(*comm);
    auto const deadline = std::chrono::steady_clock::now() + patience;
    while (dispatcher->open_operations_for_testing() > 0) {
        SUITE_CHECK(std::chrono::steady_clock::now() < deadline);
        std::this_thread::yield();
    }
}

inline void abandoning_misuse(std::shared_ptr<Communicator> comm) {
    auto const nowhere = exchange::OperationDispatcher::control_op;
    SUITE_THROWS(std::invalid_argument, coll::abandon_operations(*comm, -1, 3, "x"));
    SUITE_THROWS(std::invalid_argument, coll::abandon_operations(*comm, 3, 2, "x"));
    SUITE_THROWS(std::invalid_argument, coll::abandon_operations(*comm, 3, nowhere, "x"));
    SUITE_THROWS(std::invalid_argument, coll::abandon_operations(*comm, 3, 4, "x", comm->nranks()));
    coll::barrier(comm, 3, patience);
}

inline std::vector<Body> abandon_bodies() {
    return {
        {"query_is_given_up_and_the_next_works", query_is_given_up_and_the_next_works},
        {"abandoning_misuse", abandoning_misuse},
    };
}

}  // namespace rapidsmpf::suite
