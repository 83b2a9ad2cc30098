// Waiting for collectives without keeping a thread.
//
//     auto const shuffler = std::make_shared<Shuffler>(communicator, op, partitions, resource);
//     ...
//     auto const partition = co_await async_wait_any(context.executor(), shuffler);
//     auto const chunks = shuffler->extract(partition);
//
// Each does what the method of that name does, and throws what it throws. The exchange itself resumes who waits, when what they
// wait for is there or an error is: there is no polling. They keep the collective, not the executor's threads. A cancelled wait
// throws what its token was given and leaves the collective as it was: destroy it, or have the other ranks learn why (give_up()).
//
// give_up_with() has a collective tell the other ranks why, when the network fails that inserts into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <rapidsmpf/coll/allgather.hpp>
#include <rapidsmpf/coll/allreduce.hpp>
#include <rapidsmpf/coll/barrier.hpp>
#include <rapidsmpf/coll/broadcast.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/coll/sparse_alltoall.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/streaming/cancellation.hpp>
#include <rapidsmpf/streaming/executor.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

[[nodiscard]] Task<coll::PartitionId> async_wait_any(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::Shuffler> shuffler,
    CancellationToken cancellation = CancellationToken());
[[nodiscard]] Task<void> async_wait_on(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::Shuffler> shuffler, coll::PartitionId partition,
    CancellationToken cancellation = CancellationToken());
[[nodiscard]] Task<std::vector<PackedData>> async_wait_and_extract(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::AllGather> allgather,
    coll::Ordered ordered = coll::Ordered::yes, CancellationToken cancellation = CancellationToken());
[[nodiscard]] Task<std::vector<std::byte>> async_wait_and_extract(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::AllReduce> allreduce,
    CancellationToken cancellation = CancellationToken());
[[nodiscard]] Task<std::vector<std::uint8_t>> async_wait_and_extract(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::Broadcast> broadcast,
    CancellationToken cancellation = CancellationToken());
[[nodiscard]] Task<void> async_wait(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::SparseAlltoall> alltoall,
    CancellationToken cancellation = CancellationToken());
[[nodiscard]] Task<void> async_wait(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::Barrier> barrier,
    CancellationToken cancellation = CancellationToken());

// As long as the registration lives: when `cancellation` is cancelled, and this rank has not inserted all by then, the others'
// waits raise an error with the reason. The registration keeps the collective.
[[nodiscard]] CancellationToken::Registration give_up_with(
    CancellationToken const& cancellation, std::shared_ptr<coll::Shuffler> shuffler);
[[nodiscard]] CancellationToken::Registration give_up_with(
    CancellationToken const& cancellation, std::shared_ptr<coll::AllGather> allgather);

// For actors that insert into one: the reason that give_up() of a collective is given.
[[nodiscard]] std::string reason_of(std::exception_ptr const& error);

}  // namespace rapidsmpf::streaming
