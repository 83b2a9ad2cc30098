#include <rapidsmpf/device/detail/shared_memory.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/detail/free_extents.hpp>
#include <rapidsmpf/core/detail/sanitizer.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/device/detail/host_memory.hpp>
#include <rapidsmpf/device/detail/shared_view.hpp>
#include <rapidsmpf/device/device.hpp>

#include "device/quarantine.hpp"

#if defined(RAPIDSMPF_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace rapidsmpf::device {

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = 2UL << 20U;
constexpr std::array<char, 8> magic{'r', 'i', 'v', 'e', 'r', 'r', 'u', 'n'};

// The sizes that blocks come in: pages up to 64 KiB, from there on 2^k times 8/8, 9/8, ... 15/8, up to 1 GiB. Larger
// blocks are not kept.
constexpr int smallest_power = 16;
constexpr int largest_power = 30;
constexpr std::size_t small_classes = (std::size_t{1} << smallest_power) / page;
constexpr std::size_t class_count =
    small_classes + static_cast<std::size_t>(largest_power - smallest_power) * 8;

struct SizeClass {
    std::size_t index;  // class_count: none
    std::size_t size;
};

SizeClass class_of(std::size_t bytes) {
    if (bytes <= small_classes * page) {
        auto const pages = std::max<std::size_t>((bytes + page - 1) / page, 1);
        return {pages - 1, pages * page};
    }
    if (bytes > std::size_t{1} << static_cast<unsigned>(largest_power)) {
        return {class_count, round_up(bytes, page)};
    }
    auto const power = static_cast<std::size_t>(std::bit_width(bytes)) - 1;
    auto const step = std::size_t{1} << (power - 3);
    auto const steps = (bytes - (std::size_t{1} << power) + step - 1) / step;
    auto const first = small_classes - 1 + (power - static_cast<std::size_t>(smallest_power)) * 8;
    return {first + steps, (std::size_t{1} << power) + steps * step};
}

std::string system_text(int error) {
    return std::system_category().message(error);
}

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

std::atomic<bool>& any_shared_memory() {
    static std::atomic<bool> any{false};
    return any;
}

std::optional<std::string> host_identity() {
    std::ifstream file{"/proc/sys/kernel/random/boot_id"};
    std::string boot;
    struct stat space{};
    if (!std::getline(file, boot) || ::stat("/proc/self/ns/pid", &space) != 0) {
        return std::nullopt;
    }
    return boot + "/" + std::to_string(space.st_ino);
}

}  // namespace

namespace {

// How many forks lie between the beginning of this program and this process. A child has its parent's memory mapped and must
// not hand it out. (To ask for the pid is a system call.)
std::atomic<int> forks{0};

bool are_forks_counted() {
    static bool const counted = ::pthread_atfork(nullptr, nullptr, [] { ++forks; }) == 0;
    return counted;
}

}  // namespace

class SharedMemory::Pool {
  public:
    // Takes the file over. `base` is where all of it is mapped.
    Pool(SharedMemoryTicket ticket, std::byte* base)
        : ticket_{std::move(ticket)}, base_{base}, process_{forks}, limit_{host_memory_cache_limit()} {
        if (limit_ == 0) {
            limit_ = huge_page * 8;  // where other host memory is not kept, so that keeping is tested
        }
        // What nobody has had yet stays accessible: to forbid all of it would fill AddressSanitizer's own memory with an
        // eighth of its size.
        extents_.insert({first_offset, ticket_.size - first_offset});
    }

    [[nodiscard]] SharedMemoryTicket const& ticket() const noexcept { return ticket_; }
    [[nodiscard]] std::byte* base() const noexcept { return base_; }

    [[nodiscard]] std::shared_ptr<SharedBlock> allocate(std::size_t bytes) {
        if (forks != process_ || bytes > ticket_.size) {
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

    void put(SharedBlock const& block) noexcept {
        if (forks != process_) {
            return;
        }
        set_accessible(block.data(), block.size(), false);
        used_ -= block.size();
        auto const where = class_of(block.size());
        // One that takes most of the bound would drive out all others.
        if (where.index == class_count || block.size() > limit_ / 2) {
            give_back(block.offset(), block.size());
            return;
        }
        try {
            MutexLock const lock{mutex_};
            kept_[where.index].push_back({block.offset(), block.size(), ++puts_});
            kept_bytes_ += block.size();
        } catch (std::bad_alloc const&) {
            give_back(block.offset(), block.size());
            return;
        }
        trim(limit_);
    }

    // The block that has been kept longest goes first, so that those of sizes that nobody asks for any more do not drive
    // out those that are in use.
    std::size_t trim(std::size_t keep) noexcept {
        std::size_t freed = 0;
        if (forks != process_) {
            return freed;
        }
        while (kept_bytes_ > keep) {
            Kept block;
            {
                MutexLock const lock{mutex_};
                auto* const entry = oldest();
                if (entry == nullptr) {
                    break;
                }
                block = entry->front();
                entry->pop_front();
                kept_bytes_ -= block.size;
            }
            freed += block.size;
            give_back(block.offset, block.size);
        }
        return freed;
    }

    [[nodiscard]] detail::Quarantine<SharedBlock>& quarantine() noexcept { return quarantine_; }

    [[nodiscard]] std::unique_ptr<SharedFlag> make_flag() {
        std::uint64_t value = 0;
        if (::getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value))) {
            throw std::runtime_error{"no random bytes for a word of shared memory: " + system_text(errno)};
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

    void put_word(std::uint64_t offset) noexcept {
        try {
            MutexLock const lock{mutex_};
            free_flags_.push_back(offset);
        } catch (std::bad_alloc const&) {  // NOLINT(bugprone-empty-catch)
            // Then it is not used again.
        }
    }

    [[nodiscard]] std::size_t resident() const noexcept {
        struct stat now{};
        return ::fstat(ticket_.fd, &now) == 0 ? static_cast<std::size_t>(now.st_blocks) * 512 : 0;
    }
    [[nodiscard]] std::size_t used() const noexcept { return used_; }
    [[nodiscard]] std::size_t kept() const noexcept { return kept_bytes_; }
    [[nodiscard]] std::size_t limit() const noexcept { return limit_; }
    void set_limit(std::size_t bytes) noexcept {
        limit_ = bytes;
        trim(bytes);
    }

  private:
    struct Kept {
        std::uint64_t offset{0};
        std::size_t size{0};
        std::uint64_t put{0};  // which one it was of all that came back
    };

    [[nodiscard]] std::optional<std::uint64_t> take(SizeClass wanted) {
        MutexLock const lock{mutex_};
        std::optional<std::uint64_t> offset;
        if (wanted.index < class_count && !kept_[wanted.index].empty()) {
            // The last that came back is the one most likely to be in a cache.
            offset = kept_[wanted.index].back().offset;
            kept_[wanted.index].pop_back();
            kept_bytes_ -= wanted.size;
        } else {
            if (auto const found = extents_.take(wanted.size)) {
                offset = found->offset;
            }
        }
        if (offset) {
            used_ += wanted.size;
        }
        return offset;
    }

    // The blocks of the size of which one has been kept longest; null when there are none.
    [[nodiscard]] std::deque<Kept>* oldest() RAPIDSMPF_REQUIRES(mutex_) {
        std::deque<Kept>* found = nullptr;
        for (auto& entry : kept_) {
            if (!entry.empty() && (found == nullptr || entry.front().put < found->front().put)) {
                found = &entry;
            }
        }
        return found;
    }

    void punch(std::uint64_t begin, std::uint64_t end) const noexcept {
        if (begin < end) {
            ::fallocate(
                ticket_.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(end - begin));
        }
    }

    void give_back(std::uint64_t offset, std::size_t size) noexcept {
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
            // Then the address space is lost, which nobody will notice.
        }
    }

    SharedMemoryTicket const ticket_;
    std::byte* const base_;
    int const process_;
    std::atomic<std::size_t> limit_;
    std::atomic<std::size_t> kept_bytes_{0};
    std::atomic<std::size_t> used_{0};

    Mutex mutex_;
    FreeExtents<std::uint64_t> extents_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::array<std::deque<Kept>, class_count> kept_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t puts_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::uint64_t next_flag_ RAPIDSMPF_GUARDED_BY(mutex_){first_flag};
    std::vector<std::uint64_t> free_flags_ RAPIDSMPF_GUARDED_BY(mutex_);

    detail::Quarantine<SharedBlock> quarantine_;
};

namespace {

// A limit of a resource of this process, as far as it stands against `wanted` bytes.
std::optional<std::string> obstacle(decltype(RLIMIT_AS) resource, char const* name, std::uint64_t wanted) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < wanted) {
        return std::string{"the limit "} + name + " of this process is " + std::to_string(limit.rlim_cur)
               + " bytes";
    }
    return std::nullopt;
}

struct Made {
    SharedMemoryTicket ticket;
    std::byte* base{nullptr};
};

std::optional<Made> make_memory(std::string& reason) {
    auto const fail = [&](std::string const& what) -> std::optional<Made> {
        reason = what + ": " + system_text(errno);
        return std::nullopt;
    };
    Made made;
    auto host = host_identity();
    if (!host) {
        reason = "/proc does not tell which host and pid namespace this is";
        return std::nullopt;
    }
    if (!are_forks_counted()) {
        reason = "there is no memory for a handler of forks";
        return std::nullopt;
    }
    made.ticket.host = std::move(*host);
    made.ticket.pid = ::getpid();
    // Address space, not memory. Twice what the process may use, because blocks of different sizes leave gaps.
    auto const total = static_cast<std::uint64_t>(make_cpu_device()->total_memory());
    made.ticket.size = std::max<std::uint64_t>(total * 2 / huge_page * huge_page, std::uint64_t{1} << 30U);
    for (auto const& [resource, name] : {std::pair{RLIMIT_FSIZE, "RLIMIT_FSIZE"}, {RLIMIT_AS, "RLIMIT_AS"}}) {
        // To make a file larger than the limit would be a signal that ends the process.
        if (auto const found = obstacle(resource, name, made.ticket.size)) {
            reason = *found;
            return std::nullopt;
        }
    }
    if (::getrandom(made.ticket.secret.data(), made.ticket.secret.size(), 0)
        != static_cast<ssize_t>(made.ticket.secret.size())) {
        return fail("no random bytes");
    }
    int const fd = ::memfd_create("riverrun", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return fail("memfd_create");
    }
    made.ticket.fd = fd;
    auto const give_up = [&](char const* what) {
        auto failed = fail(what);
        ::close(fd);
        return failed;
    };
    if (::ftruncate(fd, static_cast<off_t>(made.ticket.size)) != 0) {
        return give_up("ftruncate of a memfd");
    }
    if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return give_up("sealing a memfd");
    }
    void* const mapped =
        ::mmap(nullptr, made.ticket.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (mapped == MAP_FAILED) {
        return give_up("mmap of a memfd");
    }
    made.base = static_cast<std::byte*>(mapped);
    // A wish, not a need: the first touch of a huge page costs a fraction of that of 512 pages.
    ::madvise(
        made.base + SharedMemory::first_offset, made.ticket.size - SharedMemory::first_offset, MADV_HUGEPAGE);
    detail::write_secret(made.base, made.ticket);
    return made;
}

}  // namespace

namespace detail {

void write_secret(std::byte* first_page, SharedMemoryTicket const& ticket) noexcept {
    std::memcpy(first_page, magic.data(), magic.size());
    std::memcpy(first_page + magic.size(), ticket.secret.data(), ticket.secret.size());
}

bool has_secret(std::byte const* first_page, SharedMemoryTicket const& ticket) noexcept {
    return std::memcmp(first_page, magic.data(), magic.size()) == 0
           && std::memcmp(first_page + magic.size(), ticket.secret.data(), ticket.secret.size()) == 0;
}

void note_shared_memory_is_used() noexcept {
    any_shared_memory() = true;
}

}  // namespace detail

std::atomic<SharedMemory*> SharedMemory::made_{nullptr};

SharedMemory::SharedMemory(std::unique_ptr<Pool> pool) : pool_{std::move(pool)} {}
SharedMemory::~SharedMemory() = default;

std::unique_ptr<SharedMemory::Pool> SharedMemory::make_pool(std::string& reason) {
    auto made = make_memory(reason);
    return made ? std::make_unique<Pool>(std::move(made->ticket), made->base) : nullptr;
}

SharedMemory* SharedMemory::current(std::string& reason) {
    // Neither is ever destroyed: blocks come back while the process ends.
    alignas(SharedMemory) static std::array<std::byte, sizeof(SharedMemory)> place;
    alignas(std::string) static std::array<std::byte, sizeof(std::string)> place_of_reason;
    static std::string const* const why = [] {
        auto* const text = std::construct_at(reinterpret_cast<std::string*>(place_of_reason.data()));
        if (auto pool = make_pool(*text)) {
            made_ = ::new (place.data()) SharedMemory{std::move(pool)};
            detail::note_shared_memory_is_used();
        }
        return text;
    }();
    reason = *why;
    return made_;
}

SharedMemory::Pool* SharedMemory::pool() noexcept {
    auto* const memory = made_.load();
    return memory == nullptr ? nullptr : memory->pool_.get();
}

SharedMemoryTicket const& SharedMemory::ticket() const noexcept {
    return pool_->ticket();
}
std::byte* SharedMemory::base() const noexcept {
    return pool_->base();
}
std::shared_ptr<SharedBlock> SharedMemory::allocate(std::size_t bytes) {
    return pool_->allocate(bytes);
}
std::unique_ptr<SharedFlag> SharedMemory::make_flag() {
    return pool_->make_flag();
}
void SharedMemory::quarantine(std::shared_ptr<SharedBlock> block, std::function<bool()> is_safe) {
    pool_->quarantine().put(std::move(block), std::move(is_safe));
}

std::size_t SharedMemory::used() noexcept {
    auto const* const memory = pool();
    return memory == nullptr ? 0 : memory->used();
}
std::size_t SharedMemory::quarantined_for_testing() {
    auto* const memory = pool();
    return memory == nullptr ? 0 : memory->quarantine().bytes();
}
std::size_t SharedMemory::resident() noexcept {
    auto const* const memory = pool();
    return memory == nullptr ? 0 : memory->resident();
}
std::size_t SharedMemory::cached() noexcept {
    auto const* const memory = pool();
    return memory == nullptr ? 0 : memory->kept();
}
std::size_t SharedMemory::trim(std::size_t keep) noexcept {
    auto* const memory = pool();
    return memory == nullptr ? 0 : memory->trim(keep);
}
std::size_t SharedMemory::cache_limit_for_testing() noexcept {
    auto const* const memory = pool();
    return memory == nullptr ? 0 : memory->limit();
}
void SharedMemory::set_cache_limit_for_testing(std::size_t bytes) noexcept {
    if (auto* const memory = pool()) {
        memory->set_limit(bytes);
    }
}

SharedBlock::~SharedBlock() {
    SharedMemory::pool()->put(*this);
}

SharedFlag::SharedFlag(std::byte* address, std::uint64_t offset, std::uint64_t value) noexcept
    : address_{address}, offset_{offset}, value_{value} {
    detail::word_at(address_).store(value_, std::memory_order_release);
}

SharedFlag::~SharedFlag() {
    clear();
    SharedMemory::pool()->put_word(offset_);
}

void SharedFlag::clear() noexcept {
    detail::word_at(address_).store(0, std::memory_order_release);
}

bool uses_shared_memory() noexcept {
    return any_shared_memory();
}

}  // namespace rapidsmpf::device
