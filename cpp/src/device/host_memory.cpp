#include <rapidsmpf/device/detail/host_memory.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>

#include <sys/mman.h>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/detail/sanitizer.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/device/detail/shared_memory.hpp>
#include <rapidsmpf/device/device.hpp>

#include "device/size_class_cache.hpp"

namespace rapidsmpf::device {

namespace {

using detail::size_class_of;
using detail::SizeClass;

#if defined(RAPIDSMPF_ADDRESS_SANITIZER)
constexpr bool keeps_blocks = false;
#else
constexpr bool keeps_blocks = true;
#endif

constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = 2UL << 20U;
// From here on blocks have sizes of their own and come straight from the system.
constexpr std::size_t mapped_threshold = detail::smallest_class;
// From here on they begin at a huge page, and ask for them.
constexpr std::size_t huge_page_threshold = 4UL << 20U;

[[noreturn]] void throw_out_of_memory(std::size_t bytes) {
    throw OutOfMemory{"cannot allocate " + config::format_bytes(bytes) + " of host memory"};
}

void* allocate_from_heap(std::size_t bytes) {
    auto const alignment = bytes >= huge_page_threshold ? huge_page
                           : bytes >= page              ? page
                                                        : Device::alignment;
    void* pointer = nullptr;
    // AddressSanitizer ends the process where malloc returns null.
    auto const absurd = !keeps_blocks && bytes >= std::size_t{1} << 40U;
    if (absurd || ::posix_memalign(&pointer, alignment, std::max<std::size_t>(bytes, 1)) != 0) {
        throw_out_of_memory(bytes);
    }
    return pointer;
}

// New pages from the system; null when there are none.
void* map(std::size_t size) {
    auto const huge = size >= huge_page_threshold;
    auto const asked = huge ? size + huge_page : size;
    if (asked < size) {
        return nullptr;
    }
    void* const mapped = ::mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        return nullptr;
    }
    if (!huge) {
        return mapped;
    }
    // What is before the first huge page and after the block goes back.
    auto* const begin = static_cast<std::byte*>(mapped);
    auto const skipped = round_up(reinterpret_cast<std::uintptr_t>(begin), huge_page)
                         - reinterpret_cast<std::uintptr_t>(begin);
    if (skipped > 0) {
        ::munmap(begin, skipped);
    }
    if (skipped < huge_page) {
        ::munmap(begin + skipped + size, huge_page - skipped);
    }
    ::madvise(begin + skipped, size, MADV_HUGEPAGE);  // a wish, not a need
    return begin + skipped;
}

// The free blocks of this process.
class FreeBlocks {
  public:
    [[nodiscard]] void* take(SizeClass wanted) {
        if (auto const block = kept_.take(wanted)) {
            return *block;
        }
        return take_decommitted(wanted);
    }

    void put(void* block, SizeClass where) noexcept {
        if (!kept_.put(block, where)) {
            give_back(block, where);
            return;
        }
        trim(kept_.limit());
    }

    std::size_t trim(std::size_t keep) noexcept {
        return kept_.trim(keep, [this](void* block, SizeClass where) { give_back(block, where); });
    }

    [[nodiscard]] std::size_t bytes() const noexcept { return kept_.bytes(); }
    [[nodiscard]] std::size_t limit() const noexcept { return kept_.limit(); }
    void set_limit(std::size_t bytes) noexcept { kept_.set_limit(bytes); }

  private:
    [[nodiscard]] static std::size_t first_limit() {
        auto const total = static_cast<std::size_t>(make_cpu_device()->total_memory());
        return std::min<std::size_t>(total / 16, std::size_t{1} << 30U);
    }

    [[nodiscard]] void* take_decommitted(SizeClass wanted) {
        if (!any_decommitted_) {
            return nullptr;
        }
        MutexLock const lock{mutex_};
        auto& blocks = decommitted_[wanted.index];
        if (blocks.empty()) {
            return nullptr;
        }
        void* const block = blocks.back();
        blocks.pop_back();
        return block;
    }

    void give_back(void* block, SizeClass where) noexcept {
        if (::munmap(block, where.size) == 0) {
            return;
        }
        // A hole in a mapping makes two of it, and a process has a limited number of mappings. The pages go anyway.
        ::madvise(block, where.size, MADV_DONTNEED);
        try {
            MutexLock const lock{mutex_};
            decommitted_[where.index].push_back(block);
            any_decommitted_ = true;
        } catch (std::bad_alloc const&) {  // NOLINT(bugprone-empty-catch)
            // Then the address space is lost, which has no other effect.
        }
    }

    detail::SizeClassCache<void*, detail::size_class_count> kept_{first_limit()};
    // Without pages: address space that munmap() could not release.
    Mutex mutex_;
    std::array<std::deque<void*>, detail::size_class_count> decommitted_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::atomic<bool> any_decommitted_{false};  // from then on
};

// Never destroyed: blocks come back while the process ends.
FreeBlocks& free_blocks() {
    alignas(FreeBlocks) static std::array<std::byte, sizeof(FreeBlocks)> storage;
    static FreeBlocks* const blocks = std::construct_at(reinterpret_cast<FreeBlocks*>(storage.data()));
    return *blocks;
}

bool is_mapped(std::size_t bytes) {
    return keeps_blocks && bytes >= mapped_threshold;
}

// Larger blocks than the largest size are mapped page by page.
bool has_class(std::size_t bytes) {
    return bytes <= detail::largest_class;
}

}  // namespace

void* allocate_host(std::size_t bytes) {
    if (!is_mapped(bytes)) {
        return allocate_from_heap(bytes);
    }
    auto& blocks = free_blocks();
    auto const size = has_class(bytes) ? size_class_of(bytes).size : round_up(bytes, page);
    if (has_class(bytes)) {
        if (void* const block = blocks.take(size_class_of(bytes))) {
            return block;
        }
    }
    void* block = size < bytes ? nullptr : map(size);
    if (block == nullptr && blocks.trim(0) > 0) {
        block = map(size);
    }
    if (block == nullptr) {
        throw_out_of_memory(bytes);
    }
    return block;
}

void deallocate_host(void* pointer, std::size_t bytes) noexcept {
    if (!is_mapped(bytes) || pointer == nullptr) {
        std::free(pointer);
    } else if (has_class(bytes)) {
        free_blocks().put(pointer, size_class_of(bytes));
    } else {
        ::munmap(pointer, round_up(bytes, page));
    }
}

std::size_t cached_host_memory() noexcept {
    return keeps_blocks ? free_blocks().bytes() : 0;
}

std::size_t trim_host_memory(std::size_t keep) noexcept {
    return keeps_blocks ? free_blocks().trim(keep) : 0;
}

std::size_t host_memory_cache_limit() noexcept {
    return keeps_blocks ? free_blocks().limit() : 0;
}

void set_host_memory_cache_limit(std::size_t bytes) noexcept {
    if (keeps_blocks) {
        free_blocks().set_limit(bytes);
        free_blocks().trim(bytes);
    }
}

HostMemoryUse measure_host_memory(Device const& device) {
    HostMemoryUse use;
    use.resident = device.used_memory();
    use.kept = static_cast<std::int64_t>(cached_host_memory());
    use.kept_shared = static_cast<std::int64_t>(SharedMemory::cached());
    return use;
}

void trim_host_memory_above(std::int64_t high, HostMemoryUse const& use) noexcept {
    auto over = use.resident - high;
    // Shared memory last: it is the more expensive to get again.
    if (over > 0 && use.kept > 0) {
        over -= static_cast<std::int64_t>(
            trim_host_memory(static_cast<std::size_t>(std::max<std::int64_t>(use.kept - over, 0))));
    }
    if (over > 0 && use.kept_shared > 0) {
        SharedMemory::trim(static_cast<std::size_t>(std::max<std::int64_t>(use.kept_shared - over, 0)));
    }
}

}  // namespace rapidsmpf::device
