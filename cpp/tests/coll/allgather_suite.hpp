// AllGather and what is built on it, on every rank. See suite_support.hpp.
#pragma once

#include <set>
#include <thread>

#include <rapidsmpf/coll/allgather.hpp>

#include "coll/shuffler_suite.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

using coll::AllGather;
using coll::Ordered;

// Rank r gives 2 * r + 1 chunks, backwards.
inline std::uint64_t given_by(Rank rank) {
    return 2 * static_cast<std::uint64_t>(rank) + 1;
}

inline void give_all(AllGather& gather, BufferResource& br, std::size_t largest) {
    Rank const me = gather.comm()->rank();
    for (std::uint64_t i = given_by(me); i-- > 0;) {
        gather.insert(i, make_chunk(br, 20, me, 0, i, size_of(20, me, 0, i, largest)));
    }
    gather.insert_finished();
}

inline void check_gathered(std::vector<PackedData> const& chunks, Rank nranks) {
    std::size_t at = 0;
    for (Rank source = 0; source < nranks; ++source) {
        for (std::uint64_t i = 0; i < given_by(source); ++i, ++at) {
            SUITE_CHECK(at < chunks.size());
            auto const label = check_chunk(chunks[at]);
            SUITE_CHECK(label.source == source);
            SUITE_CHECK(label.index == i);
        }
    }
    SUITE_CHECK(at == chunks.size());
}

inline void gather(
    std::shared_ptr<Communicator> const& comm, std::size_t largest, exchange::Settings const& settings) {
    auto const br = BufferResource::make();
    AllGather gather{comm, 2, br, settings};
    give_all(gather, *br, largest);
    check_gathered(gather.wait_and_extract(Ordered::yes, patience), comm->nranks());
    SUITE_CHECK(gather.finished());
    SUITE_CHECK(gather.extract_ready().empty());
}

inline void gather_ordered(std::shared_ptr<Communicator> comm) {
    gather(comm, 5'000, exchange::Settings());
}

inline void gather_with_tiny_settings(std::shared_ptr<Communicator> comm) {
    gather(comm, 900, tiny_settings());
}

inline void gather_large(std::shared_ptr<Communicator> comm) {
    gather(comm, std::size_t{3} << 20U, exchange::Settings());
}

inline void gather_nothing(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    AllGather gather{comm, 2, br};
    gather.insert_finished();
    SUITE_CHECK(gather.wait_and_extract(Ordered::yes, patience).empty());
}

inline void gather_as_it_comes(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    AllGather gather{comm, 2, br};
    give_all(gather, *br, 2'000);
    std::set<std::pair<Rank, std::uint64_t>> seen;
    auto const note = [&](std::vector<PackedData> const& chunks) {
        for (auto const& chunk : chunks) {
            auto const label = check_chunk(chunk);
            SUITE_CHECK(seen.insert({label.source, label.index}).second);
        }
    };
    note(gather.extract_ready());
    note(gather.wait_and_extract(Ordered::no, patience));
    std::size_t expected = 0;
    for (Rank source = 0; source < comm->nranks(); ++source) {
        expected += given_by(source);
    }
    SUITE_CHECK(seen.size() == expected);
}

// The id is free as soon as everything has been taken, though the handle lives.
inline void gather_with_the_same_id(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    std::vector<std::unique_ptr<AllGather>> kept;
    for (int round = 0; round < 5; ++round) {
        kept.push_back(
            std::make_unique<AllGather>(
                comm, 2, br, round % 2 == 0 ? tiny_settings() : exchange::Settings()));
        give_all(*kept.back(), *br, 900);
        check_gathered(kept.back()->wait_and_extract(Ordered::yes, patience), comm->nranks());
    }
}

inline void gather_from_many_threads(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    AllGather gather{comm, 2, br};
    constexpr std::uint64_t inserters = 3;
    constexpr std::uint64_t each = 10;
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < inserters; ++t) {
        threads.emplace_back([&, t] {
            for (std::uint64_t i = t; i < inserters * each; i += inserters) {
                gather.insert(i, make_chunk(*br, 20, comm->rank(), 0, i, 200));
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    gather.insert_finished();
    auto const chunks = gather.wait_and_extract(Ordered::yes, patience);
    SUITE_CHECK(chunks.size() == inserters * each * static_cast<std::size_t>(comm->nranks()));
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        auto const label = check_chunk(chunks[i]);
        SUITE_CHECK(static_cast<std::size_t>(label.source) == i / (inserters * each));
        SUITE_CHECK(label.index == i % (inserters * each));
    }
}

inline void gather_misuse(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    AllGather gather{comm, 2, br};
    SUITE_THROWS(std::invalid_argument, (AllGather{comm, 2, br}));
    gather.insert_finished();
    SUITE_THROWS(std::logic_error, gather.insert_finished());
    SUITE_THROWS(std::logic_error, gather.insert(0, make_chunk(*br, 1, 0, 0, 0, 1)));
    (void)gather.wait_and_extract(Ordered::yes, patience);
}

inline void gather_bytes(std::shared_ptr<Communicator> comm) {
    for (std::size_t round = 0; round < 10; ++round) {
        // Rank 0 has nothing to say in the first round.
        std::vector<std::uint8_t> const bytes(
            static_cast<std::size_t>(comm->rank()) + round, static_cast<std::uint8_t>(comm->rank()));
        auto const gathered = coll::allgather_bytes(comm, 2, bytes, patience);
        SUITE_CHECK(gathered.size() == static_cast<std::size_t>(comm->nranks()));
        for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
            SUITE_CHECK(
                gathered[rank] == std::vector<std::uint8_t>(rank + round, static_cast<std::uint8_t>(rank)));
        }
    }
}

inline std::vector<Body> allgather_bodies() {
    return {
        {"gather_ordered", gather_ordered},
        {"gather_with_tiny_settings", gather_with_tiny_settings},
        {"gather_large", gather_large},
        {"gather_nothing", gather_nothing},
        {"gather_as_it_comes", gather_as_it_comes},
        {"gather_with_the_same_id", gather_with_the_same_id},
        {"gather_from_many_threads", gather_from_many_threads},
        {"gather_misuse", gather_misuse},
        {"gather_bytes", gather_bytes},
    };
}

}  // namespace rapidsmpf::suite
