// Collectives for Python: waits that Ctrl-C ends (see interrupt.hpp). None of these needs the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/interrupt.hpp>

#include <rapidsmpf/coll/allgather.hpp>
#include <rapidsmpf/coll/shuffler.hpp>

namespace rapidsmpf::python {

// Packed data, each held by a pointer as Python does.
using PackedList = std::vector<std::unique_ptr<PackedData>>;

[[nodiscard]] inline PackedList to_pointers(std::vector<PackedData> chunks) {
    PackedList result;
    result.reserve(chunks.size());
    for (auto& chunk : chunks) {
        result.push_back(std::make_unique<PackedData>(std::move(chunk)));
    }
    return result;
}

[[nodiscard]] inline std::vector<PackedData> to_values(PackedList chunks) {
    std::vector<PackedData> result;
    result.reserve(chunks.size());
    for (auto& chunk : chunks) {
        result.push_back(std::move(*chunk));
    }
    return result;
}

[[nodiscard]] inline std::shared_ptr<coll::Shuffler> make_shuffler(
    std::shared_ptr<Communicator> comm, OpId op, std::uint32_t total, std::shared_ptr<BufferResource> br,
    bool contiguous, exchange::Settings const& settings) {
    return std::make_shared<coll::Shuffler>(
        std::move(comm), op, total, std::move(br),
        contiguous ? coll::PartitionAssignment::contiguous : coll::PartitionAssignment::round_robin,
        settings);
}

inline void insert_chunks(
    coll::Shuffler& shuffler, std::vector<coll::PartitionId> const& partitions, PackedList chunks) {
    std::unordered_map<coll::PartitionId, PackedData> map;
    for (std::size_t i = 0; i < partitions.size(); ++i) {
        map.emplace(partitions[i], std::move(*chunks[i]));
    }
    shuffler.insert(std::move(map));
}

[[nodiscard]] inline coll::PartitionId wait_any(coll::Shuffler& shuffler, double seconds) {
    return wait_interruptibly([&](coll::Timeout timeout) { return shuffler.wait_any(timeout); }, seconds);
}

inline void wait_on(coll::Shuffler& shuffler, coll::PartitionId partition, double seconds) {
    wait_interruptibly([&](coll::Timeout timeout) { shuffler.wait_on(partition, timeout); }, seconds);
}

inline void shut_down(coll::Shuffler& shuffler, double seconds) {
    wait_interruptibly([&](coll::Timeout timeout) { shuffler.shutdown(timeout); }, seconds);
}

[[nodiscard]] inline PackedList extract(coll::Shuffler& shuffler, coll::PartitionId partition) {
    return to_pointers(shuffler.extract(partition));
}

[[nodiscard]] inline std::shared_ptr<coll::AllGather> make_allgather(
    std::shared_ptr<Communicator> comm, OpId op, std::shared_ptr<BufferResource> br,
    exchange::Settings const& settings) {
    return std::make_shared<coll::AllGather>(std::move(comm), op, std::move(br), settings);
}

inline void insert_chunk(coll::AllGather& gather, std::uint64_t sequence, std::unique_ptr<PackedData> chunk) {
    gather.insert(sequence, std::move(*chunk));
}

[[nodiscard]] inline PackedList wait_and_extract(coll::AllGather& gather, bool ordered, double seconds) {
    auto const order = ordered ? coll::Ordered::yes : coll::Ordered::no;
    return to_pointers(wait_interruptibly(
        [&](coll::Timeout timeout) { return gather.wait_and_extract(order, timeout); }, seconds));
}

[[nodiscard]] inline PackedList extract_ready(coll::AllGather& gather) {
    return to_pointers(gather.extract_ready());
}

// As coll::allgather_bytes, interruptible. The bytes travel as metadata.
[[nodiscard]] inline std::vector<std::vector<std::uint8_t>> allgather_bytes(
    std::shared_ptr<Communicator> const& comm, OpId op, std::vector<std::uint8_t> bytes, double seconds) {
    auto const br = BufferResource::make();
    coll::AllGather gather{comm, op, br};
    gather.insert(0, PackedData{std::move(bytes), br->allocate(MemoryType::HOST, 0)});
    gather.insert_finished();
    std::vector<std::vector<std::uint8_t>> gathered;
    for (auto& chunk : wait_and_extract(gather, true, seconds)) {
        gathered.push_back(std::move(chunk->metadata));
    }
    return gathered;
}

}  // namespace rapidsmpf::python
