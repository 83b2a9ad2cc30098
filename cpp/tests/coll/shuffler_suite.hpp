// The Shuffler on every rank: contents, order, completion, misuse. See suite_support.hpp.
#pragma once

#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>

#include <rapidsmpf/coll/allgather.hpp>
#include <rapidsmpf/coll/barrier.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/memory/detail/partition_order_hint.hpp>

#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

using coll::PartitionAssignment;
using coll::PartitionId;
using coll::Shuffler;

struct ShuffleCase {
    ShuffleCase() {}
    OpId op{1};
    PartitionId partitions{7};
    std::uint64_t chunks{5};  // per partition and rank
    std::size_t largest{3'000};
    std::uint64_t salt{1};
    PartitionAssignment assignment{PartitionAssignment::round_robin};
    exchange::Settings settings;
    MemoryType memory{MemoryType::DEVICE};
};

// Sizes with which every path is taken by small data: many frames, little credit, split payloads.
inline exchange::Settings tiny_settings() {
    exchange::Settings settings;
    settings.gather_limit = 64;
    settings.frame_bytes = 300;
    settings.eager_bytes = 150;
    settings.announce_bytes = 700;
    settings.split_bytes = 100;
    settings.receive_limit = 400;
    settings.flush_bytes = 500;
    settings.flush_delay = std::chrono::microseconds{100};
    return settings;
}

inline void insert_all(Shuffler& shuffler, BufferResource& br, ShuffleCase const& c) {
    Rank const me = shuffler.comm()->rank();
    for (std::uint64_t index = 0; index < c.chunks; ++index) {
        std::unordered_map<PartitionId, PackedData> chunks;
        for (PartitionId p = 0; p < c.partitions; ++p) {
            chunks.emplace(
                p, make_chunk(br, c.salt, me, p, index, size_of(c.salt, me, p, index, c.largest), c.memory));
        }
        shuffler.insert(std::move(chunks));
    }
}

// That these are the chunks of all ranks for partition `p`, in order.
inline void check_partition(
    std::vector<PackedData> const& chunks, PartitionId p, ShuffleCase const& c, Rank nranks) {
    SUITE_CHECK(chunks.size() == c.chunks * static_cast<std::uint64_t>(nranks));
    std::size_t at = 0;
    for (Rank source = 0; source < nranks; ++source) {
        for (std::uint64_t index = 0; index < c.chunks; ++index, ++at) {
            auto const label = check_chunk(chunks[at]);
            SUITE_CHECK(label.salt == c.salt);
            SUITE_CHECK(label.source == source);
            SUITE_CHECK(label.partition == p);
            SUITE_CHECK(label.index == index);
            SUITE_CHECK(chunks[at].data->size() == size_of(c.salt, source, p, index, c.largest));
        }
    }
}

inline void extract_all(Shuffler& shuffler, ShuffleCase const& c) {
    std::set<PartitionId> seen;
    while (!shuffler.finished()) {
        auto const p = shuffler.wait_any(patience);
        SUITE_CHECK(shuffler.owner(p) == shuffler.comm()->rank());
        SUITE_CHECK(seen.insert(p).second);
        check_partition(shuffler.extract(p), p, c, shuffler.comm()->nranks());
    }
    SUITE_CHECK(seen.size() == shuffler.local_partitions().size());
}

inline void shuffle(std::shared_ptr<Communicator> const& comm, ShuffleCase const& c) {
    auto const br = BufferResource::make();
    Shuffler shuffler{comm, c.op, c.partitions, br, c.assignment, c.settings};
    insert_all(shuffler, *br, c);
    shuffler.insert_finished();
    extract_all(shuffler, c);
    shuffler.shutdown(patience);
    shuffler.shutdown(patience);
}

inline void shuffle_round_trip(std::shared_ptr<Communicator> comm) {
    shuffle(comm, ShuffleCase());
}

inline void shuffle_contiguous(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    c.assignment = PartitionAssignment::contiguous;
    c.partitions = 11;
    auto const br = BufferResource::make();
    Shuffler shuffler{comm, c.op, c.partitions, br, c.assignment};
    for (PartitionId p = 1; p < c.partitions; ++p) {
        SUITE_CHECK(shuffler.owner(p - 1) <= shuffler.owner(p));
    }
    insert_all(shuffler, *br, c);
    shuffler.insert_finished();
    extract_all(shuffler, c);
}

inline void shuffle_with_tiny_settings(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    c.settings = tiny_settings();
    c.chunks = 9;
    c.largest = 1'000;
    shuffle(comm, c);
}

inline void shuffle_without_gathering(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    c.settings = tiny_settings();
    c.settings.gather_limit = 0;
    c.settings.eager_bytes = 0;
    shuffle(comm, c);
}

// What the two ends must agree on travels in the messages.
inline void shuffle_with_different_settings(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    if (comm->rank() % 2 == 1) {
        c.settings = tiny_settings();
    }
    shuffle(comm, c);
}

inline void shuffle_large_chunks(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    c.partitions = 3;
    c.chunks = 2;
    c.largest = std::size_t{9} << 20U;
    c.settings.split_bytes = std::size_t{1} << 20U;
    c.settings.receive_limit = std::size_t{2} << 20U;
    shuffle(comm, c);
}

inline void shuffle_many_small_chunks(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    c.partitions = 40;
    c.chunks = 60;
    c.largest = 40;
    shuffle(comm, c);
}

inline void shuffle_from_host_memory(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    c.memory = MemoryType::HOST;
    shuffle(comm, c);
}

inline void shuffle_fewer_partitions_than_ranks(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    c.partitions = 1;
    shuffle(comm, c);
}

inline void shuffle_nothing(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    c.chunks = 0;
    shuffle(comm, c);
}

inline void shuffle_empty_chunks(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    Shuffler shuffler{comm, 3, 6, br};
    std::unordered_map<PartitionId, PackedData> chunks;
    for (PartitionId p = 0; p < 6; ++p) {
        if (p % 2 == 0) {
            chunks.emplace(p, PackedData{{}, br->allocate(MemoryType::HOST, 0)});
        } else {
            chunks.emplace(p, make_chunk(*br, 3, comm->rank(), p, 0, 0));
        }
    }
    shuffler.insert(std::move(chunks));
    shuffler.insert_finished();
    for (auto const p : shuffler.local_partitions()) {
        shuffler.wait_on(p, patience);
        // Chunks with metadata and no data arrive, those with neither are skipped.
        auto const extracted = shuffler.extract(p);
        SUITE_CHECK(extracted.size() == (p % 2 == 0 ? 0U : static_cast<std::size_t>(comm->nranks())));
        for (auto const& chunk : extracted) {
            SUITE_CHECK(check_chunk(chunk).partition == p);
        }
    }
    SUITE_CHECK(shuffler.finished());
}

inline void shuffle_all_to_one(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    ShuffleCase c;
    c.settings = tiny_settings();
    auto const n = static_cast<PartitionId>(comm->nranks());
    Shuffler shuffler{comm, 3, n, br, c.assignment, c.settings};
    for (std::uint64_t index = 0; index < 30; ++index) {
        shuffler.insert(
            0, make_chunk(*br, 8, comm->rank(), 0, index, size_of(8, comm->rank(), 0, index, 2'000)));
    }
    shuffler.insert_finished();
    auto const p = static_cast<PartitionId>(comm->rank());
    shuffler.wait_on(p, patience);
    auto const chunks = shuffler.extract(p);
    SUITE_CHECK(chunks.size() == (p == 0 ? 30 * static_cast<std::size_t>(n) : 0));
    for (auto const& chunk : chunks) {
        SUITE_CHECK(check_chunk(chunk).partition == 0);
    }
}

// A partition is complete when it is finished everywhere, though others are not.
inline void shuffle_partition_by_partition(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    constexpr PartitionId partitions = 5;
    Shuffler shuffler{comm, 3, partitions, br};
    for (PartitionId p = 0; p < partitions; ++p) {
        shuffler.insert(p, make_chunk(*br, 4, comm->rank(), p, 0, 500));
        shuffler.insert_finished({p});
        if (shuffler.owner(p) == comm->rank()) {
            shuffler.wait_on(p, patience);
            SUITE_CHECK(shuffler.extract(p).size() == static_cast<std::size_t>(comm->nranks()));
        }
        // No rank goes on to the next partition before this one is complete.
        coll::barrier(comm, 4, patience);
    }
    SUITE_CHECK(shuffler.finished());
}

inline void shuffle_from_many_threads(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    constexpr PartitionId partitions = 6;
    constexpr std::uint64_t inserters = 4;
    constexpr std::uint64_t each = 20;
    Shuffler shuffler{comm, 3, partitions, br};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < inserters; ++t) {
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < each; ++i) {
                for (PartitionId p = 0; p < partitions; ++p) {
                    auto const index = t * each + i;
                    shuffler.insert(
                        p,
                        make_chunk(*br, 5, comm->rank(), p, index, size_of(5, comm->rank(), p, index, 900)));
                }
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    shuffler.insert_finished();
    for (auto const p : shuffler.local_partitions()) {
        shuffler.wait_on(p, patience);
        std::set<std::pair<Rank, std::uint64_t>> seen;
        Rank last_source = 0;
        for (auto const& chunk : shuffler.extract(p)) {
            auto const label = check_chunk(chunk);
            SUITE_CHECK(label.partition == p);
            SUITE_CHECK(label.source >= last_source);
            SUITE_CHECK(seen.insert({label.source, label.index}).second);
            last_source = label.source;
        }
        SUITE_CHECK(seen.size() == inserters * each * static_cast<std::size_t>(comm->nranks()));
    }
}

inline void shuffle_many_waiters(std::shared_ptr<Communicator> comm) {
    ShuffleCase c;
    c.partitions = 24;
    auto const br = BufferResource::make();
    Shuffler shuffler{comm, 3, c.partitions, br};
    std::atomic<std::size_t> extracted{0};
    std::vector<std::thread> threads;
    std::vector<std::string> errors(3);
    for (std::size_t t = 0; t < errors.size(); ++t) {
        threads.emplace_back([&, t] {
            try {
                for (;;) {
                    auto const p = shuffler.wait_any(patience);
                    check_partition(shuffler.extract(p), p, c, comm->nranks());
                    ++extracted;
                }
            } catch (std::out_of_range const&) {
                // All partitions have been waited for: what ends each of them.
            } catch (std::exception const& error) {
                errors[t] = error.what();
            }
        });
    }
    insert_all(shuffler, *br, c);
    shuffler.insert_finished();
    for (auto& thread : threads) {
        thread.join();
    }
    for (auto const& error : errors) {
        SUITE_CHECK(error.empty());
    }
    SUITE_CHECK(extracted == shuffler.local_partitions().size());
}

inline void shuffle_several_at_once(std::shared_ptr<Communicator> comm) {
    std::vector<std::thread> threads;
    std::vector<std::string> errors(4);
    for (std::size_t t = 0; t < errors.size(); ++t) {
        threads.emplace_back([&, t] {
            try {
                ShuffleCase c;
                c.op = static_cast<OpId>(10 + t);
                c.salt = 100 + t;
                c.settings = t % 2 == 0 ? tiny_settings() : exchange::Settings();
                shuffle(comm, c);
            } catch (std::exception const& error) {
                errors[t] = error.what();
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    for (auto const& error : errors) {
        if (!error.empty()) {
            throw CheckFailed{error};
        }
    }
}

// The memory of the device holds only a part: what waits goes to a lower tier, and comes out right.
inline void shuffle_spills(std::shared_ptr<Communicator> comm) {
    BufferResource::Settings limits;
    limits.limits[0] = 8'000;  // less than what each rank inserts for itself, which it sends to no peer
    limits.available[0] = [] { return BufferResource::unlimited; };
    limits.statistics = std::make_shared<Statistics>();
    auto const br = BufferResource::make(std::move(limits));
    ShuffleCase c;
    c.chunks = 40;
    c.largest = 4'000;
    Shuffler shuffler{comm, 3, c.partitions, br};
    insert_all(shuffler, *br, c);
    bool const to_disk = br->spill_targets(MemoryType::DEVICE).front() == MemoryType::DISK;
    auto const spilled = to_disk ? "spill-bytes-device-to-disk" : "spill-bytes-device-to-host";
    SUITE_CHECK(br->statistics()->get(spilled).value > 0);
    shuffler.insert_finished();
    shuffler.spill();
    for (auto const p : shuffler.local_partitions()) {
        shuffler.wait_on(p, patience);
    }
    shuffler.spill();
    for (auto const p : shuffler.local_partitions()) {
        check_partition(shuffler.extract(p), p, c, comm->nranks());
    }
    shuffler.shutdown(patience);
    SUITE_CHECK(br->memory_used(MemoryType::DEVICE) == 0);
    SUITE_CHECK(br->memory_reserved(MemoryType::DEVICE) == 0);
}

inline void shuffle_counts_payload_bytes(std::shared_ptr<Communicator> comm) {
    BufferResource::Settings settings;
    settings.statistics = std::make_shared<Statistics>();
    auto const br = BufferResource::make(std::move(settings));
    constexpr std::size_t size = 700;
    auto const n = static_cast<PartitionId>(comm->nranks());
    Shuffler shuffler{comm, 3, n, br};
    for (PartitionId p = 0; p < n; ++p) {
        shuffler.insert(p, make_chunk(*br, 6, comm->rank(), p, 0, size));
    }
    shuffler.insert_finished();
    (void)shuffler.wait_any(patience);
    SUITE_CHECK(br->statistics()->get("shuffle-payload-send").value == static_cast<double>(n * size));
    SUITE_CHECK(br->statistics()->get("shuffle-payload-recv").value == static_cast<double>(n * size));
}

inline void shuffle_misuse(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    auto const n = static_cast<PartitionId>(comm->nranks());
    Shuffler shuffler{comm, 3, 2 * n, br};
    auto const mine = static_cast<PartitionId>(comm->rank());
    auto const chunk = [&](PartitionId p) { return make_chunk(*br, 7, comm->rank(), p, 0, 10); };

    SUITE_THROWS(std::invalid_argument, (Shuffler{comm, 3, 1, br}));
    SUITE_THROWS(std::invalid_argument, (Shuffler{comm, 4, 0, br}));
    SUITE_THROWS(std::invalid_argument, (Shuffler{comm, -1, 1, br}));
    SUITE_THROWS(std::invalid_argument, (Shuffler{comm, Tag::max_op_id, 1, br}));
    SUITE_THROWS(std::out_of_range, shuffler.insert(2 * n, chunk(0)));
    SUITE_THROWS(std::out_of_range, shuffler.insert_finished({2 * n}));
    SUITE_THROWS(std::out_of_range, shuffler.owner(2 * n));
    SUITE_THROWS(std::out_of_range, shuffler.wait_on(2 * n, patience));
    SUITE_THROWS(std::logic_error, shuffler.insert_finished({mine, mine}));
    SUITE_THROWS(std::logic_error, shuffler.insert_finished(std::vector<PartitionId>{}));
    if (n > 1) {
        SUITE_THROWS(std::invalid_argument, shuffler.wait_on((mine + 1) % n, patience));
        SUITE_THROWS(std::invalid_argument, shuffler.extract((mine + 1) % n));
    }
    for (PartitionId p = 0; p < n; ++p) {
        shuffler.insert_finished({p});
    }
    SUITE_THROWS(std::logic_error, shuffler.insert(mine, chunk(mine)));
    SUITE_THROWS(std::logic_error, shuffler.insert_finished({mine}));
    // A batch with one bad entry changes nothing.
    std::unordered_map<PartitionId, PackedData> batch;
    batch.emplace(n + mine, chunk(n + mine));
    batch.emplace(mine, chunk(mine));
    SUITE_THROWS(std::logic_error, shuffler.insert(std::move(batch)));
    std::vector<std::pair<PartitionId, PackedData>> ascending;
    ascending.emplace_back(mine, chunk(mine));
    ascending.emplace_back(n + mine, chunk(n + mine));
    SUITE_THROWS(std::logic_error, shuffler.insert(std::move(ascending)));
    shuffler.insert_finished();
    shuffler.insert_finished();  // nothing left: fine

    shuffler.wait_on(mine, patience);
    SUITE_THROWS(std::out_of_range, shuffler.wait_on(mine, patience));
    SUITE_CHECK(shuffler.wait_any(patience) == n + mine);
    SUITE_THROWS(std::out_of_range, shuffler.wait_any(patience));
    SUITE_CHECK(!shuffler.finished());
    SUITE_CHECK(shuffler.extract(mine).empty());
    SUITE_CHECK(shuffler.extract(n + mine).empty());
    SUITE_CHECK(shuffler.extract(mine).empty());
    SUITE_CHECK(shuffler.finished());
    shuffler.shutdown(patience);
    SUITE_THROWS(std::logic_error, shuffler.extract(mine));
    SUITE_THROWS(std::logic_error, shuffler.insert(mine, chunk(mine)));
}

inline void shuffle_owners(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    for (auto const assignment : {PartitionAssignment::round_robin, PartitionAssignment::contiguous}) {
        Shuffler shuffler{comm, 3, 9, br, assignment};
        std::vector<PartitionId> mine;
        for (PartitionId p = 0; p < shuffler.total_partitions(); ++p) {
            SUITE_CHECK(shuffler.owner(p) == coll::partition_owner(p, 9, comm->nranks(), assignment));
            if (shuffler.owner(p) == comm->rank()) {
                mine.push_back(p);
            }
        }
        SUITE_CHECK(shuffler.local_partitions() == mine);
        shuffler.insert_finished();
    }
    // Those of a rank side by side, and in memory, too, while the shuffle is there.
    {
        Shuffler shuffler{comm, 3, 9, br, PartitionAssignment::round_robin};
        auto const& order = shuffler.by_owner();
        SUITE_CHECK(std::set<PartitionId>(order.begin(), order.end()).size() == 9);
        for (std::size_t i = 1; i < order.size(); ++i) {
            SUITE_CHECK(shuffler.owner(order[i - 1]) <= shuffler.owner(order[i]));
        }
        auto const advised = br->partition_order_hint().find(9);
        SUITE_CHECK(comm->nranks() == 1 ? advised == nullptr : advised && *advised == order);
        SUITE_CHECK(br->partition_order_hint().find(8) == nullptr);
        shuffler.insert_finished();
    }
    SUITE_CHECK(br->partition_order_hint().find(9) == nullptr);
    // Products that do not fit into 32 bits.
    constexpr std::uint32_t many = 4'000'000'000U;
    auto const contiguous = PartitionAssignment::contiguous;
    SUITE_CHECK(coll::partition_owner(many - 1, many, 5'000, contiguous) == 4'999);
    SUITE_CHECK(coll::partition_owner(many / 2, many, 5'000, contiguous) == 2'500);
    SUITE_CHECK(coll::partition_owner(many - 1, many, 5'000, PartitionAssignment::round_robin) == 4'999);
}

// What was said of waiting with a timeout: it changes nothing, and zero is a look.
inline void shuffle_waits_that_time_out(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    auto const n = static_cast<PartitionId>(comm->nranks());
    auto const mine = static_cast<PartitionId>(comm->rank());
    Shuffler shuffler{comm, 3, 2 * n, br};
    std::chrono::milliseconds const no_time{0};
    for (int i = 0; i < 3; ++i) {
        SUITE_THROWS(TimeoutError, shuffler.wait_on(mine, no_time));
        SUITE_THROWS(TimeoutError, shuffler.wait_any(no_time));
        SUITE_CHECK(shuffler.extract(mine).empty());
    }
    shuffler.insert(mine, make_chunk(*br, 1, comm->rank(), mine, 0, 50));
    shuffler.insert_finished({mine, n + mine});
    SUITE_CHECK(!shuffler.finished());
    shuffler.insert_finished();
    std::set<PartitionId> seen{shuffler.wait_any(patience), shuffler.wait_any(patience)};
    SUITE_CHECK(seen == (std::set<PartitionId>{mine, n + mine}));
    SUITE_CHECK(shuffler.extract(mine).size() == 1);
    SUITE_CHECK(shuffler.extract(n + mine).empty());
    SUITE_CHECK(shuffler.finished());
}

inline std::vector<Body> shuffler_bodies() {
    return {
        {"shuffle_round_trip", shuffle_round_trip},
        {"shuffle_contiguous", shuffle_contiguous},
        {"shuffle_with_tiny_settings", shuffle_with_tiny_settings},
        {"shuffle_without_gathering", shuffle_without_gathering},
        {"shuffle_with_different_settings", shuffle_with_different_settings},
        {"shuffle_large_chunks", shuffle_large_chunks},
        {"shuffle_many_small_chunks", shuffle_many_small_chunks},
        {"shuffle_from_host_memory", shuffle_from_host_memory},
        {"shuffle_fewer_partitions_than_ranks", shuffle_fewer_partitions_than_ranks},
        {"shuffle_nothing", shuffle_nothing},
        {"shuffle_empty_chunks", shuffle_empty_chunks},
        {"shuffle_all_to_one", shuffle_all_to_one},
        {"shuffle_partition_by_partition", shuffle_partition_by_partition},
        {"shuffle_from_many_threads", shuffle_from_many_threads},
        {"shuffle_many_waiters", shuffle_many_waiters},
        {"shuffle_several_at_once", shuffle_several_at_once},
        {"shuffle_spills", shuffle_spills},
        {"shuffle_counts_payload_bytes", shuffle_counts_payload_bytes},
        {"shuffle_misuse", shuffle_misuse},
        {"shuffle_owners", shuffle_owners},
        {"shuffle_waits_that_time_out", shuffle_waits_that_time_out},
    };
}

}  // namespace rapidsmpf::suite
