// The blocks and flags of a process's shared memory: which are free, which are kept, which are in quarantine.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <rapidsmpf/core/detail/free_extents.hpp>
#include <rapidsmpf/core/fork.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/device/detail/shared_memory.hpp>

#include "device/quarantine.hpp"
#include "device/size_class_cache.hpp"

namespace rapidsmpf::device {

// Thread-safe. In a fork it hands nothing out and takes nothing back: the memory is the parent's.
class SharedMemory::Pool {
  public:
    // Takes the file over. `base` is where all of it is mapped.
    Pool(SharedMemoryTicket ticket, std::byte* base);

    [[nodiscard]] SharedMemoryTicket const& ticket() const noexcept { return ticket_; }
    [[nodiscard]] std::byte* base() const noexcept { return base_; }

    // Null when there is no address space left.
    [[nodiscard]] std::shared_ptr<SharedBlock> allocate(std::size_t bytes);
    void put(SharedBlock const& block) noexcept;
    // Returns the blocks that have been kept longest to the system until at most `keep` bytes are kept; returns how many
    // bytes that were.
    std::size_t trim(std::size_t keep) noexcept;
    [[nodiscard]] detail::Quarantine<SharedBlock>& quarantine() noexcept { return quarantine_; }

    [[nodiscard]] std::unique_ptr<SharedFlag> make_flag();
    void put_flag(std::uint64_t offset) noexcept;

    [[nodiscard]] std::size_t resident() const noexcept;
    [[nodiscard]] std::size_t used() const noexcept { return used_; }
    [[nodiscard]] std::size_t kept() const noexcept { return kept_.bytes(); }
    [[nodiscard]] std::size_t limit() const noexcept { return kept_.limit(); }
    void set_limit(std::size_t bytes) noexcept;

  private:
    // Blocks come in pages up to 64 KiB, and in the sizes of SizeClassCache from there on.
    static constexpr std::size_t page = 4096;
    static constexpr std::size_t huge_page = std::size_t{2} << 20U;
    static constexpr std::size_t page_classes = detail::smallest_class / page;
    static constexpr std::size_t class_count = page_classes - 1 + detail::size_class_count;

    // Index class_count: such blocks are not kept.
    [[nodiscard]] static detail::SizeClass class_of(std::size_t bytes) noexcept;
    [[nodiscard]] std::optional<std::uint64_t> take(detail::SizeClass wanted);
    void punch(std::uint64_t begin, std::uint64_t end) const noexcept;
    void give_back(std::uint64_t offset, std::size_t size) noexcept;

    SharedMemoryTicket const ticket_;
    std::byte* const base_;
    HomeProcess const home_;
    std::atomic<std::size_t> used_{0};
    detail::SizeClassCache<std::uint64_t, class_count> kept_;  // by their offsets

    Mutex mutex_;
    FreeExtents<std::uint64_t> extents_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t next_flag_ RAPIDSMPF_GUARDED_BY(mutex_){first_flag};
    std::vector<std::uint64_t> free_flags_ RAPIDSMPF_GUARDED_BY(mutex_);

    detail::Quarantine<SharedBlock> quarantine_;
};

}  // namespace rapidsmpf::device
