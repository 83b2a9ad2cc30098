#include "device/shared_pool.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/detail/sanitizer.hpp>
#include <rapidsmpf/device/detail/host_memory.hpp>

#if defined(RAPIDSMPF_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace rapidsmpf::device {

namespace {

// The bytes that free blocks are not to be touched under AddressSanitizer.
void set_accessible(
    [[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t size,
    [[maybe_unused]] bool accessible) noexcept {
#if defined(RAPIDSMPF_ADDRESS_SANITIZER)
    if (accessible) {
        ASAN_UNPOISON_MEMORY_REGION(data, size);
    } else {
        ASAN_POISON_MEMORY_REGION(data, size);
    }
#endif
}

}  // namespace

detail::SizeClass SharedMemory::Pool::class_of(std::size_t bytes) noexcept {
    if (bytes <= detail::smallest_class) {
        auto const pages = std::max<std::size_t>((bytes + page - 1) / page, 1);
        return {pages - 1, pages * page};
    }
    if (bytes > detail::largest_class) {
        return {class_count, round_up(bytes, page)};
    }
    auto const larger = detail::size_class_of(bytes);
    return {page_classes - 1 + larger.index, larger.size};
}

SharedMemory::Pool::Pool(SharedMemoryTicket ticket, std::byte* base)
    : ticket_{std::move(ticket)}, base_{base}, kept_{host_memory_cache_limit()} {
    if (kept_.limit() == 0) {
        kept_.set_limit(huge_page * 8);  // where other host memory is not kept, so that keeping is tested
    }
    // What has never been handed out stays accessible: to forbid all of it would fill AddressSanitizer's own memory with an
    // eighth of its size.
    MutexLock const lock{mutex_};
    extents_.insert({first_offset, ticket_.size - first_offset});
}

std::shared_ptr<SharedBlock> SharedMemory::Pool::allocate(std::size_t bytes) {
    if (!home_.is_here() || bytes > ticket_.size) {
        return nullptr;
    }
    quarantine_.settle();
    auto const wanted = class_of(bytes);
    auto offset = take(wanted);
    if (!offset && trim(0) > 0) {
        offset = take(wanted);
    }
    if (!offset) {
        return nullptr;
    }
    set_accessible(base_ + *offset, wanted.size, true);
    return std::make_shared<SharedBlock>(base_ + *offset, *offset, wanted.size);
}

std::optional<std::uint64_t> SharedMemory::Pool::take(detail::SizeClass wanted) {
    std::optional<std::uint64_t> offset;
    if (wanted.index < class_count) {
        offset = kept_.take(wanted);
    }
    if (!offset) {
        MutexLock const lock{mutex_};
        if (auto const found = extents_.take(wanted.size)) {
            offset = found->offset;
        }
    }
    if (offset) {
        used_ += wanted.size;
    }
    return offset;
}

void SharedMemory::Pool::put(SharedBlock const& block) noexcept {
    if (!home_.is_here()) {
        return;
    }
    set_accessible(block.data(), block.size(), false);
    used_ -= block.size();
    auto const where = class_of(block.size());
    if (where.index == class_count || !kept_.put(block.offset(), where)) {
        give_back(block.offset(), block.size());
        return;
    }
    trim(kept_.limit());
}

std::size_t SharedMemory::Pool::trim(std::size_t keep) noexcept {
    if (!home_.is_here()) {
        return 0;
    }
    return kept_.trim(
        keep, [this](std::uint64_t offset, detail::SizeClass where) { give_back(offset, where.size); });
}

void SharedMemory::Pool::set_limit(std::size_t bytes) noexcept {
    kept_.set_limit(bytes);
    trim(bytes);
}

void SharedMemory::Pool::punch(std::uint64_t begin, std::uint64_t end) const noexcept {
    if (begin < end) {
        ::fallocate(
            ticket_.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
            static_cast<off_t>(end - begin));
    }
}

void SharedMemory::Pool::give_back(std::uint64_t offset, std::size_t size) noexcept {
    punch(offset, offset + size);
    MutexLock const lock{mutex_};
    try {
        auto const joined = extents_.insert({offset, size});
        // A huge page goes only as a whole.
        auto const first = std::max(joined.offset, offset / huge_page * huge_page);
        auto const last = std::min(joined.end(), round_up(offset + size, huge_page));
        if (first < offset || last > offset + size) {
            punch(first, last);
        }
    } catch (std::bad_alloc const&) {  // NOLINT(bugprone-empty-catch)
        // Then the address space is lost, which has no other effect.
    }
}

std::unique_ptr<SharedFlag> SharedMemory::Pool::make_flag() {
    std::uint64_t value = 0;
    if (::getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value))) {
        throw std::runtime_error{
            "no random bytes for a word of shared memory: " + std::system_category().message(errno)};
    }
    MutexLock const lock{mutex_};
    auto offset = next_flag_;
    if (!free_flags_.empty()) {
        offset = free_flags_.back();
        free_flags_.pop_back();
    } else if (next_flag_ < first_offset) {
        next_flag_ += sizeof(std::uint64_t);
    } else {
        throw std::runtime_error{"too many communicators of this process use peer memory"};
    }
    return std::make_unique<SharedFlag>(base_ + offset, offset, value | 1U);
}

void SharedMemory::Pool::put_flag(std::uint64_t offset) noexcept {
    try {
        MutexLock const lock{mutex_};
        free_flags_.push_back(offset);
    } catch (std::bad_alloc const&) {  // NOLINT(bugprone-empty-catch)
        // Then it is not used again.
    }
}

std::size_t SharedMemory::Pool::resident() const noexcept {
    struct stat now{};
    return ::fstat(ticket_.fd, &now) == 0 ? static_cast<std::size_t>(now.st_blocks) * 512 : 0;
}

}  // namespace rapidsmpf::device
