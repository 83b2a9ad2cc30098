// Memory of every tier under one budget: allocation, reservations, and spilling when a tier is short.
//
// Budget works in two steps. A reservation takes bytes out of what is available; allocating a Buffer
// consumes the reservation. What is available in a tier is its limit minus what buffers and reservations
// hold (and, on a CPU device, never more than the limit minus this process's resident memory).
//
// A tier that is short is spilled: buffers that are not in use move to a lower tier (SpillableBuffers, and what the functions
// of the spill manager hold). A background thread spills from the high-water mark down to the low-water mark, and serves requests
// for memory in the order of their arrival. The DISK tier is in files of the resource's DiskSpace.
//
// Always owned by shared_ptr: buffers keep their resource alive. All methods are thread-safe.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/statistics.hpp>
#include <rapidsmpf/memory/buffer.hpp>
#include <rapidsmpf/memory/memory_reservation.hpp>
#include <rapidsmpf/memory/memory_type.hpp>
#include <rapidsmpf/memory/spill_manager.hpp>

namespace rapidsmpf {

class DiskSpace;
class MemoryResource;
class PinnedMemoryResource;
class PartitionOrderHint;
namespace detail {
class Arbiter;
class Budget;
class SpillRegistry;
class TierCopier;
}  // namespace detail

class BufferResource : public std::enable_shared_from_this<BufferResource> {
  public:
    static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
    using Duration = std::chrono::steady_clock::duration;

    // Says how many bytes of a tier are still free. Called without any lock held.
    using AvailableFunction = std::function<std::int64_t()>;

    struct Settings {
        Settings() {}  // user-written: travels through coroutines, not an aggregate
        // Bytes that buffers and reservations of a tier may hold together, by MemoryType. PINNED_HOST has memory
        // only with a pinned_mr; a DISK limit of 0 switches spilling to disk off.
        std::array<std::int64_t, 4> limits{unlimited, unlimited, unlimited, unlimited};
        // Replaces the accounting of a tier: available = function() - reserved.
        std::array<AvailableFunction, 4> available;
        // Where DEVICE memory comes from; null: the compute device's default.
        std::shared_ptr<MemoryResource> device_mr;
        // Where PINNED_HOST memory comes from; null: there is none.
        std::shared_ptr<PinnedMemoryResource> pinned_mr;
        // How many streams next_stream() returns in turn, and where they come from (empty: the device).
        std::size_t num_streams{16};
        std::function<Stream()> next_stream;
        // Spilling begins above the one share of a limit and ends at the other.
        double high_water{0.9};
        double low_water{0.8};
        // How often to compare what is measured, or said by a function, with the marks while there is something to
        // spill; none: only when memory is reserved or allocated.
        std::optional<Duration> periodic_spill_check{std::chrono::milliseconds{1}};
        // How long reserve_or_wait() waits without any memory being freed.
        Duration reserve_timeout{std::chrono::milliseconds{100}};
        std::shared_ptr<DiskSpace> disk;         // null: one of its own, by default settings, when needed
        std::shared_ptr<Statistics> statistics;  // null: disabled statistics
    };

    // Throws std::invalid_argument unless 0 < low_water <= high_water <= 1.
    [[nodiscard]] static std::shared_ptr<BufferResource> make(Settings settings);
    [[nodiscard]] static std::shared_ptr<BufferResource> make() { return make(Settings()); }
    // spill_device_limit (by default 80 % of device_memory_from_options()), memory_limit, spill_high_water, spill_low_water, periodic_spill_check,
    // memory_reserve_timeout, those of DiskSpace.
    [[nodiscard]] static Settings settings_from_options(
        config::Options options, std::shared_ptr<Statistics> statistics = nullptr);
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
    // The limit of a tier; `unlimited` if it has none.
    [[nodiscard]] std::int64_t memory_limit(MemoryType type) const;

    // Reserves `size` bytes. Returns the reservation and by how much the tier is overbooked (0: not at all).
    // Without overbooking, a reservation that does not fit beside the waiting requests is returned with size zero.
    [[nodiscard]] std::pair<MemoryReservation, std::size_t> reserve(
        MemoryType type, std::size_t size, AllowOverbooking allow);
    // As reserve(), but spills first when there is not enough, and waits until that is written: a producer that
    // reserves so does not outrun the disk. Throws ReservationError when overbooking is not allowed and spilling did
    // not free enough, SpillError when spilling failed.
    [[nodiscard]] MemoryReservation reserve_and_spill(
        MemoryType type, std::size_t size, AllowOverbooking allow);
    [[nodiscard]] MemoryReservation reserve_device_memory_and_spill(
        std::size_t size, AllowOverbooking allow) {
        return reserve_and_spill(MemoryType::DEVICE, size, allow);
    }
    // As reserve(), but queues until there is enough; see MemoryRequest. No timeout: reserve_timeout.
    [[nodiscard]] MemoryReservation reserve_or_wait(
        MemoryType type, std::size_t size, AllowOverbooking allow,
        std::optional<Duration> timeout = std::nullopt);
    // The same without waiting here: `on_done` is called on another thread when the request is done.
    [[nodiscard]] std::shared_ptr<MemoryRequest> request(
        MemoryType type, std::size_t size, AllowOverbooking allow, std::function<void()> on_done,
        std::optional<Duration> timeout = std::nullopt);
    // In the first of `types` that has room; nothing if none has.
    [[nodiscard]] std::optional<MemoryReservation> try_reserve_best(
        std::size_t size, std::span<MemoryType const> types);
    // The same; the last resort overbooks the last tier. Never fails.
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
    // The same bytes where the CPU can read them: the buffer itself, or a copy in the best tier with room.
    [[nodiscard]] std::unique_ptr<Buffer> move_to_host_access(std::unique_ptr<Buffer> buffer);
    // A copy of the buffer's bytes [offset, offset + size) in the reservation's tier. Throws SpillError when one
    // of the two is DISK and fails.
    [[nodiscard]] std::unique_ptr<Buffer> copy(
        Buffer const& buffer, std::size_t offset, std::size_t size, MemoryReservation& reservation);

    // The best tier that the disk can be read into.
    [[nodiscard]] MemoryType type_to_read_into() const noexcept;
    // Where bytes of a tier go when there is no room: lower tiers, best first. On a CPU device the host's memory
    // is the device's, so they go to DISK.
    [[nodiscard]] std::vector<MemoryType> spill_targets(MemoryType type) const;
    // Frees `amount` bytes of a tier if it can; returns how many it has. Throws SpillError when nothing could be
    // freed because of an error.
    std::size_t spill(MemoryType type, std::size_t amount);
    // The same without the functions of the spill manager.
    std::size_t spill_buffers(MemoryType type, std::size_t amount);

    // Makes all copies between tiers.
    [[nodiscard]] detail::TierCopier& copier() noexcept { return *copier_; }
    [[nodiscard]] SpillManager& spill_manager() noexcept { return spill_manager_; }
    // The order in memory of the partitions of a table that is partitioned into this memory.
    [[nodiscard]] PartitionOrderHint& partition_order_hint() noexcept { return *partition_order_hint_; }
    [[nodiscard]] std::shared_ptr<Statistics> const& statistics() const noexcept { return statistics_; }
    [[nodiscard]] Device& device() const noexcept { return device_; }
    [[nodiscard]] std::shared_ptr<MemoryResource> const& device_mr() const noexcept { return device_mr_; }
    [[nodiscard]] std::shared_ptr<PinnedMemoryResource> const& pinned_mr() const noexcept {
        return pinned_mr_;
    }
    [[nodiscard]] std::size_t num_streams() const noexcept { return num_streams_; }
    [[nodiscard]] Duration reserve_timeout() const noexcept { return reserve_timeout_; }
    // A stream for work that was given none.
    [[nodiscard]] Stream next_stream() const;
    // The files of the DISK tier; made when it is first asked for.
    [[nodiscard]] DiskSpace& disk();
    // What holds the memory of a tier, as text for people.
    [[nodiscard]] std::string describe(MemoryType type) const;

  private:
    friend class Buffer;
    friend class MemoryReservation;
    friend class SpillableBuffer;
    friend class SpillableParts;
    friend class detail::Arbiter;
    friend class detail::SpillRegistry;
    friend class detail::TierCopier;

    explicit BufferResource(Settings settings);
    void return_reserved(MemoryType type, std::size_t size) noexcept;
    void account(MemoryType type, std::int64_t change) noexcept;
    void note_pressure(MemoryType type) noexcept;
    void note_freed() noexcept;
    // There is something to spill now: the arbiter has to poll what is not reported to it.
    void note_spillable() noexcept;
    // A buffer on DISK, whose bytes are stored.
    [[nodiscard]] std::unique_ptr<Buffer> adopt_extent(DiskExtent extent, Stream stream);
    [[nodiscard]] detail::SpillRegistry& registry() noexcept { return *registry_; }
    [[nodiscard]] void* allocate_memory(MemoryType type, std::size_t size, Stream stream);
    void deallocate_memory(MemoryType type, void* data, std::size_t size, Stream stream) noexcept;

    // For the arbiter.
    [[nodiscard]] std::optional<MemoryReservation> grant(
        MemoryType type, std::size_t size, AllowOverbooking allow);
    void add_waiting(MemoryType type, std::int64_t change);
    [[nodiscard]] std::size_t shortage(MemoryType type) const;
    [[nodiscard]] bool has_spillable() const;
    [[nodiscard]] bool is_larger_than_limit(MemoryType type, std::size_t size) const;
    // Whether nothing of a tier is reserved, being moved or can be moved.
    [[nodiscard]] bool is_idle(MemoryType type) const;
    [[nodiscard]] bool is_moving(MemoryType type) const;
    [[nodiscard]] std::string describe_shortage(MemoryType type, std::size_t size) const;

    Device& device_;
    std::shared_ptr<MemoryResource> device_mr_;
    std::shared_ptr<PinnedMemoryResource> pinned_mr_;
    std::size_t num_streams_;
    std::function<Stream()> next_stream_;
    std::shared_ptr<Statistics> statistics_;
    Duration reserve_timeout_;
    std::int64_t disk_limit_;
    std::unique_ptr<detail::Budget> budget_;
    std::unique_ptr<detail::SpillRegistry> registry_;
    std::shared_ptr<detail::Arbiter> arbiter_;
    std::once_flag disk_once_;
    std::shared_ptr<DiskSpace> disk_;
    SpillManager spill_manager_;
    std::unique_ptr<detail::TierCopier> copier_;
    std::unique_ptr<PartitionOrderHint> partition_order_hint_;
};

}  // namespace rapidsmpf
