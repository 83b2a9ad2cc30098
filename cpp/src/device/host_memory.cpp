#include <rapidsmpf/device/detail/host_memory.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
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

namespace rapidsmpf::device {

namespace {

#if defined(RAPIDSMPF_ADDRESS_SANITIZER)
constexpr bool keeps_blocks = false;
#else
constexpr bool keeps_blocks = true;
#endif

constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = 2UL << 20U;
// From here on blocks have sizes of their own and come straight from the system.
constexpr std::size_t mapped_threshold = 64UL << 10U;
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

// The sizes that blocks come in: 2^k times 8/8, 9/8, ... 15/8.
struct SizeClass {
    std::size_t index;
    std::size_t size;
};

constexpr int smallest = std::countr_zero(mapped_threshold);
constexpr int largest = 30;
constexpr std::size_t class_count = static_cast<std::size_t>(largest - smallest) * 8 + 1;

SizeClass class_of(std::size_t bytes) {
    auto const power = static_cast<std::size_t>(std::bit_width(bytes)) - 1;
    auto const step = std::size_t{1} << (power - 3);
    auto const steps = (bytes - (std::size_t{1} << power) + step - 1) / step;
    return {
        (power - static_cast<std::size_t>(smallest)) * 8 + steps, (std::size_t{1} << power) + steps * step};
}

std::size_t size_of_class(std::size_t index) {
    auto const base = mapped_threshold << (index / 8);
    return base + index % 8 * (base / 8);
}

// The free blocks of this process, by size. Each size has a lock of its own.
class FreeBlocks {
  public:
    FreeBlocks() {
        auto const total = static_cast<std::size_t>(make_cpu_device()->total_memory());
        limit_ = std::min<std::size_t>(total / 16, std::size_t{1} << 30U);
    }

    [[nodiscard]] void* take(SizeClass wanted) {
        auto& entry = classes_[wanted.index];
        MutexLock lock{entry.mutex};
        if (!entry.kept.empty()) {
            // The last that came back is the one most likely to be in a cache.
            void* const block = entry.kept.back().block;
            entry.kept.pop_back();
            entry.note_oldest();
            bytes_ -= wanted.size;
            return block;
        }
        if (!entry.decommitted.empty()) {
            void* const block = entry.decommitted.back();
            entry.decommitted.pop_back();
            return block;
        }
        return nullptr;
    }

    void put(void* block, SizeClass where) noexcept {
        // One that takes most of the bound would drive out all others.
        if (where.size > limit_ / 2) {
            give_back(block, where.index);
            return;
        }
        try {
            auto& entry = classes_[where.index];
            MutexLock lock{entry.mutex};
            entry.kept.push_back({block, ++puts_});
            entry.note_oldest();
            bytes_ += where.size;
        } catch (std::bad_alloc const&) {
            give_back(block, where.index);
            return;
        }
        trim(limit_);
    }

    // Gives back what has been kept the longest without anybody asking for it, whatever its size.
    std::size_t trim(std::size_t keep) noexcept {
        std::size_t freed = 0;
        while (bytes_ > keep) {
            auto const oldest = std::min_element(
                classes_.begin(), classes_.end(),
                [](Class const& a, Class const& b) { return a.oldest.load() < b.oldest.load(); });
            auto const index = static_cast<std::size_t>(oldest - classes_.begin());
            void* block = nullptr;
            {
                MutexLock lock{oldest->mutex};
                if (!oldest->kept.empty()) {
                    block = oldest->kept.front().block;
                    oldest->kept.pop_front();
                    oldest->note_oldest();
                    bytes_ -= size_of_class(index);
                }
            }
            if (block != nullptr) {
                freed += size_of_class(index);
                give_back(block, index);
            } else if (oldest->oldest.load() == none) {
                break;  // others have taken what there was
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
        void* block;
        std::uint64_t since;  // in numbers of blocks that came back
    };
    struct Class {
        Mutex mutex;
        std::deque<Kept> kept RAPIDSMPF_GUARDED_BY(mutex);
        // Without pages: address space that could not be given back.
        std::deque<void*> decommitted RAPIDSMPF_GUARDED_BY(mutex);
        // Since when the first of `kept` is there; to be read without the lock.
        std::atomic<std::uint64_t> oldest{none};

        void note_oldest() noexcept RAPIDSMPF_REQUIRES(mutex) {
            oldest = kept.empty() ? none : kept.front().since;
        }
    };

    void give_back(void* block, std::size_t index) noexcept {
        auto const size = size_of_class(index);
        if (::munmap(block, size) == 0) {
            return;
        }
        // To cut a hole takes one mapping more, and a process has a limited number of them. The pages go anyway.
        ::madvise(block, size, MADV_DONTNEED);
        try {
            MutexLock lock{classes_[index].mutex};
            classes_[index].decommitted.push_back(block);
        } catch (std::bad_alloc const&) {  // NOLINT(bugprone-empty-catch)
            // Then the address space is lost, which nobody will notice.
        }
    }

    std::array<Class, class_count> classes_;
    std::atomic<std::size_t> bytes_{0};
    std::atomic<std::size_t> limit_{0};
    std::atomic<std::uint64_t> puts_{0};
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
    return bytes <= std::size_t{1} << static_cast<unsigned>(largest);
}

}  // namespace

void* allocate_host(std::size_t bytes) {
    if (!is_mapped(bytes)) {
        return allocate_from_heap(bytes);
    }
    auto& blocks = free_blocks();
    auto const size = has_class(bytes) ? class_of(bytes).size : round_up(bytes, page);
    if (has_class(bytes)) {
        if (void* const block = blocks.take(class_of(bytes))) {
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
        free_blocks().put(pointer, class_of(bytes));
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
