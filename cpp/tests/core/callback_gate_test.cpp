#include <rapidsmpf/core/detail/callback_gate.hpp>

#include <atomic>
#include <latch>
#include <thread>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

TEST(CallbackGate, LetsInUntilItCloses) {
    CallbackGate gate;
    EXPECT_TRUE(gate.enter());
    gate.leave();
    gate.close();
    EXPECT_TRUE(gate.is_closed());
    EXPECT_FALSE(gate.enter());
    gate.close();
}

TEST(CallbackGate, ClosingWaitsForThoseInside) {
    CallbackGate gate;
    std::latch inside{1};
    std::atomic<bool> left{false};
    std::thread caller{[&] {
        EXPECT_TRUE(gate.enter());
        inside.count_down();
        while (!gate.is_closed()) {
            std::this_thread::yield();
        }
        left = true;
        gate.leave();
    }};
    inside.wait();
    gate.close();
    EXPECT_TRUE(left);
    caller.join();
}

}  // namespace
}  // namespace rapidsmpf
