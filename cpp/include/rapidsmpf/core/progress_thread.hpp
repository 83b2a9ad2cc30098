// One thread that drives the asynchronous operations of a communicator.
//
// Each registered function does a bit of work and says whether it could do something. While any of them is
// busy the thread spins; when all are idle it parks until wake() is called, an event source fires, the time comes
// for which a function asked, or a bounded time has passed. Functions run one at a time, never concurrently with
// each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include <rapidsmpf/core/fork.hpp>
#include <rapidsmpf/core/statistics.hpp>

namespace rapidsmpf {

class ProgressThread {
  public:
    enum class Progress : std::uint8_t {
        idle,          // nothing could be done and nothing is in flight: the thread may park
        idle_relaxed,  // the same, and no reply is urgent: the thread may park at once
        idle_urgent,   // idle, but a peer's reply is urgent: overrides idle_relaxed of other functions
        busy,          // something was done or is in flight: call again soon
        done,          // finished: remove the function
    };
    using Function = std::function<Progress()>;
    using FunctionId = std::uint64_t;

    explicit ProgressThread(std::shared_ptr<Statistics> statistics = nullptr);
    // Stops the thread. Functions still registered are dropped. May happen in one of them, or when one of them is dropped,
    // since functions often hold what holds this: then the thread ends by itself after that. Nothing happens in a fork.
    ~ProgressThread();
    ProgressThread(ProgressThread const&) = delete;
    ProgressThread& operator=(ProgressThread const&) = delete;

    // Registers `function`; it must not throw (an operation stores its own errors).
    FunctionId add_function(Function function);
    // Removes a function and waits until it is not running any more. A no-op if it is gone already. May be
    // called from inside a function, but not for that function itself (return Progress::done instead).
    void remove_function(FunctionId id);

    // Ends a park early. Cheap when the thread is awake; callable from any thread and from functions.
    void wake() noexcept;

    // From a function, in this round: have all called again at `when`, if nothing else does before.
    using Clock = std::chrono::steady_clock;
    void look_again(Clock::time_point when) noexcept;

    // A descriptor that ends a park when it becomes readable; the ucxx communicator gives its worker's. Before each
    // park the thread calls `arm`, which returns false when there is something to do already: then it does not
    // park. Both must stay valid until remove_event_source() has returned.
    using SourceId = std::uint64_t;
    SourceId add_event_source(int descriptor, std::function<bool()> arm);
    // A no-op if it is gone already.
    void remove_event_source(SourceId id);

    [[nodiscard]] std::shared_ptr<Statistics> const& statistics() const noexcept;

    // Stops for good; idempotent. Called by the destructor.
    void stop();
    [[nodiscard]] bool is_running() const noexcept { return running_; }
    // Whether the caller is a function that this thread runs.
    [[nodiscard]] bool is_current() const noexcept;

  private:
    class Loop;

    std::shared_ptr<Loop> loop_;  // shared with the thread, which may outlive this
    std::atomic<bool> running_{false};
    HomeProcess home_;
    std::unique_ptr<std::thread> thread_;
};

}  // namespace rapidsmpf
