// The thread of a BufferResource that frees memory before it is short and serves who waits for it.
//
// It sleeps until a budget passes its high-water mark, a request waits, or (where memory is measured, because
// others allocate it too) a period is over. Then it spills down to the low-water mark. Started when it is first
// needed. Knows its resource weakly: the thread may be the one that drops the last buffer.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/memory_reservation.hpp>
#include <rapidsmpf/memory/memory_type.hpp>

namespace rapidsmpf {

class BufferResource;

namespace detail {

class Arbiter : public std::enable_shared_from_this<Arbiter> {
  public:
    using Clock = std::chrono::steady_clock;

    // `period`: how often to look while there is something to spill, less often where there is plenty of room; none:
    // only when told.
    explicit Arbiter(std::optional<Clock::duration> period) : period_{period} {}

    // A request at the end of the line.
    [[nodiscard]] std::shared_ptr<MemoryRequest> submit(
        std::shared_ptr<BufferResource> const& br, MemoryType type, std::size_t size, AllowOverbooking allow,
        Clock::duration timeout, std::function<void()> on_done);
    // Something has changed that the thread should look at. `freed`: memory was released.
    enum class Change : bool { pressure, freed };
    void notify(std::weak_ptr<BufferResource> br, Change change) noexcept;
    // Bytes and number of those that wait for a tier.
    struct Waiting {
        std::int64_t bytes{0};
        std::size_t requests{0};
    };
    [[nodiscard]] Waiting waiting(MemoryType type) const;
    [[nodiscard]] bool anybody_waits() const noexcept { return num_waiting_.load() > 0; }
    [[nodiscard]] bool runs_this_thread() const noexcept;
    // Ends the thread; requests that still wait fail.
    void stop() noexcept;

  private:
    friend class rapidsmpf::MemoryRequest;
    using Queue = std::deque<MemoryRequest*>;
    // A request that waited in vain: what it lacks is in use outside of the resource, by other code of the process, and is not released.
    struct VainWait {
        Clock::duration waited{};
        Clock::time_point until;  // this is remembered
        std::int64_t missing{0};  // bytes
        std::int64_t own{0};      // bytes of the resource's buffers and reservations
    };

    void start(std::weak_ptr<BufferResource> br) RAPIDSMPF_REQUIRES(mutex_);
    void run();
    // Serves and spills what it can; whether to look again at once.
    [[nodiscard]] bool step(std::shared_ptr<BufferResource> const& br) RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] bool serve(std::shared_ptr<BufferResource> const& br) RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] bool spill(std::shared_ptr<BufferResource> const& br) RAPIDSMPF_REQUIRES(mutex_);
    // Nothing can be freed now: ends the first request of each tier if its time is up.
    [[nodiscard]] bool expire(std::shared_ptr<BufferResource> const& br) RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] static VainWait vain_wait(BufferResource const& br, MemoryRequest const& request);
    // Whether a request need not wait, because another one did so in vain, little has become free since then, and the resource's own
    // buffers are no more than they were: then one more takes no more memory than that one did.
    [[nodiscard]] bool would_wait_in_vain(BufferResource const& br, MemoryRequest const& request) const
        RAPIDSMPF_REQUIRES(mutex_);
    void finish(BufferResource& br, Queue& queue) RAPIDSMPF_REQUIRES(mutex_);
    void withdraw(MemoryRequest& request);
    [[nodiscard]] std::optional<Clock::time_point> next_look(BufferResource& br) const
        RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] Queue& queue(MemoryType type) RAPIDSMPF_REQUIRES(mutex_) {
        return queues_[static_cast<std::size_t>(type)];
    }

    std::optional<Clock::duration> const period_;
    mutable Mutex mutex_;
    ConditionVariable wake_;
    ConditionVariable served_;
    std::array<Queue, 4> queues_ RAPIDSMPF_GUARDED_BY(mutex_);
    // Of the last attempt, by tier.
    std::array<std::exception_ptr, 4> spill_errors_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::array<std::optional<VainWait>, 4> vain_waits_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::optional<Clock::time_point> retry_ RAPIDSMPF_GUARDED_BY(mutex_);  // after an attempt that failed
    std::weak_ptr<BufferResource> br_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::thread thread_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool signalled_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    bool stop_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::atomic<std::size_t> num_waiting_{0};
    std::atomic<bool> pending_{false};  // notified and not looked at yet
};

}  // namespace detail
}  // namespace rapidsmpf
