// What the progress thread does for an operation; operation.cpp is what users call.
#include <algorithm>
#include <array>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>
#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

namespace rapidsmpf::exchange {

namespace {
// How long a frame waits for memory while nothing comes free.
constexpr std::chrono::milliseconds longest_memory_wait{10};
// Then peers hear of those that have been granted, and may begin.
constexpr int most_grants_at_a_time = 8;
}  // namespace

void Operation::guarded(std::function<void()> const& body) {
    try {
        body();
    } catch (FormatError const& error) {
        comm_.report_protocol_violation(
            current_peer_, "it sent a malformed message for " + plan_.kind + " " + std::to_string(plan_.op)
                               + ": " + error.what());
    } catch (DeviceLostError const& error) {
        // No operation of this rank will get anywhere.
        comm_.abort(error.what());
    } catch (std::exception const& error) {
        // When the communicator has failed this is only a consequence.
        if (auto const failure = comm_.failure()) {
            cut_off(*failure);
            return;
        }
        MutexLock const lock{mutex_};
        abandon_locked(rank_, error.what(), std::current_exception());
        dirty_ = true;
    }
}

bool Operation::final_received(Rank source) const {
    MutexLock const lock{mutex_};
    return peer(source).inbox.final_received();
}

void Operation::receive(Rank source, std::vector<std::uint8_t> const& bytes) {
    guarded([&] {
        ScopedTimer const timer{*br_->statistics(), ids_.metadata_recv};
        current_peer_ = source;
        auto const message = read_message(bytes);
        MutexLock const lock{mutex_};
        dirty_ = true;
        apply(peer(source), message);
        changed();
    });
}

void Operation::apply(Peer& from, Message const& message) {
    if (cut_off_) {
        return;
    }
    from.inbox.on_written(message.written);
    if (!abandoned_) {
        from.outbox.on_credit(message.credit);
        for (auto const& grant : message.grants) {
            from.outbox.on_grant(grant);
        }
        for (auto const& list : message.eager) {
            from.inbox.take_eager(
                list, *br_, [&](PieceHeader const& header, PackedData chunk) RAPIDSMPF_REQUIRES(mutex_) {
                    store(from.rank, header, std::move(chunk));
                });
        }
        for (auto const& list : message.frames) {
            auto metadata = list.metadata;
            for (auto const& piece : list.pieces) {
                auto const own = metadata.first(piece.metadata_size);
                metadata = metadata.subspan(own.size());
                if (is_bundle(piece)) {
                    (void)check_bundle(piece.sequence, own, piece.data_size);
                    continue;
                }
                RAPIDSMPF_EXPECTS(
                    store_.find(piece.partition).has_value(),
                    "partition " + std::to_string(piece.partition) + " is not one of this rank's",
                    FormatError);
            }
            frames_.emplace_back(from.rank, AnnouncedFrame{list, dispatcher_.budget()});
            frames_.back().wait.emplace(*br_->statistics(), ids_.grant_wait);
        }
        for (auto const& count : message.counts) {
            store_.announce(count.partition, from.rank, count.chunks);
        }
    }
    if (message.final) {
        from.inbox.on_final(*message.final);
        if (message.final->kind != FinalKind::finished) {
            abandon_locked(message.final->origin, message.final->reason, nullptr, message.final->kind);
        } else if (!abandoned_) {
            RAPIDSMPF_EXPECTS(
                store_.all_announced(from.rank) && from.unfinished == 0,
                "its last message came before everything was finished", FormatError);
        }
    }
}

void Operation::store(Rank source, PieceHeader const& header, PackedData chunk) {
    if (chunk.data->mem_type() != MemoryType::DEVICE) {
        br_->statistics()->add(ids_.recv_to_host, static_cast<double>(chunk.data->size()));
    }
    if (is_bundle(header)) {
        store_bundle(source, header.sequence, std::move(chunk));
        return;
    }
    store_payload(
        source, header.partition, header.sequence,
        std::make_shared<Payload>(std::move(chunk), next_use_in_store(header.partition)));
}

void Operation::store_payload(
    Rank source, PartitionId partition, std::uint64_t sequence, std::shared_ptr<Payload> payload) {
    br_->statistics()->add(ids_.payload_recv, static_cast<double>(payload->size));
    store_.add(partition, PartitionStore::Piece{source, sequence, std::move(payload)});
}

void Operation::sent(std::shared_ptr<Payload> const& payload) {
    if (--payload->destinations == 0 && payload->keep_as) {
        store_payload(rank_, static_cast<PartitionId>(rank_), *payload->keep_as, payload);
        changed();
    }
}

void Operation::on_peer_closed(Rank source) {
    guarded([&] {
        MutexLock const lock{mutex_};
        auto& closing = peer(source);
        if (cut_off_ || closing.closed) {
            return;
        }
        closing.closed = true;
        closing.outbox.drop([&](auto const& payload) RAPIDSMPF_REQUIRES(mutex_) { sent(payload); });
        closing.inbox.drop_unwritten();
        check_closed_peers();
        dirty_ = true;
        changed();
    });
}

void Operation::check_closed_peers() {
    for (auto const& other : peers_) {
        // What it sent before it left may still be arriving.
        if (other.closed && !abandoned_ && !store_.drained(other.rank) && !other.inbox.in_flight()) {
            abandon_locked(
                other.rank,
                "it left before " + plan_.kind + " " + std::to_string(plan_.op)
                    + " was complete: it has closed its communicator (do all ranks run the same "
                      "collectives?)",
                nullptr, FinalKind::left);
        }
    }
}

Operation::Tick Operation::tick() {
    Tick result;
    bool const due = look_again_ && ProgressThread::Clock::now() >= *look_again_;
    if (dirty_.exchange(false) || active_ || due) {
        mutex_.yield_to_waiters();
        guarded([&] { drive(result); });
        tell_completed(result);
    }
    result.relaxed = relaxed_;
    result.look_again = look_again_;
    return result;
}

void Operation::tell_completed(Tick& result) {
    if (!plan_.completed) {
        return;
    }
    std::vector<PartitionId> completed;
    {
        MutexLock const lock{mutex_};
        if (cut_off_ || abandoned_ || released_) {
            return;
        }
        completed = store_.take_completed();
    }
    for (auto const partition : completed) {
        result.did_something = true;
        try {
            plan_.completed(*this, partition);
        } catch (std::exception const& error) {
            MutexLock const lock{mutex_};
            abandon_locked(rank_, error.what(), std::current_exception());
            dirty_ = true;
        }
    }
}

void Operation::drive(Tick& result) {
    auto& statistics = *br_->statistics();
    ScopedTimer const timer{statistics, ids_.loop_total};
    UniqueLock lock{mutex_};
    if (!cut_off_) {
        poll(result);
        lock.unlock();
        mutex_.yield_to_waiters();
        lock.lock();
    }
    if (cut_off_) {
        drop_transfers();
        active_ = false;
        relaxed_ = false;
        look_again_.reset();
        result.closed = true;
        return;
    }
    check_closed_peers();
    if (!abandoned_) {
        {
            ScopedTimer const part{statistics, ids_.post_receives};
            result.did_something = grant_frames() || result.did_something;
        }
        ScopedTimer const part{statistics, ids_.start_sends};
        for (std::size_t i = 0; i < peers_.size(); ++i) {
            auto& other = neighbour(i);
            current_peer_ = other.rank;
            result.did_something =
                other.outbox.start(dispatcher_.transports(), route_to(other.rank)) || result.did_something;
        }
    }
    {
        ScopedTimer const part{statistics, ids_.metadata_send};
        compose_all(result);
    }
    result.in_flight = blocked_ || std::any_of(peers_.begin(), peers_.end(), [](Peer const& other) {
                           return other.outbox.in_flight() || other.inbox.has_to_look();
                       });
    active_ = result.in_flight || (!frames_.empty() && !waits_for_memory_);
    relaxed_ = flush_deadline_.has_value() && !abandoned_;
    result.closed = is_closed();
    if (result.did_something) {
        changed();
    }
}

void Operation::drop_transfers() {
    frames_.clear();
    for (auto& other : peers_) {
        other.outbox.cut_off();
        other.inbox = Inbox{other.rank};
    }
}

void Operation::poll(Tick& result) {
    ScopedTimer const timer{*br_->statistics(), ids_.check_finished};
    for (auto& other : peers_) {
        current_peer_ = other.rank;
        bool const left =
            other.outbox.poll([&](auto const& payload) RAPIDSMPF_REQUIRES(mutex_) { sent(payload); });
        bool const came =
            other.inbox.poll([&](PieceHeader const& header, PackedData chunk)
                                 RAPIDSMPF_REQUIRES(mutex_) { store(other.rank, header, std::move(chunk)); });
        result.did_something = result.did_something || left || came;
    }
}

std::optional<MemoryReservation> Operation::memory_for(WaitingFrame& waiting) {
    auto const bytes = waiting.frame.memory_needed();
    if (!waiting.memory) {
        // On a CPU all memory is the device's; elsewhere the host takes what the device has no room for.
        constexpr std::array tiers{MemoryType::DEVICE, MemoryType::PINNED_HOST, MemoryType::HOST};
        auto const count = br_->device().kind() == DeviceKind::cpu ? 1U : tiers.size();
        if (auto memory = br_->try_reserve_best(bytes, std::span{tiers}.first(count))) {
            return memory;
        }
        auto on_done = [weak = weak_from_this()] {
            if (auto const self = weak.lock()) {
                self->wake();
            }
        };
        // What is held by others may never come free, and their query needs these chunks to go on.
        waiting.memory = br_->request(
            tiers[count - 1], bytes, AllowOverbooking::yes, std::move(on_done),
            std::min<BufferResource::Duration>(br_->reserve_timeout(), longest_memory_wait));
    }
    if (!waiting.memory->is_done()) {
        return std::nullopt;
    }
    return waiting.memory->take();
}

bool Operation::grant_frames() {
    bool any = false;
    waits_for_memory_ = false;
    auto const may_grant = [&]() RAPIDSMPF_REQUIRES(mutex_) {
        return !no_grants_ && !frames_.empty()
               && dispatcher_.transports().incoming(frames_.front().source) != nullptr
               && frames_.front().frame.ticket.try_grant(plan_.settings.receive_limit);
    };
    for (int i = 0; i < most_grants_at_a_time && may_grant(); ++i) {
        auto memory = memory_for(frames_.front());
        if (!memory) {
            waits_for_memory_ = true;
            break;
        }
        auto const source = frames_.front().source;
        auto frame = std::move(frames_.front().frame);
        frames_.pop_front();
        peer(source).inbox.grant(
            std::move(frame), dispatcher_.transports(), route_to(source), std::move(*memory));
        any = true;
    }
    return any;
}

bool Operation::is_corked(Peer const& to) const {
    return flush_deadline_ && to.unfinished > 0 && !to.outbox.has_counts()
           && to.outbox.waiting_bytes() < plan_.settings.flush_bytes;
}

void Operation::compose_all(Tick& result) {
    blocked_ = false;
    std::optional<ProgressThread::Clock::time_point> now;
    if (plan_.coalescing == Coalescing::yes && unfinished_ > 0) {
        now = ProgressThread::Clock::now();
        if (flush_deadline_ && *now >= *flush_deadline_) {
            flush_deadline_.reset();
        }
    } else {
        flush_deadline_.reset();
    }
    bool const due = !flush_deadline_;
    bool flushed = false;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
        auto& other = neighbour(i);
        if (other.rank != rank_) {
            bool const waited = other.outbox.has_waiting();
            result.did_something = compose(other) || result.did_something;
            flushed = flushed || (waited && !is_corked(other));
        }
    }
    if (now && due && flushed) {
        flush_deadline_ = *now + plan_.settings.flush_delay;
    }
    look_again_ = flush_deadline_;
}

bool Operation::compose(Peer& to) {
    if (to.final_sent || to.closed) {
        return false;
    }
    MessageWriter writer{plan_.op};
    if (abandoned_) {
        auto last = *abandoned_;
        last.payload_messages = to.outbox.payload_messages();
        to.outbox.stop_writing();
        writer.final(last);
        to.final_sent = true;
    } else {
        for (auto const& grant : to.inbox.take_grants()) {
            grant.addresses.empty() ? writer.grants(grant.frames) : writer.addresses(grant.addresses);
        }
        if (auto const written = to.outbox.take_written(); written > 0) {
            writer.written(written);
        }
        if (!is_corked(to)) {
            blocked_ = to.outbox.compose(writer, [&](auto const& payload) RAPIDSMPF_REQUIRES(mutex_) {
                sent(payload);
            }) || blocked_;
        }
        // Credit alone is worth a message only when there is much of it: without credit the peer uses frames.
        if (writer.has_sections() || to.inbox.credit() > plan_.settings.eager_bytes / 2) {
            if (auto const credit = to.inbox.take_credit(); credit > 0) {
                writer.credit(credit);
            }
        }
        if (to.unfinished == 0 && to.outbox.empty() && store_.drained(to.rank)) {
            Final last;
            last.payload_messages = to.outbox.payload_messages();
            writer.final(last);
            to.final_sent = true;
        }
    }
    if (!writer.has_sections()) {
        return false;
    }
    // The transport owns the bytes: nobody has to look at the request again.
    auto message = std::move(writer).take();
    br_->statistics()->add(ids_.control_bytes, static_cast<double>(message.size()));
    dispatcher_.send(to.rank, std::move(message));
    return true;
}

bool Operation::is_closed() const {
    return (abandoned_ || unfinished_ == 0)
           && std::all_of(peers_.begin(), peers_.end(), [&](Peer const& other) {
                  return other.rank == rank_
                         || ((other.closed || (other.final_sent && other.inbox.final_received()))
                             && !other.inbox.in_flight() && !other.outbox.in_flight());
              });
}

}  // namespace rapidsmpf::exchange
