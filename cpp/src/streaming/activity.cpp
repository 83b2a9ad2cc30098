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

Activity::Activity() noexcept : id_{next_id()} {}

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

std::int64_t Activity::begin_wait(Wait wait) {
    MutexLock const lock{mutex_};
    auto const now = coarse_now();
    (wait == Wait::memory ? for_memory_ : for_ranks_).begin(now);
    return now;
}

void Activity::end_wait(Wait wait, std::int64_t begun, std::int64_t begun_exactly) {
    MutexLock const lock{mutex_};
    (wait == Wait::memory ? for_memory_ : for_ranks_).end(begun, coarse_now());
    if (trace_ && begun_exactly != 0) {
        NetworkTrace::Event event;
        event.what = wait == Wait::memory ? NetworkTrace::What::memory_wait : NetworkTrace::What::rank_wait;
        event.actor = id_;
        event.begin = begun_exactly;
        event.end = NetworkTrace::now();
        trace_->add(event);
    }
}

Activity::Times Activity::times() const {
    MutexLock const lock{mutex_};
    auto const now = coarse_now();
    Times times{};
    times.alive = alive_ + (now - counted_) * parts_;
    times.for_memory = for_memory_.until(now);
    times.for_ranks = for_ranks_.until(now);
    times.waits_for_memory = for_memory_.any();
    times.waits_for_ranks = for_ranks_.any();
    return times;
}

void ActivityWait::begin(Activity* activity, Activity::Wait wait) {
    activity_ = activity;
    wait_ = wait;
    if (activity_ != nullptr) {
        begun_ = activity_->begin_wait(wait_);
        begun_exactly_ = activity_->is_traced() ? NetworkTrace::now() : 0;
    }
}

void ActivityWait::end() {
    if (auto* const activity = std::exchange(activity_, nullptr)) {
        activity->end_wait(wait_, begun_, begun_exactly_);
    }
}

std::shared_ptr<Activity> make_activity() {
    return std::make_shared<Activity>();
}

namespace detail {
void add_parts(Activity* activity, std::ptrdiff_t parts) {
    if (activity != nullptr) {
        activity->add_parts(parts);
    }
}
}  // namespace detail

}  // namespace rapidsmpf::streaming
