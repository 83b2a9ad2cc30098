// The one arbiter of memory: who may allocate how much in which tier.
//
// Budget works in two steps. A reservation takes bytes out of what is available; allocating a Buffer
// consumes the reservation. What is available in a tier is its limit minus what buffers and reservations
// hold (and, on a CPU device, never more than the limit minus this process's resident memory). When a
// reservation does not fit, the spill functions are asked to free memory first.
//
// Always owned by shared_ptr: buffers keep their resource alive. All methods are thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/statistics.hpp>
#include <rapidsmpf/memory/buffer.hpp>
#include <rapidsmpf/memory/memory_reservation.hpp>
#include <rapidsmpf/memory/memory_type.hpp>
#include <rapidsmpf/memory/spill_manager.hpp>

namespace rapidsmpf {

enum class AllowOverbooking : bool { no = false, yes = true };

class BufferResource : public std::enable_shared_from_this<BufferResource> {
  public:
    static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

    // Says how many bytes of a tier are still free. Called without any lock held.
    using AvailableFunction = std::function<std::int64_t()>;

    struct Settings {
        Settings() {}  // user-written: travels through coroutines, not an aggregate
        // Bytes that buffers and reservations of a tier may hold together, by MemoryType.
        // PINNED_HOST needs a GPU and DISK comes with the spill files: both start at 0.
        std::array<std::int64_t, 4> limits{unlimited, 0, unlimited, 0};
        // Replaces the accounting of a tier: available = function() - reserved.
        std::array<AvailableFunction, 4> available;
        std::shared_ptr<Statistics> statistics;  // null: disabled statistics
    };

    [[nodiscard]] static std::shared_ptr<BufferResource> make(Settings settings);
    [[nodiscard]] static std::shared_ptr<BufferResource> make() { return make(Settings()); }
    // spill_device_limit ("80%" of Device::total_memory()), statistics.
    [[nodiscard]] static std::shared_ptr<BufferResource> from_options(
        config::Options options, std::shared_ptr<Statistics> statistics = nullptr);
    ~BufferResource();
    BufferResource(BufferResource const&) = delete;
    BufferResource& operator=(BufferResource const&) = delete;

    // Bytes still available in a tier, reservations taken off; negative when overbooked.
    [[nodiscard]] std::int64_t memory_available(MemoryType type) const;
    [[nodiscard]] std::int64_t memory_reserved(MemoryType type) const;
    // Bytes in buffers of a tier.
    [[nodiscard]] std::int64_t memory_used(MemoryType type) const;
    [[nodiscard]] std::int64_t memory_peak(MemoryType type) const;

    // Reserves `size` bytes. Returns the reservation and by how much the tier is overbooked (0: not at all).
    // Without overbooking, a reservation that does not fit comes back with size zero.
    [[nodiscard]] std::pair<MemoryReservation, std::size_t> reserve(
        MemoryType type, std::size_t size, AllowOverbooking allow);
    // As reserve(DEVICE), but spills first when there is not enough. Throws ReservationError when overbooking
    // is not allowed and spilling did not free enough.
    [[nodiscard]] MemoryReservation reserve_device_memory_and_spill(std::size_t size, AllowOverbooking allow);
    // The first of `types` that has room; the last resort overbooks the last tier. Never fails.
    [[nodiscard]] MemoryReservation reserve_best(std::size_t size, std::span<MemoryType const> types);
    // Consumes `size` bytes of a reservation; returns what is left. Throws ReservationError.
    std::size_t release(MemoryReservation& reservation, std::size_t size);

    // New memory of `size` bytes out of `reservation`. Throws ReservationError when it holds less.
    [[nodiscard]] std::unique_ptr<Buffer> allocate(
        std::size_t size, MemoryReservation& reservation, Stream stream = {});
    // Reserves (with overbooking) and allocates; for small and short-lived buffers.
    [[nodiscard]] std::unique_ptr<Buffer> allocate(MemoryType type, std::size_t size, Stream stream = {});
    // A view of foreign memory that `owner` keeps alive; counts towards the tier like any other buffer.
    [[nodiscard]] std::unique_ptr<Buffer> adopt(
        MemoryType type, std::byte* data, std::size_t size, std::shared_ptr<void> owner, Stream stream = {});
    // The same bytes in the reservation's tier; the buffer itself when it is there already.
    [[nodiscard]] std::unique_ptr<Buffer> move(
        std::unique_ptr<Buffer> buffer, MemoryReservation& reservation);
    // A copy of the buffer's bytes [offset, offset + size) in the reservation's tier.
    [[nodiscard]] std::unique_ptr<Buffer> copy(
        Buffer const& buffer, std::size_t offset, std::size_t size, MemoryReservation& reservation);

    [[nodiscard]] SpillManager& spill_manager() noexcept { return spill_manager_; }
    [[nodiscard]] std::shared_ptr<Statistics> const& statistics() const noexcept { return statistics_; }
    [[nodiscard]] Device& device() const noexcept { return device_; }

  private:
    friend class Buffer;
    friend class MemoryReservation;
    struct Tier {
        std::int64_t limit{0};
        AvailableFunction available;
        std::int64_t used{0};
        std::int64_t reserved{0};
        std::int64_t peak{0};
    };

    explicit BufferResource(Settings settings);
    [[nodiscard]] std::int64_t free_locked(Tier const& tier, std::int64_t measured) const;
    void return_reserved(MemoryType type, std::size_t size) noexcept;
    void account(MemoryType type, std::int64_t change) noexcept;
    [[nodiscard]] Tier& tier(MemoryType type) noexcept { return tiers_[static_cast<std::size_t>(type)]; }
    [[nodiscard]] Tier const& tier(MemoryType type) const noexcept {
        return tiers_[static_cast<std::size_t>(type)];
    }

    Device& device_;
    std::shared_ptr<Statistics> statistics_;
    mutable std::mutex mutex_;  // guards tiers_
    std::array<Tier, 4> tiers_;
    SpillManager spill_manager_;
};

}  // namespace rapidsmpf
