#include <rapidsmpf/device/detail/shared_view.hpp>

#include <cerrno>
#include <map>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::device {

namespace {

using Secret = std::array<std::uint8_t, 16>;

// The views of this process, by their owners' secrets.
struct Views {
    Mutex mutex;
    std::map<Secret, std::weak_ptr<SharedView>> open RAPIDSMPF_GUARDED_BY(mutex);
};

Views& views() {
    static Views views;
    return views;
}

int open_process(std::int64_t pid) {
#if defined(SYS_pidfd_open)
    return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U));
#else
    errno = ENOSYS;
    return -1;
#endif
}

std::shared_ptr<SharedView> map_view(SharedMemoryTicket const& ticket, std::string& reason) {
    auto const fail = [&](std::string const& what, int error) {
        reason = what + ": " + std::system_category().message(error);
        return nullptr;
    };
    // Before its memory is opened: when that turns out to be the right one, so is the process.
    FileDescriptor process{open_process(ticket.pid)};
    if (!process.is_open()) {
        return fail("process " + std::to_string(ticket.pid) + " cannot be watched (pidfd_open)", errno);
    }
    auto const path = "/proc/" + std::to_string(ticket.pid) + "/fd/" + std::to_string(ticket.fd);
    struct stat found{};
    if (::stat(path.c_str(), &found) != 0) {
        return fail("memory of process " + std::to_string(ticket.pid) + " cannot be opened", errno);
    }
    if (!S_ISREG(found.st_mode)) {
        // To open a device may be to do something.
        reason = path + " is not the memory that was offered";
        return nullptr;
    }
    FileDescriptor const file{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
    if (!file.is_open()) {
        return fail("memory of process " + std::to_string(ticket.pid) + " cannot be opened", errno);
    }
    if (::fstat(file.get(), &found) != 0) {
        return fail("fstat", errno);
    }
    // A process that could make it smaller could end this one by SIGBUS.
    int const seals = ::fcntl(file.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ticket.size < SharedMemory::first_offset
        || static_cast<std::uint64_t>(found.st_size) != ticket.size) {
        reason = path + " is not the memory that was offered";
        return nullptr;
    }
    void* const mapped =
        ::mmap(nullptr, ticket.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
    if (mapped == MAP_FAILED) {
        return fail("mmap of memory of process " + std::to_string(ticket.pid), errno);
    }
    // Children must not write to it, and it is not this process's to dump.
    ::madvise(mapped, ticket.size, MADV_DONTFORK);
    ::madvise(mapped, ticket.size, MADV_DONTDUMP);
    ::madvise(mapped, ticket.size, MADV_HUGEPAGE);
    auto* const base = static_cast<std::byte*>(mapped);
    auto view = std::make_shared<SharedView>(base, ticket.size, process.release());
    if (!detail::has_secret(base, ticket)) {
        reason = path + " is not the memory that was offered";
        return nullptr;
    }
    detail::note_shared_memory_is_used();
    return view;
}

}  // namespace

std::shared_ptr<SharedView> SharedView::open(SharedMemoryTicket const& ticket, std::string& reason) {
    std::string none;
    auto* const own = SharedMemory::current(none);
    if (own == nullptr) {
        reason = "this process has no shared memory: " + none;
        return nullptr;
    }
    if (own->ticket().host != ticket.host) {
        reason = "it is on another host, or in another pid namespace";
        return nullptr;
    }
    auto& all = views();
    MutexLock const lock{all.mutex};
    auto& entry = all.open[ticket.secret];
    if (auto view = entry.lock()) {
        return view;
    }
    auto const view = own->ticket().secret == ticket.secret
                          ? std::make_shared<SharedView>(own->base(), own->ticket().size, -1)
                          : map_view(ticket, reason);
    entry = view;
    std::erase_if(all.open, [](auto const& item) { return item.second.expired(); });
    return view;
}

SharedView::~SharedView() {
    if (process_ >= 0) {
        ::munmap(base_, size_);
        ::close(process_);
    }
}

bool SharedView::owner_is_alive() const noexcept {
    if (process_ < 0) {
        return true;
    }
    pollfd end{process_, POLLIN, 0};
    return ::poll(&end, 1, 0) == 0;
}

}  // namespace rapidsmpf::device
