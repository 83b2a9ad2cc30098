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
#include <optional>
#include <thread>

#include <rapidsmpf/core/fork.hpp>
#include <rapidsmpf/core/statistics.hpp>

namespace rapidsmpf {

class ProgressThread {
  public:
    using Clock = std::chrono::steady_clock;

    // What a function, or a part of one, found in a round. Results are merged by |=.
    struct TickResult {
        // What it waits for when there is nothing to do. The greatest counts.
        enum class Waits : std::uint8_t {
            unknown,  // the thread looks for a while before it parks
            relaxed,  // for nothing urgent: the thread may park at once
            urgent,   // for a peer's reply: the thread looks for a while, whatever others wait for
        };

        bool made_progress{false};  // call again soon
        bool in_flight{false};      // call again soon: what is under way is seen to end by calls only
        bool finished{false};       // remove the function
        Waits waits{Waits::unknown};
        std::optional<Clock::time_point> wake_at{};  // call again then, if nothing else does before

        [[nodiscard]] static TickResult idle(Waits waits = Waits::unknown) noexcept;
        [[nodiscard]] static TickResult busy() noexcept;
        [[nodiscard]] static TickResult done() noexcept;
        [[nodiscard]] static TickResult busy_if(bool made_progress) noexcept;
        TickResult& operator|=(TickResult const& other) noexcept;
    };
    using Function = std::function<TickResult()>;
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
    // called from inside a function, but not for that function itself (return TickResult::done() instead).
    void remove_function(FunctionId id);

    // Ends a park early. Cheap when the thread is awake; callable from any thread and from functions.
    void wake() noexcept;

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
