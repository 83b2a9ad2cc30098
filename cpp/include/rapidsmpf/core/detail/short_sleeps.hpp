// Whether a thread that has nothing to do should look for work for a while before it sleeps: to be woken takes longer than what comes
// at once. It should as long as work comes about that soon, and another core can bring it.
//
// One thread's, which asks should_look(), looks for look_time at most, says whether it found(), and otherwise sleeps and says how
// long it slept().
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
    // `woken` by work, and not for another reason.
    void slept(std::chrono::nanoseconds time, bool woken) noexcept {
        expected_soon_ = woken && time < most_slept && several_cores_;
    }

  private:
    static constexpr auto most_slept = 3 * look_time;  // waking up included

    bool const several_cores_{has_several_cores()};
    bool expected_soon_{false};
};

}  // namespace rapidsmpf::detail
