#include "streaming/activity.hpp"

#include <ctime>
#include <utility>

#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

namespace {
std::uint64_t next_id() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}
}  // namespace

std::int64_t coarse_now() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Activity::Activity(std::shared_ptr<detail::OutsideProgress> progress) noexcept
    : id_{next_id()}, progress_{std::move(progress)} {}

void Activity::begin(std::shared_ptr<NetworkTrace> trace) {
    MutexLock const lock{mutex_};
    trace_ = std::move(trace);
    traced_.store(trace_ != nullptr, std::memory_order_relaxed);
    counted_ = coarse_now();
    parts_ = 1;
}

void Activity::end() {
    MutexLock const lock{mutex_};
    count_parts();
    parts_ = 0;
}

void Activity::add_parts(std::ptrdiff_t parts) {
    MutexLock const lock{mutex_};
    count_parts();
    parts_ += parts;
}

void Activity::count_parts() {
    auto const now = coarse_now();
    alive_ += (now - counted_) * parts_;
    counted_ = now;
}

Activity::Begun Activity::begin_wait(Wait wait, Cancel cancel) {
    MutexLock const lock{mutex_};
    Begun begun;
    if (error_) {
        begun.error = error_;
        return begun;
    }
    begun.id = ++last_wait_;
    cancels_.emplace(begun.id, std::move(cancel));
    begun.when = coarse_now();
    waits_[static_cast<std::size_t>(wait)].begin(begun.when);
    return begun;
}

void Activity::end_wait(Wait wait, std::int64_t begun, std::uint64_t id, std::int64_t begun_exactly) {
    Cancel dropped;  // what it owns goes without the lock
    MutexLock const lock{mutex_};
    if (auto const found = cancels_.find(id); found != cancels_.end()) {
        dropped.swap(found->second);
        cancels_.erase(found);
    }
    waits_[static_cast<std::size_t>(wait)].end(begun, coarse_now());
    if (trace_ && begun_exactly != 0) {
        NetworkTrace::Event event;
        event.what = NetworkTrace::What::other_wait;
        event.wait = wait;
        event.actor = id_;
        event.begin = begun_exactly;
        event.end = NetworkTrace::now();
        trace_->add(event);
    }
}

void Activity::cancel_waits(std::exception_ptr const& error) {
    if (progress_) {
        return;
    }
    std::map<std::uint64_t, Cancel> cancels;
    {
        MutexLock const lock{mutex_};
        error_ = error;
        cancels.swap(cancels_);
    }
    for (auto const& [id, cancel] : cancels) {
        cancel(error);
    }
}

Activity::Times Activity::times() const {
    MutexLock const lock{mutex_};
    auto const now = coarse_now();
    Times times{};
    times.alive = alive_ + (now - counted_) * parts_;
    times.for_memory = waits_[static_cast<std::size_t>(Wait::memory)].until(now);
    times.for_ranks = waits_[static_cast<std::size_t>(Wait::ranks)].until(now);
    for (auto const& wait : waits_) {
        times.for_others += wait.until(now);
    }
    times.for_others -= times.for_memory + times.for_ranks;
    return times;
}

std::string Activity::waits() const {
    MutexLock const lock{mutex_};
    std::string text;
    for (std::size_t i = 0; i < waits_.size(); ++i) {
        if (waits_[i].any()) {
            text += (text.empty() ? "for " : " and for ") + detail::name_of(static_cast<Wait>(i));
        }
    }
    return text;
}

std::shared_ptr<Activity> make_activity() {
    return std::make_shared<Activity>(nullptr);
}

namespace detail {

std::string name_of(WaitKind kind) {
    switch (kind) {
        case WaitKind::memory:
            return "memory";
        case WaitKind::ranks:
            return "other ranks";
        case WaitKind::time:
            return "time to pass";
        case WaitKind::ticket:
            return "a ticket";
        case WaitKind::permit:
            return "a semaphore";
        case WaitKind::mutex:
            return "a mutex";
        case WaitKind::event:
            break;
    }
    return "an event";
}

std::exception_ptr ActivityWait::begin(
    Activity* activity, WaitKind kind, std::function<void(std::exception_ptr)> cancel) {
    // The task that stands for an actor elsewhere waits for that to end: that is none of the actor's own waits.
    if (activity == nullptr || (activity->progress() != nullptr && kind == WaitKind::event)) {
        return nullptr;
    }
    auto begun = activity->begin_wait(kind, std::move(cancel));
    if (!begun.error) {
        activity_ = activity;
        kind_ = kind;
        id_ = begun.id;
        begun_ = begun.when;
        begun_exactly_ = activity_->is_traced() ? NetworkTrace::now() : 0;
    }
    return std::move(begun.error);
}

void ActivityWait::end() {
    if (auto* const activity = std::exchange(activity_, nullptr)) {
        activity->end_wait(kind_, begun_, id_, begun_exactly_);
    }
}

std::shared_ptr<Activity> make_outside_activity(std::shared_ptr<OutsideProgress> progress) {
    return std::make_shared<Activity>(std::move(progress));
}

void add_parts(Activity* activity, std::ptrdiff_t parts) {
    if (activity != nullptr) {
        activity->add_parts(parts);
    }
}
}  // namespace detail

}  // namespace rapidsmpf::streaming
