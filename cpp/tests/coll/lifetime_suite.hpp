// Beginnings and ends of operations: late ranks, ids used again, timeouts, operations that are given up. See
// suite_support.hpp.
#pragma once

#include <memory>
#include <optional>

#include "coll/allgather_suite.hpp"
#include "coll/shuffler_suite.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

// Messages of the others arrive before rank 0 has made its object.
inline void one_rank_begins_late(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    c.op = 5;
    c.chunks = 20;
    c.settings = tiny_settings();
    auto const br = BufferResource::make();
    if (comm->rank() == 0) {
        coll::barrier(comm, 6, patience);
    }
    Shuffler shuffler{comm, c.op, c.partitions, br, c.assignment, c.settings};
    insert_all(shuffler, *br, c);
    shuffler.insert_finished();
    if (comm->rank() != 0) {
        coll::barrier(comm, 6, patience);
    }
    extract_all(shuffler, c);
}

// The same id again and again, with nothing in between that would keep the ranks together.
inline void id_is_used_again(std::shared_ptr<Communicator> comm) {
    for (std::uint64_t round = 0; round < 12; ++round) {
        ShuffleCase c;
        c.op = 5;
        c.salt = round;
        c.chunks = 2;
        c.partitions = static_cast<PartitionId>(1 + round % 5);
        c.largest = 400;
        if (round % 3 == 1) {
            c.settings = tiny_settings();
        }
        auto const br = BufferResource::make();
        Shuffler shuffler{comm, c.op, c.partitions, br, c.assignment, c.settings};
        insert_all(shuffler, *br, c);
        shuffler.insert_finished();
        extract_all(shuffler, c);
        // No shutdown: the operation ends by itself, while the next one begins.
    }
}

inline void handle_goes_before_its_chunks_are_sent(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    auto const n = static_cast<PartitionId>(comm->nranks());
    auto const fill = [&](Shuffler& shuffler) {
        for (PartitionId p = 0; p < n; ++p) {
            shuffler.insert(p, make_chunk(*br, 9, comm->rank(), p, 0, 5'000));
        }
        shuffler.insert_finished();
    };
    if (comm->rank() == comm->nranks() - 1) {
        {
            Shuffler shuffler{comm, 5, n, br, PartitionAssignment::round_robin, tiny_settings()};
            fill(shuffler);
        }
        coll::barrier(comm, 6, patience);
    } else {
        Shuffler shuffler{comm, 5, n, br, PartitionAssignment::round_robin, tiny_settings()};
        coll::barrier(comm, 6, patience);
        fill(shuffler);
        auto const p = shuffler.wait_any(patience);
        SUITE_CHECK(shuffler.extract(p).size() == static_cast<std::size_t>(n));
    }
}

inline void timeouts_name_what_is_missing(std::shared_ptr<Communicator> comm) {
    using std::chrono::milliseconds;
    auto const br = BufferResource::make();
    auto const n = static_cast<PartitionId>(comm->nranks());
    auto const mine = static_cast<PartitionId>(comm->rank());
    Rank const slow = comm->nranks() - 1;
    Shuffler shuffler{comm, 5, n, br};
    AllGather gather{comm, 7, br};
    if (comm->rank() != slow) {
        shuffler.insert_finished();
        gather.insert_finished();
    }
    auto const missing = "rank " + std::to_string(slow) + " has not finished it";
    for (auto const& text : {
             SUITE_THROWS(TimeoutError, shuffler.wait_on(mine, milliseconds{5})),
             SUITE_THROWS(TimeoutError, shuffler.wait_any(milliseconds{5})),
             SUITE_THROWS(TimeoutError, gather.wait_and_extract(Ordered::yes, milliseconds{5})),
         }) {
        SUITE_CHECK(text.find(missing) != std::string::npos);
        SUITE_CHECK(text.find("partition " + std::to_string(mine)) != std::string::npos);
    }
    // The slow rank goes on only when all have seen it.
    coll::barrier(comm, 6, patience);
    if (comm->rank() == slow) {
        shuffler.insert_finished();
        gather.insert_finished();
    }
    shuffler.wait_on(mine, patience);
    SUITE_CHECK(gather.wait_and_extract(Ordered::yes, patience).empty());
}

inline void shutdown_waits_until_everything_is_sent(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    auto const n = static_cast<PartitionId>(comm->nranks());
    Rank const slow = comm->nranks() - 1;
    std::optional<Shuffler> shuffler;
    if (comm->rank() != slow) {
        shuffler.emplace(comm, 5, n, br);
        shuffler->insert(static_cast<PartitionId>(slow), make_chunk(*br, 9, comm->rank(), n - 1, 0, 200'000));
        shuffler->insert_finished();
        auto const text = SUITE_THROWS(TimeoutError, shuffler->shutdown(std::chrono::milliseconds{5}));
        SUITE_CHECK(text.find("1 chunk for rank " + std::to_string(slow)) != std::string::npos);
    }
    coll::barrier(comm, 6, patience);
    if (comm->rank() == slow) {
        shuffler.emplace(comm, 5, n, br);
        shuffler->insert_finished();
        shuffler->wait_on(n - 1, patience);
        SUITE_CHECK(shuffler->extract(n - 1).size() == n - 1);
    }
    shuffler->shutdown(patience);
}

// One rank's handle goes early, as when an exception passes: the others hear of it, and the id is free again.
inline void given_up_by_one_rank(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    ShuffleCase c;
    c.op = 5;
    c.settings = tiny_settings();
    Rank const quitter = comm->nranks() - 1;
    for (int round = 0; round < 4; ++round) {
        {
            Shuffler shuffler{comm, c.op, c.partitions, br, c.assignment, c.settings};
            if (comm->rank() != quitter) {
                try {
                    insert_all(shuffler, *br, c);
                    shuffler.insert_finished();
                    for (;;) {
                        (void)shuffler.wait_any(patience);
                    }
                } catch (std::out_of_range const&) {
                    // This rank owns no partition: it has nothing to wait for.
                    SUITE_CHECK(shuffler.local_partitions().empty());
                } catch (std::runtime_error const& error) {
                    SUITE_CHECK(
                        std::string{error.what()}.find(
                            "rank " + std::to_string(quitter) + " failed: it abandoned shuffle 5")
                        != std::string::npos);
                    SUITE_THROWS(std::runtime_error, shuffler.insert_finished());
                }
            } else if (round % 2 == 0) {
                shuffler.insert(0, make_chunk(*br, 1, quitter, 0, 0, 1'000));
            } else {
                shuffler.shutdown(patience);
                SUITE_THROWS(std::logic_error, shuffler.insert_finished());
            }
        }
        shuffle(comm, c);
    }
}

inline std::vector<Body> lifetime_bodies() {
    return {
        {"one_rank_begins_late", one_rank_begins_late},
        {"id_is_used_again", id_is_used_again},
        {"handle_goes_before_its_chunks_are_sent", handle_goes_before_its_chunks_are_sent},
        {"timeouts_name_what_is_missing", timeouts_name_what_is_missing},
        {"shutdown_waits_until_everything_is_sent", shutdown_waits_until_everything_is_sent},
        {"given_up_by_one_rank", given_up_by_one_rank},
    };
}

}  // namespace rapidsmpf::suite
