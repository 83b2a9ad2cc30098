// Whether a thread that runs out of work should spin for a short time before it blocks. Waking a blocked thread takes longer than
// that time, so spinning pays as long as work keeps coming about that soon, and another core can bring it.
//
// Used by one thread. It asks should_look(); if so it spins for at most look_time and reports with found(). Else it blocks, and
// reports with slept().
#pragma once

#include <chrono>

#include <sched.h>

namespace rapidsmpf::detail {

// Whether this thread may run on more than one core.
[[nodiscard]] inline bool has_several_cores() noexcept {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    return ::sched_getaffinity(0, sizeof cores, &cores) != 0
           || CPU_COUNT(&cores) > 1;  // it fails where there are very many
}

class ShortSleeps {
  public:
    static constexpr std::chrono::microseconds look_time{30};

    [[nodiscard]] bool should_look() const noexcept { return expected_soon_; }
    void found(bool any) noexcept { expected_soon_ = any; }
    // After it blocked for `time`. `woken`: by work, and not for another reason.
    void slept(std::chrono::nanoseconds time, bool woken) noexcept {
        expected_soon_ = woken && time < most_slept && several_cores_;
    }

  private:
    static constexpr auto most_slept = 3 * look_time;  // waking up included

    bool const several_cores_{has_several_cores()};
    bool expected_soon_{false};
};

}  // namespace rapidsmpf::detail
