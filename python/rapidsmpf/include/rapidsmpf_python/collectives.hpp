// Collectives for Python: waits that Ctrl-C ends (see interrupt.hpp). None of these needs the GIL, unless it says so.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/interrupt.hpp>
#include <rapidsmpf_python/reductions.hpp>

#include <rapidsmpf/coll/allgather.hpp>
#include <rapidsmpf/coll/allreduce.hpp>
#include <rapidsmpf/coll/barrier.hpp>
#include <rapidsmpf/coll/broadcast.hpp>
#include <rapidsmpf/coll/detail/abandon.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/coll/sparse_alltoall.hpp>
#include <rapidsmpf/core/detail/option_table.hpp>

namespace rapidsmpf::python {

// Waits for other ranks as wait_interruptibly() does. Negative seconds: the option collective_timeout; infinite: no limit.
template <typename Wait>
auto wait_for_ranks(Communicator const& comm, Wait&& wait, double seconds) {
    if (seconds >= 0) {
        return wait_interruptibly(std::forward<Wait>(wait), std::isinf(seconds) ? -1 : seconds);
    }
    auto const limit = config::get_optional_seconds(comm.options(), "collective_timeout");
    try {
        return wait_interruptibly(std::forward<Wait>(wait), limit.value_or(-1));
    } catch (TimeoutError const& error) {
        throw TimeoutError{
            std::string{error.what()}
            + ". No timeout was given, so the option collective_timeout counts: do all ranks call this, under the same "
              "operation id?"};
    }
}

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
    std::vector<std::pair<coll::PartitionId, PackedData>> list;
    list.reserve(partitions.size());
    for (std::size_t i = 0; i < partitions.size(); ++i) {
        list.emplace_back(partitions[i], std::move(*chunks[i]));
    }
    // A dict is in the order in which it was filled: mostly ascending.
    auto const partition_of = [](auto const& one) { return one.first; };
    if (!std::ranges::is_sorted(list, {}, partition_of)) {
        std::ranges::sort(list, {}, partition_of);
    }
    shuffler.insert(std::move(list));
}

[[nodiscard]] inline coll::PartitionId wait_any(coll::Shuffler& shuffler, double seconds) {
    return wait_for_ranks(
        *shuffler.comm(), [&](coll::Timeout timeout) { return shuffler.wait_any(timeout); }, seconds);
}

inline void wait_on(coll::Shuffler& shuffler, coll::PartitionId partition, double seconds) {
    wait_for_ranks(
        *shuffler.comm(), [&](coll::Timeout timeout) { shuffler.wait_on(partition, timeout); }, seconds);
}

inline void shut_down(coll::Shuffler& shuffler, double seconds) {
    wait_for_ranks(*shuffler.comm(), [&](coll::Timeout timeout) { shuffler.shutdown(timeout); }, seconds);
}

// amount < 0: all.
[[nodiscard]] inline std::size_t spill(coll::Shuffler& shuffler, std::int64_t amount) {
    return shuffler.spill(amount < 0 ? std::nullopt : std::optional{static_cast<std::size_t>(amount)});
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
    return to_pointers(wait_for_ranks(
        *gather.comm(), [&](coll::Timeout timeout) { return gather.wait_and_extract(order, timeout); },
        seconds));
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

inline void abandon_operations(
    std::shared_ptr<Communicator> const& comm, OpId first, OpId last, std::string const& reason,
    Rank origin) {
    coll::abandon_operations(*comm, first, last, reason, origin);
}

inline void forget_operations(std::shared_ptr<Communicator> const& comm, OpId first, OpId last) {
    coll::forget_abandoned(*comm, first, last);
}

inline void barrier(std::shared_ptr<Communicator> const& comm, OpId op, double seconds) {
    coll::Barrier barrier{comm, op};
    wait_for_ranks(*comm, [&](coll::Timeout timeout) { barrier.wait(timeout); }, seconds);
}

[[nodiscard]] inline std::vector<std::uint8_t> broadcast_bytes(
    std::shared_ptr<Communicator> const& comm, OpId op, Rank root, std::vector<std::uint8_t> const& bytes,
    double seconds) {
    coll::Broadcast broadcast{comm, op, root, bytes};
    return wait_for_ranks(
        *comm, [&](coll::Timeout timeout) { return broadcast.wait_and_extract(timeout); }, seconds);
}

[[nodiscard]] inline std::shared_ptr<coll::SparseAlltoall> make_sparse_alltoall(
    std::shared_ptr<Communicator> comm, OpId op, std::shared_ptr<BufferResource> br,
    std::vector<Rank> sources, std::vector<Rank> destinations, exchange::Settings const& settings) {
    return std::make_shared<coll::SparseAlltoall>(
        std::move(comm), op, std::move(br), std::move(sources), std::move(destinations), settings);
}

inline void insert_for_rank(
    coll::SparseAlltoall& exchange, Rank destination, std::unique_ptr<PackedData> chunk) {
    exchange.insert(destination, std::move(*chunk));
}

inline void wait_for_sources(coll::SparseAlltoall& exchange, double seconds) {
    wait_for_ranks(*exchange.comm(), [&](coll::Timeout timeout) { exchange.wait(timeout); }, seconds);
}

[[nodiscard]] inline PackedList extract_from(coll::SparseAlltoall& exchange, Rank source) {
    return to_pointers(exchange.extract(source));
}

// Bytes are strings here, as Cython converts them.
[[nodiscard]] inline std::shared_ptr<coll::AllReduce> make_named_allreduce(
    std::shared_ptr<Communicator> comm, OpId op, std::string const& value, std::string const& name,
    std::string const& format, exchange::Settings const& settings, std::shared_ptr<BufferResource> br) {
    return std::make_shared<coll::AllReduce>(
        std::move(comm), op, std::as_bytes(std::span{value}), named_reduction(name, format), settings,
        std::move(br));
}

// The caller holds the GIL; it is given up meanwhile.
[[nodiscard]] inline std::shared_ptr<coll::AllReduce> make_callable_allreduce(
    std::shared_ptr<Communicator> comm, OpId op, std::string const& value, PyObject* function,
    exchange::Settings const& settings, std::shared_ptr<BufferResource> br) {
    auto reduction = callable_reduction(function);
    WithoutGil unlocked;
    return std::make_shared<coll::AllReduce>(
        std::move(comm), op, std::as_bytes(std::span{value}), std::move(reduction), settings, std::move(br));
}

[[nodiscard]] inline std::string reduced(coll::AllReduce& reduce, double seconds) {
    auto const bytes = wait_for_ranks(
        *reduce.comm(), [&](coll::Timeout timeout) { return reduce.wait_and_extract(timeout); }, seconds);
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

}  // namespace rapidsmpf::python
