#include <rapidsmpf/coll/shuffler.hpp>

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>
#include <rapidsmpf/memory/detail/partition_order_hint.hpp>

namespace rapidsmpf::coll {

Rank partition_owner(
    PartitionId partition, std::uint32_t total, Rank nranks, PartitionAssignment assignment) noexcept {
    if (assignment == PartitionAssignment::round_robin) {
        return static_cast<Rank>(partition % static_cast<PartitionId>(nranks));
    }
    // In 64 bits: the product of two large numbers does not fit into the type of either.
    return static_cast<Rank>(std::uint64_t{partition} * static_cast<std::uint64_t>(nranks) / total);
}

namespace {

std::vector<PartitionId> sorted_by_owner(std::uint32_t total, Rank nranks, PartitionAssignment assignment) {
    std::vector<PartitionId> order(total);
    std::iota(order.begin(), order.end(), PartitionId{0});
    std::ranges::stable_sort(order, {}, [&](PartitionId partition) {
        return partition_owner(partition, total, nranks, assignment);
    });
    return order;
}

}  // namespace

Shuffler::Shuffler(
    std::shared_ptr<Communicator> comm, OpId op, std::uint32_t total_partitions,
    std::shared_ptr<BufferResource> br, PartitionAssignment assignment, exchange::Settings const& settings)
    : comm_{std::move(comm)}, op_{op}, total_{total_partitions}, assignment_{assignment} {
    RAPIDSMPF_EXPECTS(comm_ != nullptr, "a shuffle needs a communicator", std::invalid_argument);
    exchange::Operation::Plan plan;
    plan.kind = "shuffle";
    plan.op = op;
    plan.total = total_;
    plan.owner = [total = total_, nranks = comm_->nranks(), assignment](PartitionId partition) {
        return partition_owner(partition, total, nranks, assignment);
    };
    plan.settings = settings;
    // Not on a GPU, where chunks are large and a thread that sleeps costs the link more than it saves the CPU.
    plan.coalescing = br != nullptr && br->device().kind() == DeviceKind::cpu
                          ? exchange::Operation::Coalescing::yes
                          : exchange::Operation::Coalescing::no;
    operation_ = exchange::Operation::open(*comm_, br, std::move(plan));
    local_ = operation_->local_partitions();
    auto order = sorted_by_owner(total_, comm_->nranks(), assignment_);
    by_owner_ = std::ranges::is_sorted(order)
                    ? std::make_shared<std::vector<PartitionId> const>(std::move(order))
                    : br->partition_order_hint().advise(std::move(order));
}

Shuffler::~Shuffler() = default;

void Shuffler::give_up(std::string const& reason) {
    if (!operation_->all_inserted()) {
        operation_->abandon(reason);
    }
}

void Shuffler::insert(std::vector<std::pair<PartitionId, PackedData>> chunks) {
    operation_->insert(std::move(chunks));
}

void Shuffler::insert(std::unordered_map<PartitionId, PackedData> chunks) {
    std::vector<std::pair<PartitionId, PackedData>> ascending;
    ascending.reserve(chunks.size());
    for (auto& [partition, chunk] : chunks) {
        ascending.emplace_back(partition, std::move(chunk));
    }
    // A map that was filled in order mostly gives it out backwards.
    auto const partition_of = [](auto const& one) { return one.first; };
    std::ranges::reverse(ascending);
    if (!std::ranges::is_sorted(ascending, {}, partition_of)) {
        std::ranges::sort(ascending, {}, partition_of);
    }
    operation_->insert(std::move(ascending));
}

void Shuffler::insert(PartitionId partition, PackedData chunk) {
    std::vector<std::pair<PartitionId, PackedData>> list;
    list.emplace_back(partition, std::move(chunk));
    operation_->insert(std::move(list));
}

void Shuffler::insert_finished(std::vector<PartitionId> const& partitions) {
    operation_->insert_finished(partitions);
}

void Shuffler::insert_finished() {
    operation_->insert_finished();
}

PartitionId Shuffler::wait_any(Timeout timeout) {
    return operation_->wait_any(timeout);
}

void Shuffler::wait_on(PartitionId partition, Timeout timeout) {
    operation_->wait_on(partition, timeout);
}

std::vector<PackedData> Shuffler::extract(PartitionId partition) {
    auto chunks = operation_->extract(partition);
    std::vector<PackedData> data;
    data.reserve(chunks.size());
    for (auto& chunk : chunks) {
        data.push_back(std::move(chunk.data));
    }
    return data;
}

bool Shuffler::finished() const {
    return operation_->all_extracted();
}

Rank Shuffler::owner(PartitionId partition) const {
    RAPIDSMPF_EXPECTS(
        partition < total_,
        operation_->str() + " has " + std::to_string(total_) + " partitions, there is no partition "
            + std::to_string(partition),
        std::out_of_range);
    return partition_owner(partition, total_, comm_->nranks(), assignment_);
}

std::size_t Shuffler::spill(std::optional<std::size_t> amount) {
    return operation_->spill(amount.value_or(std::numeric_limits<std::size_t>::max()));
}

void Shuffler::shutdown(Timeout timeout) {
    operation_->shutdown(timeout);
}

std::string Shuffler::str() const {
    return operation_->str();
}

void Shuffler::tell_when_any(std::function<void()> told) {
    operation_->tell_when_any(std::move(told));
}
void Shuffler::tell_when_complete(PartitionId partition, std::function<void()> told) {
    operation_->tell_when_complete(partition, std::move(told));
}

}  // namespace rapidsmpf::coll
