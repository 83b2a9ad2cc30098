// Collectives with everything about them drawn from a seed, each checked: what random programs are made of.
#pragma once

#include <array>
#include <functional>
#include <numeric>

#include "coll/allgather_suite.hpp"
#include "coll/allreduce_suite.hpp"
#include "coll/shuffler_suite.hpp"
#include "coll/small_suite.hpp"
#include "coll/sparse_alltoall_suite.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

// Values that follow from a seed, one after the other.
class Draw {
  public:
    explicit Draw(std::uint64_t seed) : state_{mix(seed)} {}
    // Below `bound`.
    std::uint64_t operator()(std::uint64_t bound) { return (state_ = mix(state_)) % bound; }

  private:
    std::uint64_t state_;
};

inline void shuffle_step(std::shared_ptr<Communicator> const& comm, OpId op, Draw draw) {
    ShuffleCase c;
    c.op = op;
    c.salt = draw(1'000'000);
    c.partitions = static_cast<PartitionId>(1 + draw(7));
    c.chunks = draw(5);
    c.largest = std::array<std::size_t, 4>{0, 100, 2'000, 30'000}[draw(4)];
    c.assignment = draw(2) == 0 ? PartitionAssignment::round_robin : PartitionAssignment::contiguous;
    c.settings = draw(2) == 0 ? tiny_settings() : exchange::Settings();
    auto const br = BufferResource::make();
    Shuffler shuffler{comm, c.op, c.partitions, br, c.assignment, c.settings};
    insert_all(shuffler, *br, c);
    shuffler.insert_finished();
    if (draw(2) == 0) {
        shuffler.spill();
    }
    extract_all(shuffler, c);
}

inline void gather_step(std::shared_ptr<Communicator> const& comm, OpId op, Draw draw) {
    auto const br = BufferResource::make();
    AllGather gather{comm, op, br, draw(2) == 0 ? tiny_settings() : exchange::Settings()};
    give_all(gather, *br, std::array<std::size_t, 3>{0, 700, 20'000}[draw(3)]);
    check_gathered(gather.wait_and_extract(Ordered::yes, patience), comm->nranks());
}

inline void reduce_step(std::shared_ptr<Communicator> const& comm, OpId op, Draw draw) {
    std::size_t const elements = std::array<std::size_t, 4>{0, 1, 77, 40'000}[draw(4)];
    std::int64_t const salt = static_cast<std::int64_t>(draw(1'000));
    std::vector<std::int64_t> mine(elements);
    std::iota(mine.begin(), mine.end(), salt + comm->rank());
    // 2 a - b is not commutative.
    auto const combine = [](std::int64_t a, std::int64_t b) { return 2 * a - b; };
    auto const result =
        coll::allreduce<std::int64_t>(comm, op, std::span<std::int64_t const>{mine}, combine, patience);
    SUITE_CHECK(result.size() == elements);
    for (std::size_t i = 0; i < elements; ++i) {
        auto const first = salt + static_cast<std::int64_t>(i);
        auto expected = first;
        for (Rank rank = 1; rank < comm->nranks(); ++rank) {
            expected = combine(expected, first + rank);
        }
        SUITE_CHECK(result[i] == expected);
    }
}

inline void sparse_step(std::shared_ptr<Communicator> const& comm, OpId op, Draw draw) {
    auto const salt = draw(1'000'000);
    auto const largest = std::array<std::size_t, 3>{0, 800, 20'000}[draw(3)];
    sparse_exchange(comm, op, salt, largest, draw(2) == 0 ? tiny_settings() : exchange::Settings());
}

inline void broadcast_step(std::shared_ptr<Communicator> const& comm, OpId op, Draw draw) {
    auto const root = static_cast<Rank>(draw(static_cast<std::uint64_t>(comm->nranks())));
    std::vector<std::uint8_t> const expected(
        std::array<std::size_t, 3>{0, 500, 100'000}[draw(3)], static_cast<std::uint8_t>(draw(256)));
    auto const mine = comm->rank() == root ? expected : std::vector<std::uint8_t>{};
    SUITE_CHECK(coll::broadcast_bytes(comm, op, root, mine, patience) == expected);
}

inline void barrier_step(std::shared_ptr<Communicator> const& comm, OpId op, Draw /*draw*/) {
    coll::barrier(comm, op, patience);
}

// One collective; the same on every rank for the same seed.
inline void random_step(std::shared_ptr<Communicator> const& comm, OpId op, std::uint64_t seed) {
    constexpr std::array steps{&shuffle_step, &gather_step,    &reduce_step,
                               &sparse_step,  &broadcast_step, &barrier_step};
    Draw draw{seed};
    steps[draw(steps.size())](comm, op, draw);
}

}  // namespace rapidsmpf::suite
