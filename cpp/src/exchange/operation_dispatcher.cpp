#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include <rapidsmpf/communicator/detail/closed_peers.hpp>
#include <rapidsmpf/core/error.hpp>

#include "exchange/operation_core.hpp"
#include "exchange/operation_state.hpp"
#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

namespace {
// How long a communicator that is destroyed waits for operations whose data is not sent yet: without any progress, and
// in all.
constexpr std::chrono::seconds longest_goodbye{3};
constexpr std::chrono::minutes longest_close{5};
// Ranges that were abandoned are remembered, so that ranks that come late learn of it. They come within a few
// queries: the first collective of each joins all ranks.
constexpr std::size_t most_abandoned = 64;
// What a rank has sent that left in good order, and has failed since, may be on its way for so long.
constexpr std::chrono::milliseconds longest_wind_up{500};
}  // namespace

std::shared_ptr<OperationDispatcher> OperationDispatcher::of(Communicator& comm) {
    return comm.attached<OperationDispatcher>([&] { return std::make_shared<OperationDispatcher>(comm); });
}

OperationDispatcher::OperationDispatcher(Communicator& comm)
    : comm_{comm},
      control_tag_{control_op, 0},
      transports_{comm},
      closing_peers_(static_cast<std::size_t>(comm.nranks())) {
    listener_ = comm_.add_failure_listener([this](RankFailure const& failure) { on_failure(failure); });
    function_ = comm_.progress_thread()->add_function([this] { return tick(); });
}

OperationDispatcher::~OperationDispatcher() {
    auto const& progress = *comm_.progress_thread();
    {
        UniqueLock lock{mutex_};
        if (!all_.empty() && thread_ != std::this_thread::get_id() && progress.is_running()) {
            wait_until_flushed(lock);
        }
    }
    comm_.progress_thread()->remove_function(function_);
    transports_.close();
    say_goodbye();
    comm_.remove_failure_listener(listener_);
    for (auto const& operation : all_) {
        operation->cut_off(RankFailure{comm_.rank(), "", 0, "its communicator was destroyed"});
    }
}

void OperationDispatcher::wait_until_flushed(UniqueLock& lock) {
    closing_ = true;
    auto const operations = all_;
    {
        MutexUnlock const unlocked{mutex_};
        for (auto const& operation : operations) {
            operation->stops_granting = true;
        }
    }
    auto const flushed = [&]() RAPIDSMPF_REQUIRES(mutex_) {
        {
            MutexUnlock const unlocked{mutex_};
            comm_.progress_thread()->wake();
        }
        return changed_.wait_for(
            lock, longest_goodbye, [&]() RAPIDSMPF_REQUIRES(mutex_) { return flushed_; });
    };
    auto const longest = std::chrono::steady_clock::now() + longest_close;
    std::uint64_t before = 0;
    do {
        before = advances_;
        if (flushed()) {
            return;
        }
    } while (advances_ != before && std::chrono::steady_clock::now() < longest);
    comm_.logger().warn(
        "the communicator is destroyed while data of finished operations still waits for other ranks");
    {
        MutexUnlock const unlocked{mutex_};
        for (auto const& operation : operations) {
            if (!operation->flushed()) {
                operation->abandon(
                    comm_.rank(), "its communicator was destroyed before everything was sent",
                    FinalKind::abandoned);
            }
        }
    }
    (void)flushed();  // a tick: that is what it takes to say so
}

void OperationDispatcher::say_goodbye() noexcept {
    if (failed_) {
        return;
    }
    for (Rank peer = 0; peer < comm_.nranks(); ++peer) {
        if (peer == comm_.rank() || comm_.has_closed(peer)) {
            continue;
        }
        try {
            (void)comm_.send(MessageWriter{control_op}.take(), peer, control_tag_);
        } catch (std::exception const& error) {
            comm_.logger().debug(std::string{"no goodbye: "} + error.what());
        }
    }
}

void OperationDispatcher::open(std::unique_ptr<OperationCore> operation) {
    auto const state = operation->state();
    {
        MutexLock lock{mutex_};
        if (auto const* const range = find_abandoned_locked(operation->op())) {
            throw RankFailedError{range->origin, "", 0, range->reason};
        }
        all_.push_back(state);
        opened_.push_back(std::move(operation));
    }
    // Either the listener saw it in the list, or the failure is visible here.
    if (auto const failure = comm_.failure()) {
        state->cut_off(*failure);
    }
    comm_.progress_thread()->wake();
}

void OperationDispatcher::abandon(AbandonedRange const& range) {
    std::vector<std::shared_ptr<OperationState>> operations;
    {
        MutexLock lock{mutex_};
        if (!remember_abandoned_locked(range)) {
            return;
        }
        operations = all_;
    }
    for (auto const& operation : operations) {
        if (range.contains(operation->plan.op)) {
            operation->abandon(range.origin, range.reason, FinalKind::failed);
        }
    }
    for (Rank peer = 0; peer < comm_.nranks(); ++peer) {
        if (peer != comm_.rank() && !comm_.has_closed(peer)) {
            MessageWriter writer{control_op};
            writer.abandon(range);
            (void)comm_.send(std::move(writer).take(), peer, control_tag_);
        }
    }
    comm_.progress_thread()->wake();
}

void OperationDispatcher::forget_abandoned(OpId first, OpId last) {
    MutexLock const lock{mutex_};
    std::erase_if(
        abandoned_, [&](AbandonedRange const& range) { return first <= range.first && range.last <= last; });
}

AbandonedRange const* OperationDispatcher::find_abandoned_locked(OpId op) const {
    auto const found = std::find_if(
        abandoned_.begin(), abandoned_.end(), [&](auto const& range) { return range.contains(op); });
    return found == abandoned_.end() ? nullptr : &*found;
}

std::optional<AbandonedRange> OperationDispatcher::abandoned_range_of(OpId op) const {
    MutexLock lock{mutex_};
    auto const* const range = find_abandoned_locked(op);
    return range == nullptr ? std::nullopt : std::optional{*range};
}

bool OperationDispatcher::remember_abandoned_locked(AbandonedRange const& range) {
    bool const known = std::any_of(abandoned_.begin(), abandoned_.end(), [&](auto const& other) {
        return other.contains(range.first) && other.contains(range.last);
    });
    if (known) {
        return false;
    }
    abandoned_.push_back(range);
    if (abandoned_.size() > most_abandoned) {
        abandoned_.pop_front();
    }
    to_abandon_.push_back(range);
    return true;
}

std::size_t OperationDispatcher::open_operations() const {
    MutexLock lock{mutex_};
    return all_.size();
}

void OperationDispatcher::on_failure(RankFailure const& failure) {
    {
        MutexLock lock{mutex_};
        failed_ = true;
        flushed_ = true;
        changed_.notify_all();
    }
    if (!has_closed_before(failure) || !comm_.progress_thread()->is_running()) {
        cut_off_all();
    }
}

// A rank that has left in good order has done its part of all collectives that it took part in. If its process fails
// after that, the news of it may overtake what it had sent, by which these are complete here as well.
bool OperationDispatcher::has_closed_before(RankFailure const& failure) const {
    return failure.rank >= 0 && failure.rank < comm_.nranks() && comm_.has_closed(failure.rank);
}

bool OperationDispatcher::wind_up() {
    if (!failed_ || wound_up_) {
        return false;
    }
    auto const failure = comm_.failure();
    if (!failure) {
        return false;
    }
    auto const now = std::chrono::steady_clock::now();
    wind_up_until_ = wind_up_until_.value_or(has_closed_before(*failure) ? now + longest_wind_up : now);
    if (now >= *wind_up_until_ || open_operations() == 0) {
        wound_up_ = true;
        cut_off_all();
    }
    return true;
}

void OperationDispatcher::cut_off_all() {
    auto const failure = comm_.failure();
    std::vector<std::shared_ptr<OperationState>> operations;
    {
        MutexLock lock{mutex_};
        operations = all_;
    }
    for (auto const& operation : operations) {
        operation->cut_off(failure.value_or(RankFailure{comm_.rank(), "", 0, "its communicator has failed"}));
    }
}

ProgressThread::TickResult OperationDispatcher::tick() {
    ProgressThread::TickResult result;
    bool busy = false;
    try {
        busy = take_opened();
        busy = route_arrived() || busy;
        busy = take_abandoned() || busy;
        busy = look_for_closed_peers() || busy;
        busy = transports_.progress() || busy;
        result |= drive();
        busy = wind_up() || busy;
        if (wound_up_) {
            transports_.close();
        }
        note_flushed();
    } catch (std::exception const& error) {
        // Not of one operation: this rank cannot go on.
        comm_.abort(std::string{"exchange cannot go on: "} + error.what());
    }
    result |= ProgressThread::TickResult::busy_if(busy);
    if (result.made_progress) {
        ++advances_;
    }
    return result;
}

bool OperationDispatcher::take_opened() {
    std::vector<std::unique_ptr<OperationCore>> opened;
    {
        MutexLock lock{mutex_};
        thread_ = std::this_thread::get_id();
        opened.swap(opened_);
    }
    for (auto& operation : opened) {
        auto& queue = queues_[operation->op()];
        queue.operations.push_back(std::move(operation));
        if (queue.operations.size() == 1) {
            feed(queue);
        }
    }
    return !opened.empty();
}

bool OperationDispatcher::take_abandoned() {
    std::vector<AbandonedRange> ranges;
    {
        MutexLock lock{mutex_};
        ranges.swap(to_abandon_);
    }
    if (ranges.empty()) {
        return false;
    }
    // What was opened before the range was known is in the queues then, and nothing comes after it.
    (void)take_opened();
    for (auto const& range : ranges) {
        for (auto queue = queues_.lower_bound(range.first);
             queue != queues_.end() && range.contains(queue->first); ++queue) {
            reject(queue->first, queue->second, range);
        }
    }
    return true;
}

void OperationDispatcher::reject(OpId op, OperationQueue& queue, AbandonedRange const& range) {
    for (auto const& operation : queue.operations) {
        operation->state()->abandon(range.origin, range.reason, FinalKind::failed);
    }
    if (!queue.operations.empty() || queue.rejected) {
        return;
    }
    queue.rejected.emplace(comm_, *this, op, range);
    for (auto const rank : closed_) {
        queue.rejected->done(rank);
    }
    for (auto const& arrived : std::exchange(queue.early, {})) {
        queue.rejected->receive(arrived.source, arrived.bytes);
    }
}

bool OperationDispatcher::route_arrived() {
    bool any = false;
    while (auto arrived = comm_.recv_any(control_tag_)) {
        any = true;
        auto const source = arrived->source;
        try {
            route(std::move(*arrived));
        } catch (FormatError const& error) {
            comm_.report_protocol_violation(
                source, std::string{"it sent a malformed message: "} + error.what());
        }
    }
    return any;
}

void OperationDispatcher::route(Communicator::Arrived arrived) {
    auto const op = read_op(arrived.bytes);
    if (op == control_op) {
        std::visit(
            [&](auto const& message) { take_in(arrived.source, message); },
            read_control_message(arrived.bytes));
        return;
    }
    transports_.on_other(arrived.source);
    auto& queue = queues_[op];
    if (queue.rejected) {
        queue.rejected->receive(arrived.source, arrived.bytes);
    } else if (!queue.operations.empty() && !queue.operations.front()->final_received(arrived.source)) {
        queue.operations.front()->receive(arrived.source, arrived.bytes);
    } else {
        queue.early.push_back(std::move(arrived));
        if (auto const range = queue.operations.empty() ? abandoned_range_of(op) : std::nullopt) {
            // One that was opened before the range was known may not be in its queue yet: it speaks for itself.
            (void)take_opened();
            if (queue.operations.empty()) {
                reject(op, queue, *range);
            }
        }
    }
}

void OperationDispatcher::take_in(Rank source, Goodbye /*goodbye*/) {
    on_peer_closed(source);
}

void OperationDispatcher::take_in(Rank /*source*/, AbandonedRange const& range) {
    RAPIDSMPF_EXPECTS(
        0 <= range.origin && range.origin < comm_.nranks(), "a rank that does not exist", FormatError);
    MutexLock lock{mutex_};
    (void)remember_abandoned_locked(range);
}

void OperationDispatcher::take_in(Rank source, Offer const& offer) {
    if (auto const answer = transports_.on_offer(source, offer)) {
        MessageWriter writer{control_op};
        writer.answer(*answer);
        send(source, std::move(writer).take());
    }
}

void OperationDispatcher::take_in(Rank source, Answer const& answer) {
    transports_.on_answer(source, answer);
}

void OperationDispatcher::take_in(Rank source, device::ExportedRegion const& region) {
    transports_.on_region(source, region);
}

void OperationDispatcher::send(Rank destination, std::vector<std::uint8_t> message) {
    if (auto const offer = transports_.take_offer(destination)) {
        MessageWriter writer{control_op};
        writer.offer(*offer);
        (void)comm_.send(std::move(writer).take(), destination, control_tag_);
    }
    for (auto const& region : transports_.take_regions(destination)) {
        MessageWriter writer{control_op};
        writer.region(region);
        (void)comm_.send(std::move(writer).take(), destination, control_tag_);
    }
    (void)comm_.send(std::move(message), destination, control_tag_);
}

void OperationDispatcher::feed(OperationQueue& queue) {
    auto& active = *queue.operations.front();
    auto early = std::exchange(queue.early, {});
    for (auto& arrived : early) {
        if (active.final_received(arrived.source)) {
            queue.early.push_back(std::move(arrived));
        } else {
            active.receive(arrived.source, arrived.bytes);
        }
    }
    for (auto const rank : closed_) {
        active.on_peer_closed(rank);
    }
}

bool OperationDispatcher::look_for_closed_peers() {
    bool any = false;
    for (Rank rank = 0; rank < comm_.nranks(); ++rank) {
        auto& closing = closing_peers_[static_cast<std::size_t>(rank)];
        if (closing.closed || !comm_.has_closed(rank)) {
            continue;
        }
        auto const now = std::chrono::steady_clock::now();
        closing.heard = closing.heard.value_or(now);
        // Unless it has said goodbye.
        if (now - *closing.heard >= ::rapidsmpf::detail::close_grace) {
            on_peer_closed(rank);
            any = true;
        }
    }
    return any;
}

void OperationDispatcher::on_peer_closed(Rank rank) {
    auto& closing = closing_peers_[static_cast<std::size_t>(rank)];
    if (!std::exchange(closing.closed, true)) {
        closed_.push_back(rank);
    }
    for (auto& [op, queue] : queues_) {
        if (queue.rejected) {
            queue.rejected->done(rank);
        }
        if (!queue.operations.empty()) {
            queue.operations.front()->on_peer_closed(rank);
        }
    }
}

ProgressThread::TickResult OperationDispatcher::drive() {
    ProgressThread::TickResult result;
    for (auto queue = queues_.begin(); queue != queues_.end();) {
        auto& operations = queue->second.operations;
        while (!operations.empty()) {
            auto const tick = operations.front()->tick();
            if (!tick.finished) {
                result |= tick;
                break;
            }
            // An operation that has ended waits for nothing; its thread goes on.
            result.made_progress = result.made_progress || tick.made_progress;
            result.in_flight = result.in_flight || tick.in_flight;
            auto const closed = std::move(operations.front());
            operations.pop_front();
            {
                MutexLock lock{mutex_};
                std::erase(all_, closed->state());
            }
            if (!operations.empty()) {
                feed(queue->second);
            }
        }
        if (queue->second.rejected && queue->second.rejected->is_closed()) {
            queue->second.rejected.reset();
        }
        if (queue->second.rejected && !failed_) {
            ++queue;
            continue;
        }
        bool const unused = operations.empty() && (queue->second.early.empty() || failed_);
        queue = unused ? queues_.erase(queue) : std::next(queue);
    }
    return result;
}

void OperationDispatcher::note_flushed() {
    UniqueLock lock{mutex_};
    if (!closing_ || flushed_) {
        return;
    }
    auto const operations = all_;
    lock.unlock();
    bool const flushed = std::all_of(
        operations.begin(), operations.end(), [](auto const& operation) { return operation->flushed(); });
    if (flushed) {
        lock.lock();
        flushed_ = true;
        changed_.notify_all();
    }
}

}  // namespace rapidsmpf::exchange
