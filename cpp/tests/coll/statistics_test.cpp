// What a shuffle that has too little memory records: every name of the published table, and ours beside them.
#include <rapidsmpf/core/statistics.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/communicator/loopback.hpp>

#include "coll/loopback_ranks.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {
namespace {

constexpr Rank nranks = 2;
constexpr std::size_t small_size = 1'000;    // travels inside messages
constexpr std::size_t large_size = 100'000;  // is announced and granted
constexpr std::size_t device_limit = 10'000;

using AllStatistics = std::vector<std::shared_ptr<Statistics>>;

// A small and a large chunk to every rank, while device memory is full: the small ones are received into host
// memory, the large ones are spilled where they wait. What was received is moved up, and down again.
void spilling_shuffle(std::shared_ptr<Communicator> const& comm, std::shared_ptr<Statistics> statistics) {
    BufferResource::Settings settings;
    settings.limits[0] = device_limit;
    settings.available[0] = [] { return BufferResource::unlimited; };
    settings.reserve_timeout = BufferResource::Duration::zero();
    settings.statistics = std::move(statistics);
    auto const br = BufferResource::make(std::move(settings));
    auto const taken = br->reserve(MemoryType::DEVICE, device_limit, AllowOverbooking::yes);
    coll::Shuffler shuffler{comm, 0, static_cast<coll::PartitionId>(nranks), br};
    for (std::uint64_t index = 0; index < 2; ++index) {
        for (coll::PartitionId p = 0; p < static_cast<coll::PartitionId>(nranks); ++p) {
            bool const small = index == 0;
            shuffler.insert(
                p, make_chunk(
                       *br, 1, comm->rank(), p, index, small ? small_size : large_size,
                       small ? MemoryType::HOST : MemoryType::DEVICE));
        }
    }
    shuffler.spill();
    shuffler.insert_finished();
    auto const mine = static_cast<coll::PartitionId>(comm->rank());
    shuffler.wait_on(mine, patience);
    for (auto& chunk : shuffler.extract(mine)) {
        if (chunk.data->mem_type() == MemoryType::HOST) {
            for (auto const type : {MemoryType::DEVICE, MemoryType::HOST}) {
                auto room = br->reserve(type, chunk.data->size(), AllowOverbooking::yes).first;
                chunk.data = br->move(std::move(chunk.data), room);
            }
        }
        (void)check_chunk(chunk);
    }
    shuffler.shutdown(patience);
}

// Statistics of every rank. The threads that record have ended.
AllStatistics record(Statistics::Enabled enabled) {
    AllStatistics all;
    for (Rank rank = 0; rank < nranks; ++rank) {
        all.push_back(std::make_shared<Statistics>(enabled));
    }
    LoopbackCluster const cluster{nranks};
    auto const endings = run_ranks(cluster.communicators(), [&](std::shared_ptr<Communicator> const& comm) {
        spilling_shuffle(comm, all[static_cast<std::size_t>(comm->rank())]);
    });
    EXPECT_EQ(errors_of(endings), "");
    return all;
}

TEST(ShuffleStatistics, HasEveryNameOfThePublishedTable) {
    for (auto const& statistics : record(Statistics::Enabled::yes)) {
        for (auto const* name :
             {"spill-bytes-device-to-host", "spill-time-device-to-host", "spill-bytes-host-to-device",
              "spill-time-host-to-device", "spill-bytes-recv-to-host", "shuffle-payload-send",
              "shuffle-payload-recv", "event-loop-total", "event-loop-metadata-send",
              "event-loop-metadata-recv", "event-loop-post-incoming-chunk-recv",
              "event-loop-init-gpu-data-send", "event-loop-check-future-finish"}) {
            EXPECT_NO_THROW((void)statistics->get(name)) << name;
        }
    }
}

TEST(ShuffleStatistics, BytesAreThoseThatMoved) {
    for (auto const& statistics : record(Statistics::Enabled::yes)) {
        EXPECT_EQ(statistics->get("shuffle-payload-send").value, nranks * (small_size + large_size));
        EXPECT_EQ(statistics->get("shuffle-payload-recv").value, nranks * (small_size + large_size));
        EXPECT_GE(statistics->get("spill-bytes-recv-to-host").value, (nranks - 1) * small_size);
        EXPECT_GE(statistics->get("spill-bytes-host-to-device").value, nranks * small_size);
        EXPECT_GE(statistics->get("spill-bytes-device-to-host").value, nranks * small_size);
        EXPECT_GE(statistics->get("exchange-control-bytes").value, (nranks - 1) * small_size);
        EXPECT_EQ(statistics->get("exchange-grant-wait-time").count, nranks - 1);
        EXPECT_GE(statistics->get("memory-peak-device").value, large_size);
        EXPECT_GE(statistics->get("reservation-overbooked-bytes").value, large_size);
    }
}

TEST(ShuffleStatistics, ThePartsOfTheEventLoopAreWithinTheWhole) {
    for (auto const& statistics : record(Statistics::Enabled::yes)) {
        double const parts = statistics->get("event-loop-metadata-send").value
                             + statistics->get("event-loop-post-incoming-chunk-recv").value
                             + statistics->get("event-loop-init-gpu-data-send").value
                             + statistics->get("event-loop-check-future-finish").value;
        EXPECT_LE(parts, statistics->get("event-loop-total").value * (1 + 1e-9));
    }
}

TEST(ShuffleStatistics, DisabledOnesStayEmpty) {
    for (auto const& statistics : record(Statistics::Enabled::no)) {
        EXPECT_TRUE(statistics->names().empty());
    }
}

}  // namespace
}  // namespace rapidsmpf::suite
