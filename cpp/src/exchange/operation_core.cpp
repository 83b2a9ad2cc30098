#include "exchange/operation_core.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include "exchange/peer_error.hpp"

namespace rapidsmpf::exchange {

OperationCore::OperationCore(OperationDispatcher& dispatcher, std::shared_ptr<OperationState> state)
    : dispatcher_{dispatcher},
      state_{std::move(state)},
      user_{state_},
      rank_{state_->rank},
      send_{state_->plan.settings,   state_->br, dispatcher.transports(),
            Tag{state_->plan.op, 1}, rank_,      state_->comm.nranks()},
      receive_{state_->plan.settings,   state_->br,    state_->unpacker,        dispatcher.budget(),
               dispatcher.transports(), state_->waker, Tag{state_->plan.op, 1}, state_->comm.nranks()},
      peers_(static_cast<std::size_t>(state_->comm.nranks())) {
    for (PartitionId partition = 0; partition < state_->plan.total; ++partition) {
        ++peer(state_->plan.owner(partition)).unfinished;
    }
    for (auto& other : peers_) {
        other.drained = state_->local.ids().empty();
    }
}

void OperationCore::guarded(std::function<void()> const& body) {
    try {
        body();
    } catch (PeerError const& error) {
        state_->comm.report_protocol_violation(
            error.peer(), "it sent a malformed message for " + state_->name() + ": " + error.what());
    } catch (DeviceLostError const& error) {
        // No operation of this rank will get anywhere.
        state_->comm.abort(error.what());
    } catch (std::exception const& error) {
        // When the communicator has failed this is only a consequence.
        if (auto const failure = state_->comm.failure()) {
            state_->cut_off(*failure);
            return;
        }
        abandon(rank_, error.what(), FinalKind::abandoned, std::current_exception());
    }
}

void OperationCore::abandon(
    Rank origin, std::string const& reason, FinalKind kind, std::exception_ptr error) {
    state_->abandon(origin, reason, kind, std::move(error));
    std::optional<Final> last_message;
    {
        MutexLock const lock{state_->mutex};
        if (state_->closing.stage() != Stage::abandoned) {
            return;  // Stage::cut_off: the next tick sees to that
        }
        last_message = state_->closing.last_message();
    }
    enter(Stage::abandoned, last_message);
}

void OperationCore::enter(Stage stage, std::optional<Final> const& last_message) {
    if (stage == Stage::abandoned && stage_ == Stage::open) {
        last_message_ = last_message;
        send_.clear();
        receive_.discard();
    } else if (stage == Stage::cut_off && stage_ != Stage::cut_off) {
        send_.cut_off();
        receive_.cut_off();
    }
    stage_ = stage;
}

void OperationCore::receive(Rank source, std::vector<std::uint8_t> const& bytes) {
    guarded([&] {
        ScopedTimer const timer{*state_->br->statistics(), statistic::id("event-loop-metadata-recv")};
        on_behalf_of(source, [&] { apply(source, read_operation_message(bytes)); });
    });
    state_->waker->note();
}

void OperationCore::apply(Rank source, OperationMessage const& message) {
    if (stage_ == Stage::cut_off) {
        return;
    }
    receive_.on_written(source, message.written);
    if (stage_ == Stage::open) {
        send_.take_in(source, message);
        Arrivals arrivals;
        receive_.take_in(source, message, arrivals);
        deliver(std::move(arrivals), source, message.counts);
    }
    if (!message.final) {
        return;
    }
    auto const& final = *message.final;
    receive_.on_final(source, final);
    if (final.kind != FinalKind::finished) {
        abandon(final.origin, final.reason, final.kind);
    } else if (stage_ == Stage::open) {
        MutexLock const lock{state_->mutex};
        RAPIDSMPF_EXPECTS(
            state_->store.all_announced(source) && state_->inserted.all_finished(source),
            "its last message came before everything was finished", FormatError);
    }
}

void OperationCore::deliver(Arrivals arrivals, Rank source, std::vector<PartitionCount> const& counts) {
    if (arrivals.empty() && counts.empty()) {
        return;
    }
    auto& state = *state_;
    MutexLock const lock{state.mutex};
    Rank from = source;
    try {
        auto& store = state.store;
        for (auto const& arrival : arrivals) {
            from = arrival.source;
            arrival.for_each_chunk([&](PartitionId partition, StoredChunk chunk) {
                state.mutex.assert_held();
                store.add(partition, std::move(chunk));
            });
        }
        from = source;
        for (auto const& count : counts) {
            state.store.announce(count.partition, source, count.chunks);
        }
    } catch (FormatError const& error) {
        throw PeerError{from, error.what()};
    }
    for (Rank rank = 0; rank < nranks(); ++rank) {
        peer(rank).drained = state.store.drained(rank);
    }
    state.notify();
}

void OperationCore::deliver_kept() {
    Arrivals arrivals;
    for (auto& payload : send_.take_kept()) {
        auto const sequence = *payload->keep_as;
        state_->unpacker.keep(rank_, static_cast<PartitionId>(rank_), sequence, std::move(payload), arrivals);
    }
    deliver(std::move(arrivals));
}

void OperationCore::on_peer_closed(Rank source) {
    guarded([&] {
        auto& closing = peer(source);
        if (stage_ == Stage::cut_off || closing.closed) {
            return;
        }
        closing.closed = true;
        send_.drop(source);
        deliver_kept();
        receive_.drop_unwritten(source);
        check_closed_peers();
    });
    state_->waker->note();
}

void OperationCore::check_closed_peers() {
    for (Rank rank = 0; rank < nranks() && stage_ == Stage::open; ++rank) {
        // What it sent before it left may still be arriving.
        if (peer(rank).closed && !peer(rank).drained && !receive_.in_flight(rank)) {
            abandon(
                rank,
                "it left before " + state_->name()
                    + " was complete: it has closed its communicator (do all ranks run the same "
                      "collectives?)",
                FinalKind::left);
        }
    }
}

void OperationCore::take_inserted() {
    std::vector<Insertions::Batch> batches;
    auto stage = Stage::open;
    std::optional<Final> last_message;
    {
        auto& state = *state_;
        MutexLock const lock{state.mutex};
        stage = state.closing.stage();
        if (stage == Stage::open) {
            batches = state.inserted.take();
        } else if (stage_ == Stage::open) {
            last_message = state.closing.last_message();
        }
        all_finished_ = state.inserted.all_finished();
        wake_at_ = state.inserted.deadline();
        for (auto const& batch : batches) {
            state.progress.backlog[static_cast<std::size_t>(batch.peer)] += batch.chunks;
        }
    }
    enter(stage, last_message);
    for (auto& [rank, pieces, chunks, counts] : batches) {
        auto& to = peer(rank);
        to.unfinished -= counts.size();
        if (to.closed) {
            send_.drop(pieces);
        } else {
            send_.add(rank, std::move(pieces), counts);
        }
    }
}

OperationCore::TickResult OperationCore::tick() {
    TickResult result;
    bool const due = wake_at_ && ProgressThread::Clock::now() >= *wake_at_;
    if (state_->waker->take() || active_ || due) {
        guarded([&] { drive(result); });
        tell_completed(result);
    }
    result.waits = relaxed_ ? TickResult::Waits::relaxed : TickResult::Waits::urgent;
    result.wake_at = wake_at_;
    return result;
}

void OperationCore::tell_completed(TickResult& result) {
    auto const& completed = state_->plan.completed;
    if (!completed) {
        return;
    }
    std::vector<PartitionId> partitions;
    {
        MutexLock const lock{state_->mutex};
        if (state_->closing.stage() != Stage::open || state_->closing.is_released()) {
            return;
        }
        partitions = state_->store.take_completed();
    }
    guarded([&] {
        for (auto const partition : partitions) {
            completed(user_, partition);
            result.made_progress = true;
        }
    });
}

void OperationCore::drive(TickResult& result) {
    auto& statistics = *state_->br->statistics();
    ScopedTimer const timer{statistics, statistic::id("event-loop-total")};
    take_inserted();
    if (stage_ != Stage::cut_off) {
        ScopedTimer const part{statistics, statistic::id("event-loop-check-future-finish")};
        Arrivals arrivals;
        bool const left = send_.poll();
        bool const came = receive_.poll(arrivals);
        result.made_progress = left || came;
        deliver(std::move(arrivals));
    }
    if (stage_ == Stage::cut_off) {
        active_ = false;
        relaxed_ = false;
        wake_at_.reset();
        result.finished = true;
        return;
    }
    check_closed_peers();
    if (stage_ == Stage::open) {
        {
            ScopedTimer const part{statistics, statistic::id("event-loop-post-incoming-chunk-recv")};
            bool const granted = !state_->stops_granting && receive_.grant();
            result.made_progress = granted || result.made_progress;
        }
        ScopedTimer const part{statistics, statistic::id("event-loop-init-gpu-data-send")};
        result.made_progress = send_.start() || result.made_progress;
    }
    {
        ScopedTimer const part{statistics, statistic::id("event-loop-metadata-send")};
        result.made_progress = compose_all() || result.made_progress;
    }
    deliver_kept();
    result.in_flight = send_.in_flight() || receive_.has_to_look();
    active_ = result.in_flight || receive_.waits_for_turn();
    relaxed_ = wake_at_.has_value() && stage_ == Stage::open;
    result.finished = is_closed();
    publish(result.made_progress);
}

bool OperationCore::compose_all() {
    bool any = false;
    send_.unblock();
    for (Rank i = 0; i < nranks(); ++i) {
        auto const to = neighbour(i);
        any = (to != rank_ && compose(to)) || any;
    }
    return any;
}

bool OperationCore::compose(Rank rank) {
    auto& to = peer(rank);
    if (to.final_sent || to.closed) {
        return false;
    }
    MessageWriter writer{state_->plan.op};
    std::optional<Final> last;
    if (stage_ == Stage::abandoned) {
        last = last_message_;
        send_.stop_writing(rank);
    } else {
        receive_.compose_grants(rank, writer);
        send_.compose_notices(rank, writer);
        send_.compose(rank, writer);
        receive_.compose_credit(rank, writer);
        if (to.unfinished == 0 && send_.is_empty(rank) && to.drained) {
            last.emplace();
        }
    }
    if (last) {
        last->payload_messages = send_.payload_messages(rank);
        writer.final(*last);
        to.final_sent = true;
    }
    if (!writer.has_sections()) {
        return false;
    }
    // The transport owns the bytes: no thread has to look at the request again.
    auto message = std::move(writer).take();
    state_->br->statistics()->add(
        statistic::id("exchange-control-bytes"), static_cast<double>(message.size()));
    dispatcher_.send(rank, std::move(message));
    return true;
}

bool OperationCore::is_closed() const {
    if (stage_ == Stage::open && !all_finished_) {
        return false;
    }
    for (Rank rank = 0; rank < nranks(); ++rank) {
        bool const said_all = peer(rank).closed || (peer(rank).final_sent && receive_.final_received(rank));
        if (rank != rank_ && !(said_all && !receive_.in_flight(rank) && !send_.in_flight(rank))) {
            return false;
        }
    }
    return true;
}

bool OperationCore::all_sent() const {
    for (Rank rank = 0; rank < nranks(); ++rank) {
        auto const& to = peer(rank);
        bool const is_sent =
            stage_ == Stage::abandoned ? to.final_sent : to.unfinished == 0 && send_.is_empty(rank);
        if (rank != rank_ && !to.closed && !is_sent) {
            return false;
        }
    }
    return true;
}

void OperationCore::publish(bool did_something) {
    progress_.all_sent = all_sent();
    progress_.in_flight = receive_.in_flight();
    progress_.closed = is_closed();
    progress_.backlog.resize(peers_.size());
    for (Rank rank = 0; rank < nranks(); ++rank) {
        progress_.backlog[static_cast<std::size_t>(rank)] = send_.backlog(rank);
    }
    auto& state = *state_;
    MutexLock const lock{state.mutex};
    // Else it has been given up meanwhile, and there is another round.
    bool const is_true = state.closing.stage() == stage_ || progress_.closed;
    bool const is_news = is_true && progress_ != state.progress;
    if (is_news) {
        state.progress = progress_;
    }
    if (is_news || did_something) {
        state.notify();
    }
}

}  // namespace rapidsmpf::exchange
