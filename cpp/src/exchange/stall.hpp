// A wait that takes long. One that is divided into slices is one wait.
#pragma once

#include <chrono>

namespace rapidsmpf::exchange {

struct Stall {
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds first_look{1};  // at the options; until then a wait costs nothing
    static constexpr std::chrono::seconds longest_break{1};

    explicit Stall(Clock::time_point now) : begin{now}, last{now}, next_look{now + first_look} {}

    Clock::time_point begin;
    Clock::time_point last;
    Clock::time_point next_look;
};

}  // namespace rapidsmpf::exchange
