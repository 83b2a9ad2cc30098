// Memory that is reserved, at once or by a queued request.
//
// A MemoryReservation is bytes of a tier set aside for allocations to come. Move-only; what is not consumed goes back to the
// BufferResource on clear() or destruction.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>

#include <rapidsmpf/memory/memory_type.hpp>

namespace rapidsmpf {

class BufferResource;

class MemoryReservation {
  public:
    MemoryReservation(MemoryReservation&& other) noexcept;
    MemoryReservation& operator=(MemoryReservation&& other) noexcept;
    MemoryReservation(MemoryReservation const&) = delete;
    MemoryReservation& operator=(MemoryReservation const&) = delete;
    ~MemoryReservation();

    // Bytes not consumed yet.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] MemoryType mem_type() const noexcept { return type_; }
    [[nodiscard]] std::shared_ptr<BufferResource> const& resource() const noexcept { return resource_; }
    // Releases the remaining bytes.
    void clear() noexcept;

  private:
    friend class BufferResource;
    MemoryReservation(std::shared_ptr<BufferResource> resource, MemoryType type, std::size_t size) noexcept;

    std::shared_ptr<BufferResource> resource_;
    MemoryType type_;
    std::size_t size_;
};

enum class AllowOverbooking : bool { no = false, yes = true };

namespace detail {
class Arbiter;
}

// A queued request for memory of a tier.
//
// Requests of a tier are served strictly in the order in which they were made, so that a large one is not starved
// by small ones; while one waits, what it needs counts as pressure, and the arbiter spills for it. One that is
// larger than the whole limit is served, if it may wait at all, when nothing is left to free and there is no other
// reservation. When nothing has been freed within its timeout, a request overbooks the tier or fails, as its
// AllowOverbooking says.
//
// Owns its place in the queue, and the reservation once it is served. Its destructor releases both.
class MemoryRequest {
  public:
    MemoryRequest(MemoryRequest const&) = delete;
    MemoryRequest& operator=(MemoryRequest const&) = delete;
    ~MemoryRequest();

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    // Whether take() will not wait.
    [[nodiscard]] bool is_done() const;
    // Waits until the request is served and takes the reservation, once. Throws ReservationError, or SpillError
    // when spilling failed; the text says what holds the memory.
    [[nodiscard]] MemoryReservation take();

  private:
    friend class detail::Arbiter;
    using Clock = std::chrono::steady_clock;
    // In the words of take(): with `on_done` the end is told on the arbiter's thread, which must not be kept.
    MemoryRequest(
        std::shared_ptr<detail::Arbiter> arbiter, MemoryType type, std::size_t size, AllowOverbooking allow,
        Clock::duration timeout, std::function<void()> on_done);

    std::shared_ptr<detail::Arbiter> arbiter_;
    MemoryType type_;
    std::size_t size_;
    AllowOverbooking allow_;
    Clock::duration timeout_;
    std::function<void()> on_done_;
    // Guarded by the arbiter's mutex.
    bool done_{false};
    Clock::time_point since_;  // made, or the last time that memory was freed for it
    bool spilled_for_{false};  // a round of spilling knew of it
    std::optional<MemoryReservation> reservation_;
    std::exception_ptr error_;
};

}  // namespace rapidsmpf
