#include "exchange/operation_state.hpp"

#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {

namespace {

std::vector<PartitionId> partitions_of(Rank rank, Operation::Plan const& plan) {
    std::vector<PartitionId> local;
    for (PartitionId partition = 0; partition < plan.total; ++partition) {
        if (plan.owner(partition) == rank) {
            local.push_back(partition);
        }
    }
    return local;
}

}  // namespace

OperationState::OperationState(
    Communicator& comm_, std::shared_ptr<BufferResource> br_, Operation::Plan plan_)
    : comm{comm_},
      br{std::move(br_)},
      plan{std::move(plan_)},
      rank{comm.rank()},
      local{partitions_of(rank, plan)},
      payload_send{br->statistics()->id(plan.kind + "-payload-send", Statistics::Unit::bytes)},
      bundler{plan, br, rank, comm.nranks()},
      unpacker{
          br, local, br->statistics()->id(plan.kind + "-payload-recv", Statistics::Unit::bytes),
          statistic::id("spill-bytes-recv-to-host")},
      waker{std::make_shared<Waker>(comm.progress_thread())},
      inserted{plan, rank, comm.nranks()},
      store{local.ids(), comm.nranks()} {
    progress.backlog.resize(static_cast<std::size_t>(comm.nranks()));
}

void OperationState::check_partition(PartitionId partition) const {
    RAPIDSMPF_EXPECTS(
        partition < plan.total,
        str() + " has " + std::to_string(plan.total) + " partitions, there is no partition "
            + std::to_string(partition),
        std::out_of_range);
}

LocalPartitions::Index OperationState::require_local(PartitionId partition) const {
    check_partition(partition);
    auto const index = local.find(partition);
    RAPIDSMPF_EXPECTS(
        index.has_value(),
        "partition " + std::to_string(partition) + " of " + str() + " belongs to rank "
            + std::to_string(plan.owner(partition)),
        std::invalid_argument);
    return *index;
}

bool OperationState::is_over(Watcher const& watcher) const {
    if (closing.ends_waits()) {
        return true;
    }
    return watcher.index ? store.is_complete(*watcher.index)
                         : store.all_taken() || store.first_ready().has_value();
}

void OperationState::watch(Watcher watcher) {
    if (is_over(watcher)) {
        watcher.told();
    } else {
        watchers.push_back(std::move(watcher));
    }
}

void OperationState::notify() {
    changed.notify_all();
    for (std::size_t i = 0; i < watchers.size();) {
        if (is_over(watchers[i])) {
            watchers[i].told();
            watchers[i] = std::move(watchers.back());
            watchers.pop_back();
        } else {
            ++i;
        }
    }
}

void OperationState::discard_results_locked() {
    store.discard();
    notify();
}

void OperationState::abandon_locked(Final const& last_message, std::exception_ptr error) {
    if (!closing.abandon(last_message, std::move(error))) {
        return;
    }
    progress.all_sent = progress.closed;  // else there are last messages
    inserted.clear();
    discard_results_locked();
}

void OperationState::abandon(
    Rank origin, std::string const& reason, FinalKind kind, std::exception_ptr error) {
    {
        MutexLock const lock{mutex};
        abandon_locked({kind, 0, origin, reason}, std::move(error));
    }
    waker->wake();
}

void OperationState::cut_off(RankFailure const& failure) {
    MutexLock const lock{mutex};
    if (closing.cut_off(failure)) {
        waker->note();
        notify();
    }
}

bool OperationState::flushed() const {
    MutexLock const lock{mutex};
    if (closing.stage() == ClosingState::Stage::cut_off) {
        return true;
    }
    return progress.all_sent && (closing.stage() == ClosingState::Stage::abandoned || !progress.in_flight);
}

}  // namespace rapidsmpf::exchange
