// One thread that drives the asynchronous operations of a communicator.
//
// Each registered function does a bit of work and says whether it could do something. While any of them is
// busy the thread spins; when all are idle it parks until wake() is called, an event source fires, or a
// bounded time has passed. Functions run one at a time, never concurrently with each other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <rapidsmpf/core/file_descriptor.hpp>
#include <rapidsmpf/core/statistics.hpp>

namespace rapidsmpf {

class ProgressThread {
  public:
    enum class Progress : std::uint8_t {
        idle,  // nothing could be done and nothing is in flight: the thread may park
        busy,  // something was done or is in flight: call again soon
        done,  // finished: remove the function
    };
    using Function = std::function<Progress()>;
    using FunctionId = std::uint64_t;

    explicit ProgressThread(std::shared_ptr<Statistics> statistics = nullptr);
    // Stops the thread. Functions still registered are dropped.
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

    // A descriptor that ends a park when it becomes readable; the ucxx communicator gives its worker's. Before each
    // park the thread calls `arm`, which returns false when there is something to do already: then it does not
    // park. Both must stay valid until remove_event_source() has returned.
    using SourceId = std::uint64_t;
    SourceId add_event_source(int descriptor, std::function<bool()> arm);
    // A no-op if it is gone already.
    void remove_event_source(SourceId id);

    [[nodiscard]] std::shared_ptr<Statistics> const& statistics() const noexcept { return statistics_; }

    // Stops for good; idempotent. Called by the destructor.
    void stop();
    [[nodiscard]] bool is_running() const noexcept { return running_; }
    // Whether the caller is a function that this thread runs.
    [[nodiscard]] bool is_current() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }

  private:
    struct Entry {
        FunctionId id;
        Function function;
    };
    struct EventSource {
        EventSource(SourceId id_, int descriptor_, std::function<bool()> arm_)
            : id{id_}, descriptor{descriptor_}, arm{std::move(arm_)} {}
        SourceId id;
        int descriptor;
        std::function<bool()> arm;
    };
    void run();
    void wait_for_work(std::uint64_t seen_wakes);
    void park(std::vector<std::shared_ptr<EventSource const>> const& sources);

    std::shared_ptr<Statistics> statistics_;

    std::mutex mutex_;  // guards everything below
    std::condition_variable changed_;
    std::list<Entry> added_;      // waiting to be taken into the loop
    std::list<Entry> functions_;  // touched by the loop thread, under the mutex except while running one
    FunctionId next_id_{1};
    FunctionId running_id_{0};
    std::list<FunctionId> removals_;  // asked for while the function ran
    std::vector<std::shared_ptr<EventSource const>> sources_;
    SourceId next_source_{1};
    std::uint64_t parks_{0};
    bool stop_{false};

    EventDescriptor wake_event_;  // ends the park
    std::atomic<std::uint64_t> wakes_{0};
    std::atomic<bool> parked_{false};
    std::atomic<bool> running_{false};
    std::thread thread_;
};

}  // namespace rapidsmpf
