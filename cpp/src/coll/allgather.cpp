#include <rapidsmpf/coll/allgather.hpp>

#include <stdexcept>
#include <utility>

#include "coll/per_rank.hpp"

namespace rapidsmpf::coll {

// An exchange with one partition per rank, into which every rank inserts the same chunks.

AllGather::AllGather(
    std::shared_ptr<Communicator> comm, OpId op, std::shared_ptr<BufferResource> br,
    exchange::Settings const& settings)
    : comm_{std::move(comm)}, op_{op} {
    auto& ranks = require_comm(comm_, "an all-gather");
    operation_ =
        exchange::Operation::open(ranks, std::move(br), plan_per_rank(ranks, "allgather", op, settings));
}

AllGather::~AllGather() = default;

void AllGather::give_up(std::string const& reason) {
    if (!operation_->all_inserted()) {
        operation_->abandon(reason);
    }
}

void AllGather::insert(std::uint64_t sequence, PackedData chunk) {
    operation_->insert_for_all(sequence, std::move(chunk));
}

void AllGather::insert_finished() {
    RAPIDSMPF_EXPECTS(
        !operation_->all_inserted(), operation_->str() + " is finished already", std::logic_error);
    operation_->insert_finished();
}

std::vector<PackedData> AllGather::wait_and_extract(Ordered ordered, Timeout timeout) {
    (void)ordered;  // order costs nothing here: chunks come sorted
    operation_->wait_complete(static_cast<PartitionId>(comm_->rank()), timeout);
    operation_->release_id();
    return extract_ready();
}

std::vector<PackedData> AllGather::extract_ready() {
    std::vector<PackedData> data;
    for (auto& chunk : operation_->extract(static_cast<PartitionId>(comm_->rank()))) {
        data.push_back(std::move(chunk.data));
    }
    return data;
}

bool AllGather::finished() const {
    return operation_->all_complete();
}

std::vector<std::vector<std::uint8_t>> allgather_bytes(
    std::shared_ptr<Communicator> const& comm, OpId op, std::vector<std::uint8_t> bytes, Timeout timeout) {
    // The bytes travel as metadata, so the resource has nothing to hold.
    auto const br = BufferResource::make();
    AllGather gather{comm, op, br};
    gather.insert(0, PackedData{std::move(bytes), br->allocate(MemoryType::HOST, 0)});
    gather.insert_finished();
    std::vector<std::vector<std::uint8_t>> gathered;
    for (auto& chunk : gather.wait_and_extract(Ordered::yes, timeout)) {
        gathered.push_back(std::move(chunk.metadata));
    }
    return gathered;
}

void AllGather::tell_when_complete(std::function<void()> told) {
    operation_->tell_when_complete(static_cast<PartitionId>(comm_->rank()), std::move(told));
}

}  // namespace rapidsmpf::coll
