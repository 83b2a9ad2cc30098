// The alarms of an executor: functions that are called once at a time to come, on one thread for all.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::streaming {

// Owned by shared_ptr, which its thread has a share of; stop() comes before the end.
class Timers : public std::enable_shared_from_this<Timers> {
  public:
    using Clock = std::chrono::steady_clock;
    // Names one alarm.
    using Id = std::pair<Clock::time_point, std::uint64_t>;
    // Must not throw and must not block.
    using Alarm = std::function<void()>;

    Timers() = default;
    ~Timers() = default;
    Timers(Timers const&) = delete;
    Timers& operator=(Timers const&) = delete;

    // Throws std::system_error when there is no thread to be had, std::logic_error after stop().
    [[nodiscard]] Id add(Clock::time_point time, Alarm alarm);
    // One that has gone off, or is going off, is left alone.
    void remove(Id const& id) noexcept;
    // Ends the thread and forgets the alarms that have not gone off; idempotent, also on that thread.
    void stop() noexcept;

  private:
    void watch();

    Mutex mutex_;
    ConditionVariable changed_;
    std::map<Id, Alarm> alarms_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t added_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    bool stop_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::thread thread_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::streaming
