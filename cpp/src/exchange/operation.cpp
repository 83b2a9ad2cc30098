// What users of an operation call; operation_wait.cpp is how they wait.
#include <rapidsmpf/exchange/detail/operation.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include "exchange/new_pieces.hpp"
#include "exchange/operation_core.hpp"
#include "exchange/operation_state.hpp"

namespace rapidsmpf::exchange {

namespace {

void check_insertable(OperationState const& state, PartitionId partition) RAPIDSMPF_REQUIRES(state.mutex) {
    state.check_partition(partition);
    RAPIDSMPF_EXPECTS(
        !state.inserted.is_finished(partition),
        "partition " + std::to_string(partition) + " of " + state.str()
            + " is finished: nothing can be inserted into it",
        std::logic_error);
}

void finish(OperationState& state, std::vector<PartitionId> const& partitions)
    RAPIDSMPF_REQUIRES(state.mutex) {
    for (auto const partition : partitions) {
        state.inserted.finish(partition);
        if (state.plan.owner(partition) == state.rank) {
            state.store.announce(partition, state.rank, state.inserted.count(partition));
        }
    }
    state.notify();
}

}  // namespace

std::shared_ptr<Operation> Operation::open(
    Communicator& comm, std::shared_ptr<BufferResource> br, Plan plan) {
    RAPIDSMPF_EXPECTS(br != nullptr, "a collective needs a buffer resource", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        plan.total > 0, "a " + plan.kind + " needs at least one partition", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        plan.op >= 0 && plan.op < OperationDispatcher::control_op,
        "operation id " + std::to_string(plan.op) + " is not between 0 and "
            + std::to_string(OperationDispatcher::control_op - 1),
        std::invalid_argument);
    plan.settings.validate();
    comm.check();
    auto const dispatcher = OperationDispatcher::of(comm);
    OpId const op = plan.op;
    comm.claim_op(op);
    try {
        auto const state = std::make_shared<OperationState>(comm, std::move(br), std::move(plan));
        auto operation = std::make_shared<Operation>(state);
        dispatcher->open(std::make_unique<OperationCore>(*dispatcher, state));
        auto& opened = *operation;
        return {&opened, [held = std::move(operation)](Operation* handle) { handle->release(); }};
    } catch (...) {
        comm.release_op(op);
        throw;
    }
}

Operation::Operation(std::shared_ptr<OperationState> state) : state_{std::move(state)} {}

Operation::~Operation() = default;

std::string Operation::str() const {
    return state_->str();
}

std::vector<PartitionId> const& Operation::local_partitions() const noexcept {
    return state_->local.ids();
}

void Operation::insert(std::vector<std::pair<PartitionId, PackedData>> chunks) {
    auto& state = *state_;
    auto const available = state.br->memory_available(MemoryType::DEVICE);
    std::uint64_t sequence = 0;
    {
        MutexLock const lock{state.mutex};
        state.check_usable();
        for (auto const& [partition, chunk] : chunks) {
            check_insertable(state, partition);
        }
        sequence = chunks.empty() ? 0 : state.inserted.count(chunks.front().first);
    }
    NewPieces pieces{state, std::move(chunks), sequence};  // takes its time
    bool now = false;
    {
        MutexLock const lock{state.mutex};
        state.check_usable();
        for (auto const partition : pieces.partitions()) {
            check_insertable(state, partition);
        }
        pieces.insert_into(state);
        now = state.inserted.must_flush(available);
        state.notify();
    }
    if (now) {
        state.waker->wake();
    }
    make_room(available);
}

void Operation::insert_for_all(std::uint64_t sequence, PackedData chunk) {
    auto& state = *state_;
    auto const payload = std::make_shared<Payload>(
        std::move(chunk), NewPieces::next_use_in_outbox(sequence, chunk.data->size()), state.waker);
    auto const nranks = state.comm.nranks();
    payload->destinations = static_cast<std::uint32_t>(nranks - 1);
    payload->keep_as = sequence;
    Arrivals own;
    if (payload->destinations == 0) {
        state.unpacker.keep(state.rank, static_cast<PartitionId>(state.rank), sequence, payload, own);
    }
    {
        MutexLock const lock{state.mutex};
        state.check_usable();
        RAPIDSMPF_EXPECTS(
            !state.inserted.all_finished(), str() + " is finished: nothing can be inserted into it",
            std::logic_error);
        state.inserted.count_for_all();
        for (Rank rank = 0; rank < nranks; ++rank) {
            if (rank != state.rank) {
                state.inserted.push(rank, OutgoingPiece{{static_cast<PartitionId>(rank), sequence}, payload});
            }
        }
        for (auto& arrival : own) {
            state.store.add(
                arrival.partition, {arrival.source, arrival.sequence, std::move(arrival.payload)});
        }
        state.notify();
    }
    state.br->statistics()->add(
        state.payload_send, static_cast<double>(payload->size) * static_cast<double>(nranks));
    state.waker->wake();
    make_room(state.br->memory_available(MemoryType::DEVICE));
}

void Operation::make_room(std::int64_t available) {
    if (available < 0) {
        // Who inserts waits until as much has been spilled as was inserted, or nothing is left to spill.
        (void)state_->br->reserve_device_memory_and_spill(0, AllowOverbooking::yes);
    }
}

void Operation::insert_finished(std::vector<PartitionId> const& partitions) {
    RAPIDSMPF_EXPECTS(!partitions.empty(), "insert_finished needs at least one partition", std::logic_error);
    auto unique = partitions;
    std::sort(unique.begin(), unique.end());
    auto& state = *state_;
    {
        MutexLock const lock{state.mutex};
        state.check_usable();
        for (std::size_t i = 0; i < unique.size(); ++i) {
            state.check_partition(unique[i]);
            bool const twice = state.inserted.is_finished(unique[i]) || (i > 0 && unique[i] == unique[i - 1]);
            RAPIDSMPF_EXPECTS(
                !twice, "partition " + std::to_string(unique[i]) + " of " + str() + " is finished already",
                std::logic_error);
        }
        finish(state, partitions);
    }
    state.waker->wake();
}

void Operation::insert_finished() {
    auto& state = *state_;
    {
        MutexLock const lock{state.mutex};
        state.check_usable();
        std::vector<PartitionId> left;
        for (PartitionId partition = 0; partition < state.plan.total; ++partition) {
            if (!state.inserted.is_finished(partition)) {
                left.push_back(partition);
            }
        }
        finish(state, left);
    }
    state.waker->wake();
}

bool Operation::all_inserted() const {
    MutexLock const lock{state_->mutex};
    return state_->inserted.all_finished();
}

std::vector<Operation::Chunk> Operation::extract(PartitionId partition, std::optional<Rank> source) {
    auto& state = *state_;
    auto const index = state.require_local(partition);
    std::vector<StoredChunk> pieces;
    {
        MutexLock const lock{state.mutex};
        state.check_extractable(index);
        pieces = state.store.extract(index, source);
        state.notify();
    }
    PartitionStore::sort(pieces);
    // Where it lies now: what is on disk is read when the caller accesses it.
    auto data = PartitionStore::release(pieces);
    std::vector<Chunk> chunks;
    chunks.reserve(pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        chunks.emplace_back(pieces[i].source, pieces[i].sequence, std::move(data[i]));
    }
    return chunks;
}

std::vector<std::uint64_t> Operation::received(PartitionId partition) const {
    auto const index = state_->require_local(partition);
    MutexLock const lock{state_->mutex};
    state_->check_extractable(index);
    return state_->store.received(index);
}

bool Operation::all_complete() const {
    MutexLock const lock{state_->mutex};
    if (state_->closing.is_discarded() || !state_->store.all_complete()) {
        state_->check_usable();
    }
    return state_->store.all_complete();
}

bool Operation::all_extracted() const {
    MutexLock const lock{state_->mutex};
    state_->check_usable();
    return state_->store.all_extracted();
}

std::size_t Operation::spill(std::size_t amount) {
    return state_->br->spill_buffers(MemoryType::DEVICE, amount);
}

void Operation::abandon(std::string const& reason) {
    state_->abandon(state_->rank, reason, FinalKind::abandoned);
}

void Operation::release() noexcept {
    auto& state = *state_;
    {
        MutexLock const lock{state.mutex};
        if (!state.closing.release()) {
            return;
        }
        if (!state.inserted.all_finished()) {
            state.abandon_locked(
                {FinalKind::abandoned, 0, state.rank,
                 "it was destroyed there before all insertions were finished"},
                nullptr);
        }
        state.closing.shut_down();
        state.discard_results_locked();
    }
    state.waker->wake();
    release_id();
}

void Operation::release_id() noexcept {
    {
        MutexLock const lock{state_->mutex};
        if (std::exchange(state_->is_id_released, true)) {
            return;
        }
    }
    state_->comm.release_op(state_->plan.op);
}

}  // namespace rapidsmpf::exchange
