#include <rapidsmpf/core/detail/file_descriptor.hpp>

#include <cerrno>
#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

void FileDescriptor::reset() noexcept {
    if (fd_ >= 0) {
        ::close(fd_);
        fd_ = -1;
    }
}

EventDescriptor::EventDescriptor() : fd_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
    if (!fd_.is_open()) {
        throw SystemError{"cannot make an event descriptor", errno};
    }
}

void EventDescriptor::signal() const noexcept {
    std::uint64_t const one = 1;
    // Fails only when the counter is full, and then the descriptor is readable already.
    [[maybe_unused]] auto const written = ::write(fd_.get(), &one, sizeof(one));
}

void EventDescriptor::drain() const noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] auto const got = ::read(fd_.get(), &count, sizeof(count));
}

}  // namespace rapidsmpf
