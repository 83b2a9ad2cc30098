#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/core/detail/checksum.hpp>

#include "cases.hpp"

namespace rapidsmpf::bench {

namespace {

constexpr OpId op = 10;

using Chunks = std::vector<std::pair<coll::PartitionId, PackedData>>;

// What was sent or has come: chunks, bytes, and a sum over what tells chunks apart.
struct Check {
    std::uint64_t chunks{0};
    std::uint64_t bytes{0};
    std::uint64_t sum{0};

    // Metadata of a chunk: its partition and the checksum of its data.
    void add(PackedData const& chunk, std::uint32_t partition) {
        std::uint32_t says{0};
        std::memcpy(&says, chunk.metadata.data(), sizeof(says));
        auto const crc = crc32c(chunk.data->host_bytes());
        std::uint32_t expected{0};
        std::memcpy(&expected, chunk.metadata.data() + sizeof(says), sizeof(expected));
        if (says != partition || crc != expected) {
            throw std::runtime_error{"a chunk is not what was inserted"};
        }
        ++chunks;
        bytes += chunk.data->size();
        sum += mix((std::uint64_t{partition} << 32U) | crc);
    }
    [[nodiscard]] std::vector<std::uint64_t> values() const { return {chunks, bytes, sum}; }
};

// `bytes` in chunks of `size`, dealt to the partitions in turn (each rank begins with another).
Chunks make_chunks(
    Job const& job, BufferResource& br, std::vector<std::byte>& pattern, std::size_t bytes, std::size_t size,
    std::uint32_t partitions) {
    Chunks chunks;
    auto partition = static_cast<std::uint32_t>(job.rank()) % partitions;
    for (std::size_t done = 0; done < bytes; done += size) {
        auto const label = (static_cast<std::uint64_t>(job.rank()) << 48U) | done;
        std::memcpy(pattern.data(), &label, sizeof(label));
        auto buffer = br.allocate(MemoryType::DEVICE, size);
        std::memcpy(buffer->mutable_host_bytes().data(), pattern.data(), size);
        std::vector<std::uint8_t> metadata(8);
        auto const crc = crc32c(buffer->host_bytes());
        std::memcpy(metadata.data(), &partition, sizeof(partition));
        std::memcpy(metadata.data() + sizeof(partition), &crc, sizeof(crc));
        chunks.emplace_back(partition, PackedData{std::move(metadata), std::move(buffer)});
        partition = (partition + 1) % partitions;
    }
    return chunks;
}

// `least`: bytes of each rank, or more: as many chunks for each rank as for the others.
void run_cell(
    Job& job, BufferResource& br, std::size_t least, std::size_t size, std::size_t per_rank, int warm_up,
    int repeats) {
    auto const for_each_rank = size * job.nranks();
    auto const bytes = (least + for_each_rank - 1) / for_each_rank * for_each_rank;
    auto const partitions = static_cast<std::uint32_t>(per_rank * job.nranks());
    std::vector<std::byte> pattern(size);
    for (std::size_t at = 0; at + 8 <= size; at += 8) {
        auto const value = mix(at + 1);
        std::memcpy(pattern.data() + at, &value, sizeof(value));
    }
    Memcpy copy{bytes};
    Series shuffle;
    Series memcpy;
    for (int round = -warm_up; round < repeats; ++round) {
        Check sent;
        auto chunks = make_chunks(job, br, pattern, bytes, size, partitions);
        for (auto const& [partition, chunk] : chunks) {
            sent.add(chunk, partition);
        }
        auto const copied = job.measure([&] { copy.run(); });
        Chunks received;
        received.reserve(chunks.size() * 2);
        auto const taken = job.measure([&] {
            coll::Shuffler shuffler{
                job.comm(),    op, partitions, br.shared_from_this(), coll::PartitionAssignment::round_robin,
                job.settings()};
            for (auto& [partition, chunk] : chunks) {
                shuffler.insert(partition, std::move(chunk));
            }
            shuffler.insert_finished();
            for (std::size_t i = 0; i < shuffler.local_partitions().size(); ++i) {
                auto const partition = shuffler.wait_any();
                for (auto& chunk : shuffler.extract(partition)) {
                    received.emplace_back(partition, std::move(chunk));
                }
            }
        });
        Check came;
        for (auto const& [partition, chunk] : received) {
            came.add(chunk, partition);
        }
        job.expect_equal_sums(sent.values(), came.values(), "packed");
        if (round >= 0) {
            shuffle.add(taken);
            memcpy.add(copied);
        }
    }
    auto const all = bytes * job.nranks();
    job.write(CellRecord{"packed", size, per_rank, all, all, {{"exchange", shuffle}, {"memcpy", memcpy}}});
}

}  // namespace

void packed(Job& job, Arguments const& arguments) {
    auto const sizes = arguments.sizes("chunks", "64KiB,256KiB,1MiB,8MiB,64MiB");
    auto const partitions = arguments.sizes("partitions", "1,10,100,1000");
    auto const bytes = arguments.size("bytes", "256MiB");
    auto const warm_up = static_cast<int>(arguments.size("warmup", "1"));
    auto const repeats = static_cast<int>(arguments.size("repeats", "5"));
    arguments.check_all_used();
    auto const br = BufferResource::from_options(job.options());
    for (auto const per_rank : partitions) {
        for (auto const size : sizes) {
            run_cell(job, *br, bytes, size, per_rank, warm_up, repeats);
        }
    }
}

}  // namespace rapidsmpf::bench
