// Communicators made by split(), and collectives on them. See suite_support.hpp.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <rapidsmpf/communicator/split.hpp>

#include "coll/allgather_suite.hpp"
#include "coll/shuffler_suite.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

// The ranks in `parent` of the members of `part`, by their ranks there.
inline std::vector<Rank> members_of(
    std::shared_ptr<Communicator> const& part, std::shared_ptr<Communicator> const& parent) {
    std::vector<Rank> members;
    for (auto const& bytes :
         coll::allgather_bytes(part, 3, {static_cast<std::uint8_t>(parent->rank())}, patience)) {
        members.push_back(bytes.at(0));
    }
    return members;
}

inline void split_by_colour(std::shared_ptr<Communicator> comm) {
    auto const part = split(comm, comm->rank() % 2, 0, patience);
    std::vector<Rank> expected;
    for (Rank rank = comm->rank() % 2; rank < comm->nranks(); rank += 2) {
        expected.push_back(rank);
    }
    SUITE_CHECK(part->nranks() == static_cast<Rank>(expected.size()));
    SUITE_CHECK(part->rank() == comm->rank() / 2);
    SUITE_CHECK(members_of(part, comm) == expected);
}

inline void split_orders_by_key(std::shared_ptr<Communicator> comm) {
    // The higher half first, and within each half, where the keys are equal, by rank.
    Rank const half = comm->nranks() / 2;
    auto const part = split(comm, 7, comm->rank() < half ? 5 : -5, patience);
    std::vector<Rank> expected;
    for (Rank rank = half; rank < comm->nranks(); ++rank) {
        expected.push_back(rank);
    }
    for (Rank rank = 0; rank < half; ++rank) {
        expected.push_back(rank);
    }
    SUITE_CHECK(members_of(part, comm) == expected);
    SUITE_CHECK(expected.at(static_cast<std::size_t>(part->rank())) == comm->rank());
}

inline void split_leaves_out_who_has_no_colour(std::shared_ptr<Communicator> comm) {
    Rank const out = comm->nranks() - 1;
    for (auto const none : {std::optional<std::int32_t>{}, std::optional<std::int32_t>{-1}}) {
        auto const part = split(comm, comm->rank() == out ? none : std::optional{0}, 0, patience);
        SUITE_CHECK((part == nullptr) == (comm->rank() == out));
        if (part) {
            SUITE_CHECK(part->nranks() == comm->nranks() - 1);
            coll::barrier(part, 1, patience);
        }
    }
    coll::barrier(comm, 1, patience);
}

// Collectives with the same id, at the same time, on a communicator and on parts of it.
inline void split_keeps_messages_apart(std::shared_ptr<Communicator> comm) {
    auto const part = split(comm, comm->rank() % 2, -comm->rank(), patience);
    auto const again = split(comm, comm->rank() % 2, -comm->rank(), patience);
    auto const br = BufferResource::make();
    std::vector<ShuffleCase> cases(3);
    std::vector<std::unique_ptr<Shuffler>> shufflers;
    for (auto const& on : {comm, part, again}) {
        auto& c = cases[shufflers.size()];
        c.op = 5;
        c.salt = shufflers.size();
        c.settings = tiny_settings();
        shufflers.push_back(std::make_unique<Shuffler>(on, c.op, c.partitions, br, c.assignment, c.settings));
    }
    for (std::size_t i = 0; i < shufflers.size(); ++i) {
        insert_all(*shufflers[i], *br, cases[i]);
        shufflers[i]->insert_finished();
    }
    for (std::size_t i = shufflers.size(); i-- > 0;) {
        extract_all(*shufflers[i], cases[i]);
    }
}

inline void split_of_a_split(std::shared_ptr<Communicator> comm) {
    auto const reversed = split(comm, 0, -comm->rank(), patience);
    auto const part = split(reversed, reversed->rank() / 2, 0, patience);
    // The pairs count from the last rank.
    std::vector<Rank> expected;
    Rank const first = comm->nranks() - 1 - 2 * (reversed->rank() / 2);
    for (Rank rank = first; rank >= 0 && rank > first - 2; --rank) {
        expected.push_back(rank);
    }
    SUITE_CHECK(members_of(part, comm) == expected);
    shuffle(part, ShuffleCase{});
    shuffle(reversed, ShuffleCase{});
}

// A part lives without its parent's handle, and ranks that are done with it do not disturb the others.
inline void split_again_and_again(std::shared_ptr<Communicator> comm) {
    for (int round = 0; round < 5; ++round) {
        auto part = split(split(comm, 0, round, patience), comm->rank() % 2, round, patience);
        SUITE_CHECK(members_of(part, comm).at(static_cast<std::size_t>(part->rank())) == comm->rank());
    }
}

// Who has left a part takes part in no more of its collectives, and the parent goes on.
inline void a_member_that_left_is_missed(std::shared_ptr<Communicator> comm) {
    auto part = split(comm, 0, 0, patience);
    coll::barrier(part, 1, patience);
    if (comm->rank() == 0) {
        part.reset();
    }
    coll::barrier(comm, 1, patience);
    if (part && comm->nranks() > 1) {
        auto const deadline = std::chrono::steady_clock::now() + patience;
        while (!part->has_closed(0)) {
            SUITE_CHECK(std::chrono::steady_clock::now() < deadline);
            std::this_thread::yield();
        }
        SUITE_THROWS(RankFailedError, coll::barrier(part, 1, patience));
        SUITE_THROWS(RankFailedError, split(part, 0, 0, patience));
    }
    SUITE_CHECK(!comm->failure());
    coll::barrier(comm, 1, patience);
}

inline std::vector<Body> split_bodies() {
    return {
        {"split_by_colour", split_by_colour},
        {"split_orders_by_key", split_orders_by_key},
        {"split_leaves_out_who_has_no_colour", split_leaves_out_who_has_no_colour},
        {"split_keeps_messages_apart", split_keeps_messages_apart},
        {"split_of_a_split", split_of_a_split},
        {"split_again_and_again", split_again_and_again},
        {"a_member_that_left_is_missed", a_member_that_left_is_missed},
    };
}

}  // namespace rapidsmpf::suite
