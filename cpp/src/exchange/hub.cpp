#include <rapidsmpf/exchange/detail/hub.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

#include <rapidsmpf/communicator/detail/departures.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>

#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

namespace {
// How long a communicator that is destroyed waits for operations whose data is not sent yet.
constexpr std::chrono::seconds longest_farewell{3};
// Ranges that were abandoned are remembered, so that ranks that come late learn of it. They come within a few
// queries: the first collective of each joins all ranks.
constexpr std::size_t most_abandoned = 64;
// What a rank has sent that left in good order, and has failed since, may be on its way for so long.
constexpr std::chrono::milliseconds longest_wind_up{500};
}  // namespace

std::shared_ptr<Hub> Hub::of(Communicator& comm) {
    return std::static_pointer_cast<Hub>(comm.companion([&] { return std::make_shared<Hub>(comm); }));
}

Hub::Hub(Communicator& comm)
    : comm_{comm},
      control_tag_{control_op, 0},
      links_{comm},
      departures_(static_cast<std::size_t>(comm.nranks())) {
    listener_ = comm_.add_failure_listener([this](RankFailure const& failure) { on_failure(failure); });
    function_ = comm_.progress_thread()->add_function([this] { return tick(); });
}

Hub::~Hub() {
    auto const& progress = *comm_.progress_thread();
    {
        std::unique_lock lock{mutex_};
        if (!all_.empty() && thread_ != std::this_thread::get_id() && progress.is_running()) {
            wait_until_flushed(lock);
        }
    }
    comm_.progress_thread()->remove_function(function_);
    links_.close();
    say_farewell();
    comm_.remove_failure_listener(listener_);
    for (auto const& operation : all_) {
        operation->detach(RankFailure{comm_.rank(), "", 0, "its communicator was destroyed"});
    }
}

void Hub::wait_until_flushed(std::unique_lock<std::mutex>& lock) {
    closing_ = true;
    auto const operations = all_;
    lock.unlock();
    for (auto const& operation : operations) {
        operation->stop_granting();
    }
    lock.lock();
    auto const flushed = [&] {
        lock.unlock();
        comm_.progress_thread()->wake();
        lock.lock();
        return changed_.wait_for(lock, longest_farewell, [&] { return flushed_; });
    };
    if (flushed()) {
        return;
    }
    comm_.logger().warn(
        "the communicator is destroyed while data of finished operations still waits for other ranks");
    lock.unlock();
    for (auto const& operation : operations) {
        if (!operation->flushed()) {
            operation->abandon("its communicator was destroyed before everything was sent");
        }
    }
    lock.lock();
    (void)flushed();  // a tick: that is what it takes to say so
}

void Hub::say_farewell() noexcept {
    if (failed_) {
        return;
    }
    for (Rank peer = 0; peer < comm_.nranks(); ++peer) {
        if (peer == comm_.rank() || comm_.has_left(peer)) {
            continue;
        }
        try {
            (void)comm_.send(MessageWriter{control_op}.take(), peer, control_tag_);
        } catch (std::exception const& error) {
            comm_.logger().debug(std::string{"no farewell: "} + error.what());
        }
    }
}

void Hub::open(std::shared_ptr<Operation> operation) {
    {
        std::lock_guard lock{mutex_};
        if (auto const* const range = find_abandoned_locked(operation->op())) {
            throw RankFailedError{range->origin, "", 0, range->reason};
        }
        opened_.push_back(operation);
        all_.push_back(operation);
    }
    // Either the listener saw it in the list, or the failure is visible here.
    if (auto const failure = comm_.failure()) {
        operation->cut_off(*failure);
    }
    comm_.progress_thread()->wake();
}

void Hub::abandon(AbandonedRange const& range) {
    std::vector<std::shared_ptr<Operation>> operations;
    {
        std::lock_guard lock{mutex_};
        if (!remember_abandoned_locked(range)) {
            return;
        }
        operations = all_;
    }
    for (auto const& operation : operations) {
        if (range.contains(operation->op())) {
            operation->abandon(range);
        }
    }
    for (Rank peer = 0; peer < comm_.nranks(); ++peer) {
        if (peer != comm_.rank() && !comm_.has_left(peer)) {
            MessageWriter writer{control_op};
            writer.abandon(range);
            (void)comm_.send(std::move(writer).take(), peer, control_tag_);
        }
    }
    comm_.progress_thread()->wake();
}

void Hub::forget_abandoned(OpId first, OpId last) {
    std::lock_guard const lock{mutex_};
    std::erase_if(
        abandoned_, [&](AbandonedRange const& range) { return first <= range.first && range.last <= last; });
}

AbandonedRange const* Hub::find_abandoned_locked(OpId op) const {
    auto const found = std::find_if(
        abandoned_.begin(), abandoned_.end(), [&](auto const& range) { return range.contains(op); });
    return found == abandoned_.end() ? nullptr : &*found;
}

std::optional<AbandonedRange> Hub::abandoned_range_of(OpId op) const {
    std::lock_guard lock{mutex_};
    auto const* const range = find_abandoned_locked(op);
    return range == nullptr ? std::nullopt : std::optional{*range};
}

bool Hub::remember_abandoned_locked(AbandonedRange const& range) {
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

std::size_t Hub::open_operations() const {
    std::lock_guard lock{mutex_};
    return all_.size();
}

void Hub::on_failure(RankFailure const& failure) {
    {
        std::lock_guard lock{mutex_};
        failed_ = true;
        flushed_ = true;
        changed_.notify_all();
    }
    if (!has_left_before(failure) || !comm_.progress_thread()->is_running()) {
        cut_off_all();
    }
}

// A rank that has left in good order has done its part of all collectives that it took part in. If its process fails
// after that, the news of it may overtake what it had sent, by which these are complete here as well.
bool Hub::has_left_before(RankFailure const& failure) const {
    return failure.rank >= 0 && failure.rank < comm_.nranks() && comm_.has_left(failure.rank);
}

bool Hub::wind_up() {
    if (!failed_ || wound_up_) {
        return false;
    }
    auto const failure = comm_.failure();
    if (!failure) {
        return false;
    }
    auto const now = std::chrono::steady_clock::now();
    wind_up_until_ = wind_up_until_.value_or(has_left_before(*failure) ? now + longest_wind_up : now);
    if (now >= *wind_up_until_ || open_operations() == 0) {
        wound_up_ = true;
        cut_off_all();
    }
    return true;
}

void Hub::cut_off_all() {
    auto const failure = comm_.failure();
    std::vector<std::shared_ptr<Operation>> operations;
    {
        std::lock_guard lock{mutex_};
        operations = all_;
    }
    for (auto const& operation : operations) {
        operation->cut_off(failure.value_or(RankFailure{comm_.rank(), "", 0, "its communicator has failed"}));
    }
}

ProgressThread::Progress Hub::tick() {
    bool busy = false;
    auto quiet = ProgressThread::Progress::idle;
    try {
        busy = take_opened();
        busy = route_arrived() || busy;
        busy = take_abandoned() || busy;
        busy = look_for_departures() || busy;
        busy = links_.progress() || busy;
        busy = drive(quiet) || busy;
        busy = wind_up() || busy;
        if (wound_up_) {
            links_.close();
        }
        note_flushed();
    } catch (std::exception const& error) {
        // Not of one operation: this rank cannot go on.
        comm_.abort(std::string{"exchange cannot go on: "} + error.what());
    }
    return busy ? ProgressThread::Progress::busy : quiet;
}

bool Hub::take_opened() {
    std::vector<std::shared_ptr<Operation>> opened;
    {
        std::lock_guard lock{mutex_};
        thread_ = std::this_thread::get_id();
        opened.swap(opened_);
    }
    for (auto& operation : opened) {
        auto& line = lines_[operation->op()];
        line.operations.push_back(std::move(operation));
        if (line.operations.size() == 1) {
            feed(line);
        }
    }
    return !opened.empty();
}

bool Hub::take_abandoned() {
    std::vector<AbandonedRange> ranges;
    {
        std::lock_guard lock{mutex_};
        ranges.swap(to_abandon_);
    }
    if (ranges.empty()) {
        return false;
    }
    // What was opened before the range was known is in the lines then, and nothing comes after it.
    (void)take_opened();
    for (auto const& range : ranges) {
        for (auto line = lines_.lower_bound(range.first); line != lines_.end() && range.contains(line->first);
             ++line) {
            refuse(line->first, line->second, range);
        }
    }
    return true;
}

void Hub::refuse(OpId op, Line& line, AbandonedRange const& range) {
    for (auto const& operation : line.operations) {
        operation->abandon(range);
    }
    if (!line.operations.empty() || line.refusal) {
        return;
    }
    line.refusal.emplace(comm_, *this, op, range);
    for (auto const rank : gone_) {
        line.refusal->done(rank);
    }
    for (auto const& arrived : std::exchange(line.early, {})) {
        line.refusal->receive(arrived.source, arrived.bytes);
    }
}

bool Hub::route_arrived() {
    bool any = false;
    while (auto arrived = comm_.recv_any(control_tag_)) {
        any = true;
        auto const source = arrived->source;
        try {
            route(std::move(*arrived));
        } catch (FormatError const& error) {
            comm_.convict(source, std::string{"it sent a malformed message: "} + error.what());
        }
    }
    return any;
}

void Hub::route(Communicator::Arrived arrived) {
    auto const op = read_op(arrived.bytes);
    if (op == control_op) {
        if (is_about_links(arrived.bytes)) {
            negotiate(arrived.source, read_message(arrived.bytes));
        } else if (auto const range = read_abandoned_range(arrived.bytes)) {
            RAPIDSMPF_EXPECTS(
                0 <= range->origin && range->origin < comm_.nranks(), "a rank that does not exist",
                FormatError);
            std::lock_guard lock{mutex_};
            (void)remember_abandoned_locked(*range);
        } else {
            on_left(arrived.source);
        }
        return;
    }
    links_.on_other(arrived.source);
    auto& line = lines_[op];
    if (line.refusal) {
        line.refusal->receive(arrived.source, arrived.bytes);
    } else if (!line.operations.empty() && !line.operations.front()->final_received(arrived.source)) {
        line.operations.front()->receive(arrived.source, arrived.bytes);
    } else {
        line.early.push_back(std::move(arrived));
        if (auto const range = line.operations.empty() ? abandoned_range_of(op) : std::nullopt) {
            // One that was opened before the range was known may not be in its line yet: it speaks for itself.
            (void)take_opened();
            if (line.operations.empty()) {
                refuse(op, line, *range);
            }
        }
    }
}

void Hub::negotiate(Rank source, Message const& message) {
    if (message.offer) {
        if (auto const answer = links_.on_offer(source, *message.offer)) {
            MessageWriter writer{control_op};
            writer.answer(*answer);
            send(source, std::move(writer).take());
        }
    } else if (message.answer) {
        links_.on_answer(source, *message.answer);
    } else if (message.region) {
        links_.on_region(source, *message.region);
    }
}

void Hub::send(Rank destination, std::vector<std::uint8_t> message) {
    if (auto const offer = links_.take_offer(destination)) {
        MessageWriter writer{control_op};
        writer.offer(*offer);
        (void)comm_.send(std::move(writer).take(), destination, control_tag_);
    }
    for (auto const& region : links_.take_regions(destination)) {
        MessageWriter writer{control_op};
        writer.region(region);
        (void)comm_.send(std::move(writer).take(), destination, control_tag_);
    }
    (void)comm_.send(std::move(message), destination, control_tag_);
}

void Hub::feed(Line& line) {
    auto& active = *line.operations.front();
    auto early = std::exchange(line.early, {});
    for (auto& arrived : early) {
        if (active.final_received(arrived.source)) {
            line.early.push_back(std::move(arrived));
        } else {
            active.receive(arrived.source, arrived.bytes);
        }
    }
    for (auto const rank : gone_) {
        active.on_left(rank);
    }
}

bool Hub::look_for_departures() {
    bool any = false;
    for (Rank rank = 0; rank < comm_.nranks(); ++rank) {
        auto& departure = departures_[static_cast<std::size_t>(rank)];
        if (departure.gone || !comm_.has_left(rank)) {
            continue;
        }
        auto const now = std::chrono::steady_clock::now();
        departure.heard = departure.heard.value_or(now);
        // Unless it has said farewell.
        if (now - *departure.heard >= ::rapidsmpf::detail::departure_grace) {
            on_left(rank);
            any = true;
        }
    }
    return any;
}

void Hub::on_left(Rank rank) {
    auto& departure = departures_[static_cast<std::size_t>(rank)];
    if (!std::exchange(departure.gone, true)) {
        gone_.push_back(rank);
    }
    for (auto& [op, line] : lines_) {
        if (line.refusal) {
            line.refusal->done(rank);
        }
        if (!line.operations.empty()) {
            line.operations.front()->on_left(rank);
        }
    }
}

bool Hub::drive(ProgressThread::Progress& quiet) {
    bool busy = false;
    bool resting = false;
    bool awaiting = false;
    std::optional<ProgressThread::Clock::time_point> look_again;
    for (auto line = lines_.begin(); line != lines_.end();) {
        auto& operations = line->second.operations;
        while (!operations.empty()) {
            auto const tick = operations.front()->tick();
            busy = busy || tick.did_something || tick.in_flight;
            if (!tick.closed) {
                (tick.resting ? resting : awaiting) = true;
                if (tick.look_again) {
                    look_again = std::min(look_again.value_or(*tick.look_again), *tick.look_again);
                }
                break;
            }
            auto const closed = std::move(operations.front());
            operations.pop_front();
            {
                std::lock_guard lock{mutex_};
                all_.erase(std::remove(all_.begin(), all_.end(), closed), all_.end());
            }
            if (!operations.empty()) {
                feed(line->second);
            }
        }
        if (line->second.refusal && line->second.refusal->is_closed()) {
            line->second.refusal.reset();
        }
        if (line->second.refusal && !failed_) {
            ++line;
            continue;
        }
        bool const unused = operations.empty() && (line->second.early.empty() || failed_);
        line = unused ? lines_.erase(line) : std::next(line);
    }
    if (look_again) {
        comm_.progress_thread()->look_again(*look_again);
    }
    if (awaiting || resting) {
        quiet = awaiting ? ProgressThread::Progress::awaiting : ProgressThread::Progress::resting;
    }
    return busy;
}

void Hub::note_flushed() {
    std::unique_lock lock{mutex_};
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
