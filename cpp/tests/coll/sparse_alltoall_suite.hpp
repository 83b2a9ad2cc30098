// SparseAlltoall on every rank. See suite_support.hpp.
#pragma once

#include <string>
#include <thread>

#include <rapidsmpf/coll/sparse_alltoall.hpp>

#include "coll/shuffler_suite.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

using coll::SparseAlltoall;

// Whether a sends to b: a pattern that follows from the salt.
inline bool has_edge(std::uint64_t salt, Rank a, Rank b) {
    return mix(mix(salt ^ static_cast<std::uint64_t>(a)) + static_cast<std::uint64_t>(b)) % 3 == 0;
}

// a sends b some chunks, of which the first may be empty.
inline std::uint64_t chunks_of(std::uint64_t salt, Rank a, Rank b) {
    return mix(salt + 1000 * static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b)) % 5;
}

inline void sparse_exchange(
    std::shared_ptr<Communicator> const& comm, OpId op, std::uint64_t salt, std::size_t largest,
    exchange::Settings const& settings) {
    auto const br = BufferResource::make();
    Rank const me = comm->rank();
    std::vector<Rank> sources;
    std::vector<Rank> destinations;
    for (Rank other = comm->nranks(); other-- > 0;) {
        if (has_edge(salt, other, me)) {
            sources.push_back(other);
        }
        if (has_edge(salt, me, other)) {
            destinations.push_back(other);
        }
    }
    SparseAlltoall exchange{comm, op, br, sources, destinations, settings};
    for (auto const to : destinations) {
        auto const partition = static_cast<std::uint32_t>(to);
        for (std::uint64_t i = 0; i < chunks_of(salt, me, to); ++i) {
            exchange.insert(
                to, make_chunk(*br, salt, me, partition, i, size_of(salt, me, partition, i, largest)));
        }
    }
    exchange.insert_finished();
    exchange.wait(patience);
    exchange.wait(patience);
    SUITE_CHECK(exchange.finished());
    for (auto const from : sources) {
        auto const chunks = exchange.extract(from);
        SUITE_CHECK(chunks.size() == chunks_of(salt, from, me));
        for (std::size_t i = 0; i < chunks.size(); ++i) {
            auto const label = check_chunk(chunks[i]);
            SUITE_CHECK(label.salt == salt);
            SUITE_CHECK(label.source == from);
            SUITE_CHECK(label.partition == static_cast<std::uint32_t>(me));
            SUITE_CHECK(label.index == i);
        }
        SUITE_CHECK(exchange.extract(from).empty());
    }
}

inline void sparse_patterns(std::shared_ptr<Communicator> comm) {
    for (std::uint64_t salt = 0; salt < 6; ++salt) {
        sparse_exchange(comm, 2, salt, 3'000, salt % 2 == 0 ? tiny_settings() : exchange::Settings());
    }
}

inline void sparse_large_chunks(std::shared_ptr<Communicator> comm) {
    sparse_exchange(comm, 2, 3, std::size_t{2} << 20U, exchange::Settings());
}

// Each rank sends to the next one, and nothing else: an empty chunk arrives, too.
inline void sparse_ring(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    Rank const next = (comm->rank() + 1) % comm->nranks();
    Rank const previous = (comm->rank() + comm->nranks() - 1) % comm->nranks();
    SparseAlltoall exchange{comm, 2, br, {previous}, {next}};
    exchange.insert(next, PackedData{{}, br->allocate(MemoryType::HOST, 0)});
    exchange.insert(next, make_chunk(*br, 1, comm->rank(), 0, 0, 100));
    exchange.insert_finished();
    exchange.wait(patience);
    auto const chunks = exchange.extract(previous);
    SUITE_CHECK(chunks.size() == 2);
    SUITE_CHECK(chunks[0].empty());
    SUITE_CHECK(check_chunk(chunks[1]).source == previous);
}

inline void sparse_from_many_threads(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    SparseAlltoall exchange{
        comm, 2, br, comm->rank() == 0 ? std::vector<Rank>{comm->nranks() - 1} : std::vector<Rank>{},
        comm->rank() == comm->nranks() - 1 ? std::vector<Rank>{0} : std::vector<Rank>{}};
    constexpr std::uint64_t each = 20;
    constexpr std::uint64_t inserters = 3;
    if (comm->rank() == comm->nranks() - 1) {
        std::vector<std::thread> threads;
        for (std::uint64_t t = 0; t < inserters; ++t) {
            threads.emplace_back([&, t] {
                for (std::uint64_t i = 0; i < each; ++i) {
                    exchange.insert(0, make_chunk(*br, t, comm->rank(), 0, i, 300));
                }
            });
        }
        for (auto& thread : threads) {
            thread.join();
        }
    }
    exchange.insert_finished();
    exchange.wait(patience);
    if (comm->rank() == 0) {
        std::vector<std::uint64_t> next(inserters, 0);
        for (auto const& chunk : exchange.extract(comm->nranks() - 1)) {
            auto const label = check_chunk(chunk);
            SUITE_CHECK(label.index == next[label.salt]++);  // those of one thread in its order
        }
        SUITE_CHECK(next == std::vector<std::uint64_t>(inserters, each));
    }
}

inline void sparse_misuse(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    auto const empty = [&] { return PackedData{{}, br->allocate(MemoryType::HOST, 0)}; };
    Rank const n = comm->nranks();
    SUITE_THROWS(std::invalid_argument, SparseAlltoall(comm, 2, br, {0, 0}, {}));
    SUITE_THROWS(std::invalid_argument, SparseAlltoall(comm, 2, br, {n}, {}));
    SUITE_THROWS(std::invalid_argument, SparseAlltoall(comm, 2, br, {}, {-1}));
    SUITE_THROWS(std::invalid_argument, SparseAlltoall(comm, 2, br, {}, {0, 0}));
    {
        // Everyone sends to rank 0 alone.
        std::vector<Rank> everyone;
        for (Rank rank = 0; comm->rank() == 0 && rank < n; ++rank) {
            everyone.push_back(rank);
        }
        SparseAlltoall exchange{comm, 2, br, everyone, {0}};
        SUITE_THROWS(std::invalid_argument, SparseAlltoall(comm, 2, br, everyone, {0}));
        SUITE_THROWS(std::invalid_argument, exchange.insert(1, empty()));
        if (comm->rank() == 0) {
            SUITE_THROWS(std::logic_error, exchange.extract(0));  // rank 0 itself has not finished
        } else {
            SUITE_THROWS(std::invalid_argument, exchange.extract(0));
        }
        exchange.insert_finished();
        SUITE_THROWS(std::logic_error, exchange.insert_finished());
        SUITE_THROWS(std::logic_error, exchange.insert(0, empty()));
        exchange.wait(patience);
    }
    if (n == 1) {
        return;
    }
    // Lists that do not agree: found where something is missing, or too much. The other ranks hear of it, unless they
    // have all they wait for already.
    for (bool const too_much : {false, true}) {
        SparseAlltoall exchange{
            comm, 2, br, comm->rank() == 0 && !too_much ? std::vector<Rank>{1} : std::vector<Rank>{},
            comm->rank() == 1 && too_much ? std::vector<Rank>{0} : std::vector<Rank>{}};
        exchange.insert_finished();
        if (comm->rank() == 0) {
            auto const text = SUITE_THROWS(std::invalid_argument, exchange.wait(patience));
            SUITE_CHECK(
                text.find(
                    too_much ? "rank 1 has rank 0 among its destinations"
                             : "rank 0 has rank 1 among its sources")
                != std::string::npos);
            SUITE_THROWS(std::runtime_error, exchange.wait(patience));
        }
    }
}

inline std::vector<Body> sparse_alltoall_bodies() {
    return {
        {"sparse_patterns", sparse_patterns}, {"sparse_large_chunks", sparse_large_chunks},
        {"sparse_ring", sparse_ring},         {"sparse_from_many_threads", sparse_from_many_threads},
        {"sparse_misuse", sparse_misuse},
    };
}

}  // namespace rapidsmpf::suite
