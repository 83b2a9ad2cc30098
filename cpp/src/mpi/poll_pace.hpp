// How often the progress thread looks at a transport that has nothing to wait on.
//
// While something moves it looks all the time. Then it parks with a timer, and looks once each time that the timer
// ends the park, at intervals that grow by a quarter: so a message waits no longer than a quarter of the time for which
// nothing has come, and an idle transport costs next to nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>

#include <sys/timerfd.h>
#include <unistd.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {

class PollPace {
  public:
    PollPace() : timer_{::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)} {
        if (!timer_.is_open()) {
            throw SystemError{"cannot make a timer for a communicator", errno};
        }
    }

    [[nodiscard]] int descriptor() const noexcept { return timer_.get(); }

    // From the progress thread: whether to look now.
    [[nodiscard]] bool is_due() noexcept {
        if (hurry_.load() && hurry_.exchange(false)) {
            interval_ = {};
            looked_ = false;
        }
        return !looked_;
    }
    // What came of it.
    void looked(bool moved) noexcept {
        if (moved) {
            interval_ = {};
        }
        looked_ = !moved && interval_.count() > 0;
    }
    // Before a park.
    void arm(bool in_flight) noexcept {
        interval_ = std::clamp(interval_ + interval_ / 4, shortest, in_flight ? longest_in_flight : longest);
        itimerspec at{};
        at.it_value.tv_nsec = interval_.count();
        ::timerfd_settime(timer_.get(), 0, &at, nullptr);
        looked_ = false;
    }
    // From any thread: something was posted.
    void hurry() noexcept { hurry_.store(true); }

  private:
    using Nanoseconds = std::chrono::nanoseconds;
    static constexpr Nanoseconds shortest{20'000};
    static constexpr Nanoseconds longest_in_flight{1'000'000};
    static constexpr Nanoseconds longest{20'000'000};

    FileDescriptor timer_;
    Nanoseconds interval_{0};  // 0: looks all the time
    bool looked_{false};
    std::atomic<bool> hurry_{false};
};

}  // namespace rapidsmpf::detail
