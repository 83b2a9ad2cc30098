#include <rapidsmpf/coll/allgather.hpp>

#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/operation.hpp>

namespace rapidsmpf::coll {

// An exchange with one partition per rank, into which every rank inserts the same chunks.

AllGather::AllGather(
    std::shared_ptr<Communicator> comm, OpId op, std::shared_ptr<BufferResource> br,
    exchange::Settings const& settings)
    : comm_{std::move(comm)}, op_{op} {
    RAPIDSMPF_EXPECTS(comm_ != nullptr, "an all-gather needs a communicator", std::invalid_argument);
    exchange::Operation::Plan plan;
    plan.kind = "allgather";
    plan.op = op;
    plan.total = static_cast<PartitionId>(comm_->nranks());
    plan.owner = [](PartitionId partition) { return static_cast<Rank>(partition); };
    plan.settings = settings;
    operation_ = exchange::Operation::open(*comm_, std::move(br), std::move(plan));
}

AllGather::~AllGather() {
    operation_->release();
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

void barrier(std::shared_ptr<Communicator> const& comm, OpId op, Timeout timeout) {
    AllGather gather{comm, op, BufferResource::make()};
    gather.insert_finished();
    (void)gather.wait_and_extract(Ordered::no, timeout);
}

}  // namespace rapidsmpf::coll
