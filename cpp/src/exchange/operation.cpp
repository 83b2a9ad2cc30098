// What users of an operation call; operation_wait.cpp is how they wait, operation_progress.cpp what the progress thread does.
#include <rapidsmpf/exchange/detail/operation.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

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

std::string plural(std::size_t n, std::string const& what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace

Operation::Ids::Ids(Statistics& statistics, std::string const& kind)
    : payload_send{statistics.id(kind + "-payload-send", Statistics::Unit::bytes)},
      payload_recv{statistics.id(kind + "-payload-recv", Statistics::Unit::bytes)},
      recv_to_host{statistic::id("spill-bytes-recv-to-host")},
      control_bytes{statistic::id("exchange-control-bytes")},
      grant_wait{statistic::id("exchange-grant-wait-time")},
      loop_total{statistic::id("event-loop-total")},
      metadata_send{statistic::id("event-loop-metadata-send")},
      metadata_recv{statistic::id("event-loop-metadata-recv")},
      post_receives{statistic::id("event-loop-post-incoming-chunk-recv")},
      start_sends{statistic::id("event-loop-init-gpu-data-send")},
      check_finished{statistic::id("event-loop-check-future-finish")} {}

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
        auto operation = std::make_shared<Operation>(comm, *dispatcher, std::move(br), std::move(plan));
        dispatcher->open(operation);
        auto& opened = *operation;
        return {&opened, [held = std::move(operation)](Operation* handle) { handle->release(); }};
    } catch (...) {
        comm.release_op(op);
        throw;
    }
}

Operation::Operation(
    Communicator& comm, OperationDispatcher& dispatcher, std::shared_ptr<BufferResource> br, Plan plan)
    : comm_{comm},
      dispatcher_{dispatcher},
      progress_{comm.progress_thread()},
      br_{std::move(br)},
      plan_{std::move(plan)},
      payload_tag_{plan_.op, 1},
      rank_{comm.rank()},
      ids_{*br_->statistics(), plan_.kind},
      store_{partitions_of(rank_, plan_), comm.nranks()},
      counts_(plan_.total, 0),
      finished_(plan_.total, false),
      unfinished_{plan_.total} {
    for (Rank rank = 0; rank < comm.nranks(); ++rank) {
        peers_.emplace_back(rank, plan_.settings);
    }
    for (PartitionId partition = 0; partition < plan_.total; ++partition) {
        ++peer(plan_.owner(partition)).unfinished;
    }
}

std::string Operation::str() const {
    return plan_.kind + " " + std::to_string(plan_.op) + " on rank " + std::to_string(rank_);
}

void Operation::wake() noexcept {
    dirty_ = true;
    progress_->wake();
}

void Operation::moved() noexcept {
    wake();
}

void Operation::check_usable() const {
    if (failure_) {
        failure_->raise();
    }
    comm_.check();  // an operation that is closed hears of no failure
    RAPIDSMPF_EXPECTS(!shut_down_, str() + " has been shut down", std::logic_error);
    if (error_) {
        std::rethrow_exception(error_);
    }
    if (abandoned_) {
        auto const what = abandoned_->kind == FinalKind::abandoned
                              ? "it abandoned " + plan_.kind + " " + std::to_string(plan_.op) + ": "
                              : std::string{};
        throw RankFailedError{abandoned_->origin, "", 0, what + abandoned_->reason};
    }
}

void Operation::check_partition(PartitionId partition) const {
    RAPIDSMPF_EXPECTS(
        partition < plan_.total,
        str() + " has " + std::to_string(plan_.total) + " partitions, there is no partition "
            + std::to_string(partition),
        std::out_of_range);
}

PartitionStore::Index Operation::require_local(PartitionId partition) const {
    check_partition(partition);
    auto const index = store_.find(partition);
    RAPIDSMPF_EXPECTS(
        index.has_value(),
        "partition " + std::to_string(partition) + " of " + str() + " belongs to rank "
            + std::to_string(plan_.owner(partition)),
        std::invalid_argument);
    return *index;
}

void Operation::check_insertable(PartitionId partition) const {
    check_partition(partition);
    RAPIDSMPF_EXPECTS(
        !finished_[partition],
        "partition " + std::to_string(partition) + " of " + str()
            + " is finished: nothing can be inserted into it",
        std::logic_error);
}

void Operation::insert_locked(PartitionId partition, PackedData chunk) {
    auto const owner = plan_.owner(partition);
    auto const sequence = counts_[partition]++;
    auto const size = chunk.data->size();
    auto payload = std::make_shared<Payload>(
        std::move(chunk), owner == rank_ ? next_use_in_store(partition) : next_use_in_outbox(sequence, size),
        weak_from_this());
    br_->statistics()->add(ids_.payload_send, static_cast<double>(payload->size));
    if (owner == rank_) {
        store_payload(rank_, partition, sequence, std::move(payload));
    } else if (!peer(owner).closed) {
        payload->destinations = 1;
        peer(owner).outbox.push(Outbox::Piece{partition, sequence, std::move(payload)});
    }
}

void Operation::insert(std::vector<std::pair<PartitionId, PackedData>> chunks) {
    auto const available = br_->memory_available(MemoryType::DEVICE);
    auto const check = [&]() RAPIDSMPF_REQUIRES(mutex_) {
        check_usable();
        for (auto const& [partition, chunk] : chunks) {
            check_insertable(partition);
        }
    };
    std::vector<OwnedBundle> bundles;
    auto const limits = bundle_limits();
    if (plan_.settings.gather_limit > 0 && any_go_together(chunks, limits)) {
        {
            FairLock const lock{mutex_};
            check();
        }
        bundles = bundle(chunks, limits);  // takes its time
    }
    bool now = false;
    {
        FairLock const lock{mutex_};
        check();
        for (auto const& [owner, content] : bundles) {
            std::for_each(
                content.partitions.begin(), content.partitions.end(),
                [&](PartitionId partition) RAPIDSMPF_REQUIRES(mutex_) { check_insertable(partition); });
        }
        for (auto& bundle : bundles) {
            insert_locked(std::move(bundle));
        }
        for (auto& [partition, chunk] : chunks) {
            if (!chunk.empty()) {
                insert_locked(partition, std::move(chunk));
            }
        }
        now = must_flush(available);
        changed();
    }
    if (now) {
        wake();
    }
    make_room(available);
}

void Operation::insert_for_all(std::uint64_t sequence, PackedData chunk) {
    {
        FairLock const lock{mutex_};
        check_usable();
        RAPIDSMPF_EXPECTS(
            unfinished_ > 0, str() + " is finished: nothing can be inserted into it", std::logic_error);
        for (auto& count : counts_) {
            ++count;
        }
        auto const next_use = next_use_in_outbox(sequence, chunk.data->size());
        auto const payload = std::make_shared<Payload>(std::move(chunk), next_use, weak_from_this());
        auto const wanted_by = [&](Peer const& other) { return other.rank != rank_ && !other.closed; };
        payload->destinations =
            static_cast<std::uint32_t>(std::count_if(peers_.begin(), peers_.end(), wanted_by));
        payload->keep_as = sequence;
        br_->statistics()->add(
            ids_.payload_send, static_cast<double>(payload->size) * static_cast<double>(peers_.size()));
        for (auto& other : peers_) {
            if (wanted_by(other)) {
                other.outbox.push(Outbox::Piece{static_cast<PartitionId>(other.rank), sequence, payload});
            }
        }
        if (payload->destinations == 0) {
            store_payload(rank_, static_cast<PartitionId>(rank_), sequence, payload);
        }
        changed();
    }
    wake();
    make_room(br_->memory_available(MemoryType::DEVICE));
}

bool Operation::must_flush(std::int64_t available) {
    auto const waits = [](Peer const& other) { return other.outbox.has_waiting(); };
    if (plan_.coalescing == Coalescing::no || unfinished_ == 0) {
        return std::any_of(peers_.begin(), peers_.end(), waits);
    }
    auto const bytes = plan_.settings.flush_bytes;
    if (flush_deadline_ && available < static_cast<std::int64_t>(bytes * peers_.size())) {
        flush_deadline_.reset();  // what has left needs no memory
    }
    bool const due = !flush_deadline_ || ProgressThread::Clock::now() >= *flush_deadline_;
    return std::any_of(peers_.begin(), peers_.end(), [&](Peer const& other) {
        return waits(other) && (due || other.outbox.waiting_bytes() >= bytes);
    });
}

void Operation::make_room(std::int64_t available) {
    if (available < 0) {
        // Who inserts waits until as much has been spilled as was inserted, or nothing is left to spill.
        (void)br_->reserve_device_memory_and_spill(0, AllowOverbooking::yes);
    }
}

SpillableBuffer::NextUse Operation::next_use_in_outbox(
    std::uint64_t sequence, std::size_t size) const noexcept {
    // Small ones that go soon after each other are equals: to sort them would cost more than it is worth.
    constexpr std::size_t small = std::size_t{256} << 10U;
    constexpr std::uint64_t together = 64;
    return std::min(size < small ? sequence / together * together : sequence, first_in_store - 1);
}

SpillableBuffer::NextUse Operation::next_use_in_store(PartitionId partition) const {
    // Partitions are usually taken in their order; what waits to be sent is needed before.
    return first_in_store + store_.find(partition).value_or(0);
}

void Operation::finish_locked(std::vector<PartitionId> const& partitions) {
    for (auto const partition : partitions) {
        finished_[partition] = true;
        --unfinished_;
        auto& owner = peer(plan_.owner(partition));
        --owner.unfinished;
        if (owner.rank == rank_) {
            store_.announce(partition, rank_, counts_[partition]);
        } else {
            owner.outbox.push_count(PartitionCount{partition, counts_[partition]});
        }
    }
    changed();
}

void Operation::insert_finished(std::vector<PartitionId> const& partitions) {
    RAPIDSMPF_EXPECTS(!partitions.empty(), "insert_finished needs at least one partition", std::logic_error);
    auto unique = partitions;
    std::sort(unique.begin(), unique.end());
    {
        FairLock const lock{mutex_};
        check_usable();
        for (std::size_t i = 0; i < unique.size(); ++i) {
            check_partition(unique[i]);
            bool const twice = finished_[unique[i]] || (i > 0 && unique[i] == unique[i - 1]);
            RAPIDSMPF_EXPECTS(
                !twice, "partition " + std::to_string(unique[i]) + " of " + str() + " is finished already",
                std::logic_error);
        }
        finish_locked(partitions);
    }
    wake();
}

void Operation::insert_finished() {
    {
        FairLock const lock{mutex_};
        check_usable();
        std::vector<PartitionId> left;
        for (PartitionId partition = 0; partition < plan_.total; ++partition) {
            if (!finished_[partition]) {
                left.push_back(partition);
            }
        }
        finish_locked(left);
    }
    wake();
}

bool Operation::all_inserted() const {
    MutexLock const lock{mutex_};
    return unfinished_ == 0;
}

std::vector<Operation::Chunk> Operation::extract(PartitionId partition, std::optional<Rank> source) {
    FairLock lock{mutex_};
    auto const index = require_local(partition);
    if (is_discarded() || !store_.is_complete(index)) {
        check_usable();
    }
    auto pieces = store_.extract(index, source);
    changed();
    lock.unlock();
    PartitionStore::sort(pieces);
    // Where it lies now: what is on disk is read when somebody wants to see it.
    auto data = PartitionStore::release(pieces);
    std::vector<Chunk> chunks;
    chunks.reserve(pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        chunks.emplace_back(pieces[i].source, pieces[i].sequence, std::move(data[i]));
    }
    return chunks;
}

std::vector<std::uint64_t> Operation::received(PartitionId partition) const {
    MutexLock const lock{mutex_};
    auto const index = require_local(partition);
    if (is_discarded() || !store_.is_complete(index)) {
        check_usable();
    }
    return store_.received(index);
}

bool Operation::all_complete() const {
    MutexLock const lock{mutex_};
    if (is_discarded() || !store_.all_complete()) {
        check_usable();
    }
    return store_.all_complete();
}

bool Operation::all_extracted() const {
    MutexLock const lock{mutex_};
    check_usable();
    return store_.all_extracted();
}

std::size_t Operation::spill(std::size_t amount) {
    return br_->spill_buffers(MemoryType::DEVICE, amount);
}

bool Operation::flushed_locked() const {
    if (cut_off_) {
        return true;
    }
    return std::all_of(peers_.begin(), peers_.end(), [&](Peer const& other) RAPIDSMPF_REQUIRES(mutex_) {
        return other.rank == rank_ || other.closed
               || (abandoned_ ? other.final_sent : other.unfinished == 0 && other.outbox.empty());
    });
}

bool Operation::flushed() const {
    MutexLock const lock{mutex_};
    return flushed_locked()
           && (cut_off_ || abandoned_ || std::none_of(peers_.begin(), peers_.end(), [](Peer const& other) {
                   return other.inbox.in_flight();
               }));
}

void Operation::stop_granting() {
    MutexLock const lock{mutex_};
    no_grants_ = true;
}

std::string Operation::describe_backlog() const {
    std::string text;
    for (auto const& other : peers_) {
        if (other.rank != rank_ && !other.closed && !other.outbox.empty()) {
            text += (text.empty() ? "" : ", ") + plural(other.outbox.backlog(), "chunk") + " for rank "
                    + std::to_string(other.rank);
        }
    }
    return "still to be sent: " + text;
}

void Operation::shutdown(Timeout timeout) {
    bool abandoned = false;
    {
        UniqueLock lock{mutex_};
        std::optional<RankFailure> interrupted;
        if (shut_down_) {
            return;
        }
        if (!failure_ && !abandoned_) {
            if (unfinished_ > 0) {
                abandoned = true;
                abandon_locked(rank_, "it was shut down before all insertions were finished", nullptr);
            } else {
                wait(
                    lock, timeout, [&]() RAPIDSMPF_REQUIRES(mutex_) { return flushed_locked(); },
                    [&]() RAPIDSMPF_REQUIRES(mutex_) { return describe_backlog(); });
                interrupted = failure_;
            }
        }
        shut_down_ = true;
        store_.discard();
        changed();
        if (interrupted) {
            interrupted->raise();
        }
    }
    if (abandoned) {
        wake();
    }
}

void Operation::abandon_locked(
    Rank origin, std::string const& reason, std::exception_ptr error, FinalKind kind) {
    if (abandoned_ || cut_off_) {
        return;
    }
    error_ = std::move(error);
    abandoned_.emplace();
    abandoned_->kind = kind;
    abandoned_->origin = origin;
    abandoned_->reason = reason;
    frames_.clear();
    store_.discard();
    for (auto& other : peers_) {
        other.outbox.clear();
        other.inbox.discard();
    }
    changed();
}

void Operation::abandon(std::string const& reason) {
    {
        MutexLock const lock{mutex_};
        abandon_locked(rank_, reason, nullptr);
    }
    wake();
}

void Operation::abandon(AbandonedRange const& range) {
    {
        MutexLock const lock{mutex_};
        abandon_locked(range.origin, range.reason, nullptr, FinalKind::failed);
    }
    wake();
}

void Operation::cut_off(RankFailure const& failure) {
    MutexLock const lock{mutex_};
    if (cut_off_) {
        return;
    }
    cut_off_ = true;
    failure_ = failure;
    dirty_ = true;
    changed();
}

void Operation::detach(RankFailure const& failure) {
    cut_off(failure);
    MutexLock const lock{mutex_};
    drop_transfers();
}

void Operation::release() noexcept {
    if (released_.exchange(true)) {
        return;
    }
    {
        MutexLock const lock{mutex_};
        if (unfinished_ > 0) {
            abandon_locked(rank_, "it was destroyed there before all insertions were finished", nullptr);
        }
        shut_down_ = true;
        store_.discard();
        changed();
    }
    wake();
    release_id();
}

void Operation::release_id() noexcept {
    if (!id_released_.exchange(true)) {
        comm_.release_op(plan_.op);
    }
}

}  // namespace rapidsmpf::exchange
