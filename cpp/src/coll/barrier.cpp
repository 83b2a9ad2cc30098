#include <rapidsmpf/coll/barrier.hpp>

#include <utility>

#include "coll/per_rank.hpp"

namespace rapidsmpf::coll {

// Every rank finishes the partition of each rank, without a chunk.
Barrier::Barrier(std::shared_ptr<Communicator> comm, OpId op) : comm_{std::move(comm)} {
    auto& ranks = require_comm(comm_, "a barrier");
    operation_ = exchange::Operation::open(
        ranks, BufferResource::make(),
        plan_per_rank(ranks, "barrier", op, exchange::Settings::for_device(Device::current())));
    operation_->insert_finished();
}

Barrier::~Barrier() = default;

void Barrier::wait(Timeout timeout) {
    operation_->wait_complete(static_cast<PartitionId>(comm_->rank()), timeout);
}

void barrier(std::shared_ptr<Communicator> const& comm, OpId op, Timeout timeout) {
    Barrier{comm, op}.wait(timeout);
}

void Barrier::tell_when_complete(std::function<void()> told) {
    operation_->tell_when_complete(static_cast<PartitionId>(comm_->rank()), std::move(told));
}

}  // namespace rapidsmpf::coll
