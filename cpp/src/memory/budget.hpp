// The arithmetic of a BufferResource: per tier a limit, what buffers hold, what is reserved, what is waited for.
//
// Available is the limit minus what buffers and reservations hold. Where a function says what is available its
// word counts instead. On a CPU device others allocate from the same memory, outside our sight: there what is
// resident counts, too, measured at most once in a while and carried forward by what buffers have taken and given
// back since.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/memory/memory_type.hpp>

namespace rapidsmpf::detail {

class Budget {
  public:
    static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
    using AvailableFunction = std::function<std::int64_t()>;
    struct Marks {
        double high{1.0};  // shares of a limit: where to begin spilling, and where to stop
        double low{1.0};
    };

    Budget(
        Device& device, std::array<std::int64_t, 4> limits, std::array<AvailableFunction, 4> available,
        Marks marks);

    // Bytes available now, reservations taken off; negative when overbooked.
    [[nodiscard]] std::int64_t available(MemoryType type) const;
    struct Usage {
        std::int64_t limit;
        std::int64_t used;
        std::int64_t reserved;
        std::int64_t waiting;
        std::int64_t peak;
    };
    [[nodiscard]] Usage usage(MemoryType type) const;

    enum class WhenFull : std::uint8_t {
        overbook,            // reserve all the same
        refuse,              // and leave what others wait for to them
        refuse_waiting_one,  // for the one that waits longest
    };
    // Reserves; returns by how many bytes the tier is overbooked, or would be when it refuses.
    std::size_t reserve(MemoryType type, std::size_t size, WhenFull when_full);
    void return_reserved(MemoryType type, std::size_t size);
    void add_waiting(MemoryType type, std::int64_t change);
    // Buffers have taken (positive) or released bytes. Returns what they hold now if it never was more, else 0.
    std::int64_t account(MemoryType type, std::int64_t change);

    // How much has to be freed: for those who wait, and to come from above the high-water mark to the low one.
    [[nodiscard]] std::int64_t shortage(MemoryType type) const;
    // Whether a request waits or the high-water mark is passed, by what is known without measuring.
    [[nodiscard]] bool under_pressure(MemoryType type) const;
    // Whether what is available changes without our doing.
    [[nodiscard]] bool is_measured(MemoryType type) const;
    // How many more bytes others may allocate before a tier whose use is measured passes its high-water mark; 0 where
    // a function says what is available, for that may change at any speed.
    [[nodiscard]] std::int64_t room_for_others() const;
    // Bytes of this process's memory that are not in our buffers; 0 where nothing is measured.
    [[nodiscard]] std::int64_t held_by_others() const;

  private:
    using Clock = std::chrono::steady_clock;
    // Constant once made.
    struct Rule {
        std::int64_t limit{0};
        AvailableFunction function;
        bool resident{false};  // measured by what is resident
    };
    struct Level {
        std::int64_t used{0};
        std::int64_t reserved{0};
        std::int64_t waiting{0};
        std::int64_t peak{0};
    };

    // What the tier's function says, called without the lock; unlimited if there is none.
    [[nodiscard]] static std::int64_t ask(Rule const& rule);
    // Available by all that is known, `reported` being what the function returned.
    [[nodiscard]] std::int64_t free_locked(Rule const& rule, Level const& level, std::int64_t reported) const
        RAPIDSMPF_REQUIRES(mutex_);
    void measure_if_old_locked() const RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] std::int64_t in_memory_locked() const RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] Rule const& rule(MemoryType type) const noexcept {
        return rules_[static_cast<std::size_t>(type)];
    }
    [[nodiscard]] Level& level(MemoryType type) noexcept RAPIDSMPF_REQUIRES(mutex_) {
        return levels_[static_cast<std::size_t>(type)];
    }
    [[nodiscard]] Level const& level(MemoryType type) const noexcept RAPIDSMPF_REQUIRES(mutex_) {
        return levels_[static_cast<std::size_t>(type)];
    }

    Device& device_;
    Marks marks_;
    std::array<Rule, 4> rules_;
    mutable Mutex mutex_;
    std::array<Level, 4> levels_ RAPIDSMPF_GUARDED_BY(mutex_);
    // The last measurement: resident bytes, less free blocks kept for reuse, and what buffers held at that moment.
    mutable Clock::time_point measured_at_ RAPIDSMPF_GUARDED_BY(mutex_);
    mutable std::int64_t measured_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    mutable std::int64_t in_buffers_ RAPIDSMPF_GUARDED_BY(mutex_){0};
};

}  // namespace rapidsmpf::detail
