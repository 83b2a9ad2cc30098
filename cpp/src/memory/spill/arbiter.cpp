#include "memory/spill/arbiter.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/fork.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "memory/budget.hpp"
#include "memory/spill/spill_registry.hpp"

namespace rapidsmpf {

namespace detail {

namespace {
// How long to leave a failing disk alone unless a thread waits.
constexpr std::chrono::milliseconds retry_pause{100};
// No process takes memory faster than this, so while there is room the next look can wait; but not for longer than that.
constexpr double fastest_bytes_per_second = 64e9;
constexpr std::chrono::milliseconds longest_pause{50};
// For so many times its own duration, a wait in vain saves others from waiting. Then one tries again.
constexpr int remembered_waits = 20;
constexpr std::array served_tiers{MemoryType::DEVICE, MemoryType::PINNED_HOST, MemoryType::HOST};
}  // namespace

std::shared_ptr<MemoryRequest> Arbiter::submit(
    std::shared_ptr<BufferResource> const& br, MemoryType type, std::size_t size, AllowOverbooking allow,
    Clock::duration timeout, std::function<void()> on_done) {
    auto request = std::shared_ptr<MemoryRequest>(
        new MemoryRequest{shared_from_this(), type, size, allow, timeout, std::move(on_done)});
    {
        MutexLock const lock{mutex_};
        start(br);
        queue(type).push_back(request.get());
        ++num_waiting_;
        br->add_waiting(type, static_cast<std::int64_t>(size));
        signalled_ = true;
    }
    wake_.notify_one();
    return request;
}

void Arbiter::notify(std::weak_ptr<BufferResource> br, Change change) noexcept {
    if (pending_.exchange(true)) {
        return;
    }
    {
        MutexLock const lock{mutex_};
        if (stop_) {
            return;
        }
        try {
            start(std::move(br));
        } catch (std::system_error const&) {
            pending_ = false;  // without a thread memory is freed by those who need it
            return;
        }
        signalled_ = true;
        if (change == Change::freed) {
            for (auto& line : queues_) {
                if (!line.empty()) {
                    line.front()->since_ = Clock::now();
                }
            }
        }
    }
    wake_.notify_one();
}

Arbiter::Waiting Arbiter::waiting(MemoryType type) const {
    MutexLock const lock{mutex_};
    Waiting result;
    for (auto const* request : queues_[static_cast<std::size_t>(type)]) {
        result.bytes += static_cast<std::int64_t>(request->size_);
        ++result.requests;
    }
    return result;
}

bool Arbiter::runs_this_thread() const noexcept {
    MutexLock const lock{mutex_};
    return thread_.get_id() == std::this_thread::get_id();
}

void Arbiter::start(std::weak_ptr<BufferResource> br) {
    if (!thread_.joinable() && !stop_) {
        br_ = std::move(br);
        keep_in_forks(br_);
        thread_ = std::thread{[self = shared_from_this()] { self->run(); }};
    }
}

void Arbiter::stop() noexcept {
    std::thread thread;
    {
        MutexLock const lock{mutex_};
        stop_ = true;
        thread = std::move(thread_);
        for (auto& line : queues_) {
            for (auto* request : line) {
                request->error_ =
                    std::make_exception_ptr(ReservationError{"the buffer resource has been destroyed"});
                request->done_ = true;
            }
            line.clear();
        }
    }
    wake_.notify_all();
    served_.notify_all();
    if (thread.get_id() == std::this_thread::get_id()) {
        thread.detach();  // it dropped the last reference; it ends by itself, keeping this object alive
    } else if (thread.joinable()) {
        thread.join();
    }
}

void Arbiter::run() {
    UniqueLock lock{mutex_};
    while (!stop_) {
        signalled_ = false;
        pending_ = false;
        auto br = br_.lock();
        if (!br) {
            break;
        }
        bool const again = step(br);
        auto const until = again ? std::nullopt : next_look(*br);
        lock.unlock();
        br.reset();  // perhaps the last reference: runs stop()
        lock.lock();
        if (again || stop_ || signalled_) {
            continue;
        }
        if (until) {
            wake_.wait_until(lock, *until);
        } else {
            wake_.wait(lock);
        }
    }
}

std::optional<Arbiter::Clock::time_point> Arbiter::next_look(BufferResource& br) const {
    std::optional<Clock::time_point> until;
    auto const earlier = [&](Clock::time_point time) { until = until ? std::min(*until, time) : time; };
    for (auto const& line : queues_) {
        if (!line.empty()) {
            auto const& first = *line.front();
            if (first.timeout_ < Clock::duration{std::chrono::hours{24}}) {
                earlier(first.since_ + first.timeout_);
            }
            // What others hold may be measured only.
            earlier(Clock::now() + std::chrono::milliseconds{10});
        }
    }
    if (period_ && br.has_spillable()) {
        std::chrono::duration<double> const room_lasts{
            static_cast<double>(br.budget_->room_for_others()) / fastest_bytes_per_second};
        auto const pause = std::min<std::chrono::duration<double>>(room_lasts, longest_pause);
        earlier(Clock::now() + std::max(*period_, std::chrono::duration_cast<Clock::duration>(pause)));
    }
    if (until && retry_ && num_waiting_ == 0) {
        until = std::max(*until, *retry_);
    }
    return until;
}

bool Arbiter::step(std::shared_ptr<BufferResource> const& br) {
    bool again = serve(br);
    again = spill(br) || again;
    return again || expire(br);
}

bool Arbiter::serve(std::shared_ptr<BufferResource> const& br) {
    bool any = false;
    for (auto const type : served_tiers) {
        auto& line = queue(type);
        while (!line.empty()) {
            auto reservation = br->grant(type, line.front()->size_, AllowOverbooking::no);
            if (!reservation) {
                break;
            }
            line.front()->reservation_ = std::move(reservation);
            finish(*br, line);
            any = true;
        }
    }
    return any;
}

bool Arbiter::spill(std::shared_ptr<BufferResource> const& br) {
    if (retry_ && num_waiting_ == 0 && Clock::now() < *retry_) {
        return false;
    }
    retry_.reset();
    bool freed = false;
    for (auto const type : served_tiers) {
        for (auto* const request : queue(type)) {
            request->spilled_for_ = true;
        }
        std::exception_ptr error;
        std::size_t bytes = 0;
        {
            MutexUnlock const unlocked{mutex_};
            try {
                if (auto const shortage = br->shortage(type); shortage > 0) {
                    bytes = br->spill(type, std::min(shortage, spill_batch));
                }
            } catch (...) {
                error = std::current_exception();
            }
        }
        if (error) {
            retry_ = Clock::now() + retry_pause;
        }
        spill_errors_[static_cast<std::size_t>(type)] = std::move(error);
        if (bytes > 0) {
            freed = true;
            if (!queue(type).empty()) {
                queue(type).front()->since_ = Clock::now();
            }
        }
    }
    return freed;
}

bool Arbiter::expire(std::shared_ptr<BufferResource> const& br) {
    bool any = false;
    for (auto const type : served_tiers) {
        auto& line = queue(type);
        if (line.empty()) {
            continue;
        }
        auto& first = *line.front();
        if (!first.spilled_for_) {
            any = true;  // it came in the middle of this round: the next one spills for it
            continue;
        }
        // Who is not ready to wait wants to hear that it does not fit.
        bool const alone = first.timeout_ > Clock::duration::zero()
                           && br->is_larger_than_limit(type, first.size_) && br->is_idle(type);
        auto const now = Clock::now();
        bool const late = now >= first.since_ + first.timeout_;
        bool const vain = !late && would_wait_in_vain(*br, first);
        if (!alone && (!(late || vain) || br->is_moving(type))) {
            continue;
        }
        if (late && first.allow_ == AllowOverbooking::yes && first.timeout_ > Clock::duration::zero()) {
            vain_waits_[static_cast<std::size_t>(type)] = vain_wait(*br, first);
        }
        if (!alone && !vain) {
            br->statistics()->add(statistic::id("reservation-timeouts"), 1);
        }
        auto const& error = spill_errors_[static_cast<std::size_t>(type)];
        if (alone || (first.allow_ == AllowOverbooking::yes && !error)) {
            first.reservation_ = br->grant(type, first.size_, AllowOverbooking::yes);
        } else if (error) {
            first.error_ = error;
        } else {
            auto const size = first.size_;
            std::string text;
            {
                MutexUnlock const unlocked{mutex_};
                text = br->describe_shortage(type, size);
            }
            if (line.empty() || line.front() != &first) {
                return true;  // withdrawn meanwhile
            }
            first.error_ = std::make_exception_ptr(ReservationError{text});
        }
        finish(*br, line);
        any = true;
    }
    return any;
}

Arbiter::VainWait Arbiter::vain_wait(BufferResource const& br, MemoryRequest const& request) {
    return {
        .waited = request.timeout_,
        .until = Clock::now() + remembered_waits * request.timeout_,
        .missing = static_cast<std::int64_t>(request.size_) - br.memory_available(request.type_),
        .own = br.memory_used(request.type_) + br.memory_reserved(request.type_)};
}

bool Arbiter::would_wait_in_vain(BufferResource const& br, MemoryRequest const& request) const {
    auto const& wait = vain_waits_[static_cast<std::size_t>(request.type_)];
    if (!wait || request.allow_ != AllowOverbooking::yes || request.timeout_ > wait->waited
        || Clock::now() >= wait->until) {
        return false;
    }
    auto const now = vain_wait(br, request);
    return now.missing >= wait->missing / 2 && now.own <= wait->own;
}

void Arbiter::finish(BufferResource& br, Queue& line) {
    auto& request = *line.front();
    line.pop_front();
    --num_waiting_;
    br.add_waiting(request.type_, -static_cast<std::int64_t>(request.size_));
    request.done_ = true;
    if (!line.empty()) {
        line.front()->since_ = Clock::now();
    }
    // The request may be given up as soon as the lock is released: its function is taken out before.
    auto const on_done = std::exchange(request.on_done_, nullptr);
    served_.notify_all();
    if (on_done) {
        MutexUnlock const unlocked{mutex_};
        on_done();
    }
}

void Arbiter::withdraw(MemoryRequest& request) {
    std::weak_ptr<BufferResource> resource;
    {
        MutexLock const lock{mutex_};
        // One that is done has left the line; one whose thread could not be started never came into it.
        if (request.done_ || std::erase(queue(request.type_), &request) == 0) {
            return;
        }
        --num_waiting_;
        resource = br_;
    }
    if (auto const br = resource.lock()) {
        br->add_waiting(request.type_, -static_cast<std::int64_t>(request.size_));
    }
    wake_.notify_one();
}

}  // namespace detail

}  // namespace rapidsmpf
