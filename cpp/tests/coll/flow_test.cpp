// Ways of being hard on the protocol: each is run plain and with a seeded schedule of delays, and what may be in memory
// is checked where the protocol promises it. benchmarks/shuffle has the same at full size.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/coll/barrier.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include "coll/loopback_ranks.hpp"
#include "coll/shuffler_suite.hpp"
#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {
namespace {

constexpr OpId op = 3;
constexpr OpId barrier_op = 4;

// A resource whose device memory has a limit that only buffers count against.
std::shared_ptr<BufferResource> limited(std::size_t bytes) {
    BufferResource::Settings settings;
    settings.limits[0] = static_cast<std::int64_t>(bytes);
    settings.available[0] = [] { return BufferResource::unlimited; };
    return BufferResource::make(std::move(settings));
}

std::size_t used(BufferResource const& br) {
    return static_cast<std::size_t>(br.memory_used(MemoryType::DEVICE));
}

// Takes all partitions of this rank: `expected(p)` chunks of each, whole and in order.
void take_all(Shuffler& shuffler, std::function<std::size_t(PartitionId)> const& expected) {
    for (std::size_t i = 0; i < shuffler.local_partitions().size(); ++i) {
        auto const p = shuffler.wait_any(patience);
        auto const chunks = shuffler.extract(p);
        SUITE_CHECK(chunks.size() == expected(p));
        std::pair<Rank, std::uint64_t> last{-1, 0};
        for (auto const& chunk : chunks) {
            auto const label = check_chunk(chunk);
            SUITE_CHECK(label.partition == p);
            SUITE_CHECK((std::pair{label.source, label.index + 1}) > last);
            last = {label.source, label.index + 1};
        }
    }
    SUITE_CHECK(shuffler.finished());
}

PartitionId ranks_of(Communicator const& comm) {
    return static_cast<PartitionId>(comm.nranks());
}

// Rank 0 takes nothing in until the others have inserted everything: what waits for it there can be spilled, and no
// more comes here at a time than the receive limit allows.
void slow_receiver(std::shared_ptr<Communicator> const& comm) {
    constexpr std::uint64_t chunks = 30;
    auto const n = ranks_of(*comm);
    auto const br = limited(std::size_t{1} << 30U);
    auto const settings = tiny_settings();
    bool const is_slow = comm->rank() == 0;
    std::unique_ptr<Shuffler> shuffler;
    auto const open = [&] {
        shuffler = std::make_unique<Shuffler>(comm, op, n, br, PartitionAssignment::round_robin, settings);
    };
    if (!is_slow) {
        open();
        for (std::uint64_t index = 0; index < chunks; ++index) {
            shuffler->insert(0, make_chunk(*br, 1, comm->rank(), 0, index, 200));
        }
        shuffler->insert_finished();
        auto const deadline = std::chrono::steady_clock::now() + patience;
        while (used(*br) > 0) {  // the progress thread looks at them meanwhile
            SUITE_CHECK(std::chrono::steady_clock::now() < deadline);
            (void)shuffler->spill();
            std::this_thread::yield();
        }
    }
    coll::barrier(comm, barrier_op, patience);
    if (is_slow) {
        open();
        shuffler->insert_finished();
    }
    take_all(*shuffler, [&](PartitionId p) { return p == 0 ? chunks * (n - 1) : 0; });
    SUITE_CHECK(exchange::OperationDispatcher::of(*comm)->budget().peak() <= settings.receive_limit);
}

// All rows come from rank 0.
void one_sender(std::shared_ptr<Communicator> const& comm) {
    constexpr std::uint64_t chunks = 40;
    auto const partitions = 3 * ranks_of(*comm);
    auto const br = BufferResource::make();
    Shuffler shuffler{comm, op, partitions, br, PartitionAssignment::contiguous, tiny_settings()};
    for (std::uint64_t index = 0; comm->rank() == 0 && index < chunks; ++index) {
        for (PartitionId p = 0; p < partitions; ++p) {
            shuffler.insert(p, make_chunk(*br, 2, 0, p, index, size_of(2, 0, p, index, 600)));
        }
    }
    shuffler.insert_finished();
    take_all(shuffler, [](PartitionId) { return chunks; });
}

void tiny_chunks(std::shared_ptr<Communicator> const& comm) {
    constexpr std::uint64_t chunks = 500;
    auto const n = ranks_of(*comm);
    auto const br = BufferResource::make();
    Shuffler shuffler{comm, op, 2 * n, br};
    for (std::uint64_t index = 0; index < chunks; ++index) {
        for (PartitionId p = 0; p < 2 * n; ++p) {
            shuffler.insert(p, make_chunk(*br, 3, comm->rank(), p, index, index % 9));
        }
    }
    shuffler.insert_finished();
    take_all(shuffler, [&](PartitionId) { return chunks * n; });
}

void thousands_of_partitions(std::shared_ptr<Communicator> const& comm) {
    constexpr PartitionId partitions = 2'000;
    auto const n = ranks_of(*comm);
    auto const br = BufferResource::make();
    Shuffler shuffler{comm, op, partitions, br};
    std::vector<std::pair<PartitionId, PackedData>> chunks;
    for (PartitionId p = 0; p < partitions; ++p) {
        chunks.emplace_back(p, make_chunk(*br, 4, comm->rank(), p, 0, p % 50));
    }
    shuffler.insert(std::move(chunks));
    shuffler.insert_finished();
    take_all(shuffler, [&](PartitionId) { return n; });
}

// They share the receive budget and the control messages; the last to be inserted into is the first to be taken.
void many_shuffles_at_once(std::shared_ptr<Communicator> const& comm) {
    constexpr OpId count = 30;
    constexpr std::uint64_t chunks = 3;
    auto const n = ranks_of(*comm);
    auto const br = BufferResource::make();
    std::vector<std::unique_ptr<Shuffler>> shufflers;
    for (OpId i = 0; i < count; ++i) {
        shufflers.push_back(
            std::make_unique<Shuffler>(
                comm, op + i, n, br, PartitionAssignment::round_robin,
                i % 2 == 0 ? tiny_settings() : exchange::Settings()));
    }
    for (std::uint64_t index = 0; index < chunks; ++index) {
        for (std::size_t i = 0; i < shufflers.size(); ++i) {
            for (PartitionId p = 0; p < n; ++p) {
                shufflers[i]->insert(p, make_chunk(*br, i, comm->rank(), p, index, 150));
            }
        }
    }
    for (auto const& shuffler : shufflers) {
        shuffler->insert_finished();
    }
    std::reverse(shufflers.begin(), shufflers.end());
    for (auto const& shuffler : shufflers) {
        take_all(*shuffler, [&](PartitionId) { return chunks * n; });
    }
}

// No rank has any memory left, and nothing that holds it can be spilled: the shuffle goes on by overbooking.
void nobody_has_memory(std::shared_ptr<Communicator> const& comm) {
    constexpr std::uint64_t chunks = 4;
    auto const n = ranks_of(*comm);
    auto const br = limited(50'000);
    auto const all_there_is = br->allocate(MemoryType::DEVICE, 50'000);
    Shuffler shuffler{comm, op, n, br};
    for (std::uint64_t index = 0; index < chunks; ++index) {
        for (PartitionId p = 0; p < n; ++p) {
            shuffler.insert(p, make_chunk(*br, 6, comm->rank(), p, index, 70'000));
        }
    }
    shuffler.insert_finished();
    for (auto const p : shuffler.local_partitions()) {
        shuffler.wait_on(p, patience);
        auto const taken = shuffler.extract(p);
        SUITE_CHECK(taken.size() == chunks * n);
        for (auto const& chunk : taken) {
            SUITE_CHECK(check_chunk(chunk).partition == p);
        }
    }
}

// All rows go to rank 0, twelve times what it holds: what it has at a time stays near its limit.
void skew_through_a_small_memory(std::shared_ptr<Communicator> const& comm) {
    constexpr std::size_t limit = std::size_t{1} << 20U;
    constexpr std::size_t size = 20'000;
    constexpr PartitionId each = 16;
    auto const n = ranks_of(*comm);
    std::uint64_t const chunks = 12 * limit / size / each / n;
    auto const br = limited(limit);
    exchange::Settings settings;
    settings.frame_bytes = limit / 16;
    settings.receive_limit = limit / 8;
    Shuffler shuffler{comm, op, each * n, br, PartitionAssignment::contiguous, settings};
    for (std::uint64_t index = 0; index < chunks; ++index) {
        for (PartitionId p = 0; p < each; ++p) {
            shuffler.insert(p, make_chunk(*br, 7, comm->rank(), p, index, size));
        }
    }
    shuffler.insert_finished();
    std::size_t taken = 0;
    for (auto const p : shuffler.local_partitions()) {
        shuffler.wait_on(p, patience);
        for (auto& chunk : shuffler.extract(p)) {
            chunk.data = br->move_to_host_access(std::move(chunk.data));
            SUITE_CHECK(check_chunk(chunk).partition == p);
            ++taken;
        }
    }
    SUITE_CHECK(taken == (comm->rank() == 0 ? chunks * each * n : 0));
    SUITE_CHECK(br->memory_peak(MemoryType::DEVICE) <= static_cast<std::int64_t>(limit + limit / 4));
}

struct Flow {
    std::string name;
    std::function<void(std::shared_ptr<Communicator> const&)> run;
};

std::vector<Flow> const& flows() {
    static std::vector<Flow> const all{
        {"SlowReceiver", slow_receiver},
        {"OneSender", one_sender},
        {"TinyChunks", tiny_chunks},
        {"ThousandsOfPartitions", thousands_of_partitions},
        {"ManyShufflesAtOnce", many_shuffles_at_once},
        {"NobodyHasMemory", nobody_has_memory},
        {"SkewThroughASmallMemory", skew_through_a_small_memory},
    };
    return all;
}

class FlowPattern : public testing::TestWithParam<std::size_t> {
  protected:
    [[nodiscard]] Flow const& flow() const { return flows()[GetParam()]; }
};

TEST_P(FlowPattern, ComesThrough) {
    LoopbackCluster const cluster{3};
    EXPECT_EQ(errors_of(run_ranks(cluster.communicators(), flow().run)), "");
}

TEST_P(FlowPattern, ComesThroughWithDelays) {
    LoopbackFaults faults;
    faults.seed = 11;
    faults.delay_probability = 0.5;
    faults.longest_delay = 40;
    LoopbackCluster const cluster{2, faults};
    EXPECT_EQ(errors_of(run_ranks(cluster.communicators(), flow().run)), "");
}

INSTANTIATE_TEST_SUITE_P(
    All, FlowPattern, testing::Range<std::size_t>(0, flows().size()),
    [](testing::TestParamInfo<std::size_t> const& info) { return flows()[info.param].name; });

}  // namespace
}  // namespace rapidsmpf::suite
