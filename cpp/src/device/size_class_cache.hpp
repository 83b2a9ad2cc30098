// Free blocks of memory, kept by size so that the next one who asks gets one that has its pages.
//
// Blocks above 64 KiB come in sizes of 2^k times 8/8, 9/8, ... 15/8, up to 1 GiB.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <new>
#include <optional>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::device::detail {

struct SizeClass {
    std::size_t index;
    std::size_t size;  // of its blocks
};

inline constexpr std::size_t smallest_class = std::size_t{64} << 10U;
inline constexpr std::size_t largest_class = std::size_t{1} << 30U;
inline constexpr auto size_class_count =
    static_cast<std::size_t>(std::countr_zero(largest_class) - std::countr_zero(smallest_class)) * 8 + 1;

// The smallest class that holds so many bytes, at least smallest_class and at most largest_class.
[[nodiscard]] constexpr SizeClass size_class_of(std::size_t bytes) noexcept {
    auto const power = static_cast<std::size_t>(std::bit_width(bytes)) - 1;
    auto const step = std::size_t{1} << (power - 3);
    auto const steps = (bytes - (std::size_t{1} << power) + step - 1) / step;
    auto const octave = power - static_cast<std::size_t>(std::countr_zero(smallest_class));
    return {octave * 8 + steps, (std::size_t{1} << power) + steps * step};
}

// Keeps free blocks of `classes` sizes up to a bound. Thread-safe: each size has a lock of its own. It owns no block: its
// user releases those that put() does not keep, and those that trim() takes out.
template <typename Block, std::size_t classes>
class SizeClassCache {
  public:
    explicit SizeClassCache(std::size_t limit) : limit_{limit} {}

    // The block that was put last, which is the one most likely to be in a cache of the processor.
    [[nodiscard]] std::optional<Block> take(SizeClass wanted) {
        auto& entry = classes_[wanted.index];
        MutexLock const lock{entry.mutex};
        if (entry.kept.empty()) {
            return std::nullopt;
        }
        auto const block = entry.kept.back().block;
        entry.kept.pop_back();
        entry.note_oldest();
        bytes_ -= wanted.size;
        return block;
    }

    // Returns whether the block is kept. The caller calls trim(limit()) then.
    [[nodiscard]] bool put(Block block, SizeClass where) noexcept {
        // One that takes most of the bound would drive out all others.
        if (where.size > limit_ / 2) {
            return false;
        }
        try {
            auto& entry = classes_[where.index];
            MutexLock const lock{entry.mutex};
            entry.kept.push_back({block, where.size, ++puts_});
            entry.note_oldest();
            bytes_ += where.size;
        } catch (std::bad_alloc const&) {
            return false;
        }
        return true;
    }

    // Calls `release(block, where)` for the blocks that have been kept longest, whatever their size, until at most `keep`
    // bytes are left: so sizes that are no longer asked for do not drive out those that are. Returns how many bytes that were.
    template <typename Release>
    std::size_t trim(std::size_t keep, Release const& release) noexcept {
        std::size_t freed = 0;
        while (bytes_ > keep) {
            auto const oldest = std::min_element(
                classes_.begin(), classes_.end(),
                [](Class const& a, Class const& b) { return a.oldest.load() < b.oldest.load(); });
            std::optional<Kept> taken;
            {
                MutexLock const lock{oldest->mutex};
                if (!oldest->kept.empty()) {
                    taken = oldest->kept.front();
                    oldest->kept.pop_front();
                    oldest->note_oldest();
                    bytes_ -= taken->size;
                }
            }
            if (taken) {
                freed += taken->size;
                release(
                    taken->block,
                    SizeClass{static_cast<std::size_t>(oldest - classes_.begin()), taken->size});
            } else if (oldest->oldest.load() == none) {
                break;  // other threads have taken what there was
            }
        }
        return freed;
    }

    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::size_t limit() const noexcept { return limit_; }
    void set_limit(std::size_t bytes) noexcept { limit_ = bytes; }

  private:
    static constexpr std::uint64_t none = UINT64_MAX;

    struct Kept {
        Block block;
        std::size_t size;
        std::uint64_t since;  // in numbers of blocks that were put
    };
    struct Class {
        Mutex mutex;
        std::deque<Kept> kept RAPIDSMPF_GUARDED_BY(mutex);
        // Since when the first of `kept` is there; to be read without the lock.
        std::atomic<std::uint64_t> oldest{none};

        void note_oldest() noexcept RAPIDSMPF_REQUIRES(mutex) {
            oldest = kept.empty() ? none : kept.front().since;
        }
    };

    std::array<Class, classes> classes_;
    std::atomic<std::size_t> bytes_{0};
    std::atomic<std::size_t> limit_;
    std::atomic<std::uint64_t> puts_{0};
};

}  // namespace rapidsmpf::device::detail
