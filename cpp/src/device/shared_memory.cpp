#include <rapidsmpf/device/detail/shared_memory.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rapidsmpf/device/detail/shared_view.hpp>
#include <rapidsmpf/device/device.hpp>

#include "device/shared_pool.hpp"

namespace rapidsmpf::device {

namespace {

constexpr std::size_t huge_page = 2UL << 20U;
constexpr std::array<char, 8> magic{'r', 'i', 'v', 'e', 'r', 'r', 'u', 'n'};

std::string system_text(int error) {
    return std::system_category().message(error);
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
    SharedMemory::pool()->put_flag(offset_);
}

void SharedFlag::clear() noexcept {
    detail::word_at(address_).store(0, std::memory_order_release);
}

bool uses_shared_memory() noexcept {
    return any_shared_memory();
}

}  // namespace rapidsmpf::device
