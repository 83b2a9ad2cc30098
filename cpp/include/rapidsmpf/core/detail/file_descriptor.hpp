// File descriptors with an owner, and event descriptors to wake a thread that polls.
#pragma once

#include <utility>

namespace rapidsmpf {

// Owns a file descriptor and closes it. Empty when moved from.
class FileDescriptor {
  public:
    FileDescriptor() = default;
    explicit FileDescriptor(int fd) noexcept : fd_{fd} {}
    ~FileDescriptor() { reset(); }
    FileDescriptor(FileDescriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
    void reset() noexcept;
    // It is the caller's to close from now on.
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

  private:
    int fd_{-1};
};

// A descriptor that one thread polls and any other makes readable.
class EventDescriptor {
  public:
    // Throws SystemError.
    EventDescriptor();
    [[nodiscard]] int get() const noexcept { return fd_.get(); }
    void signal() const noexcept;
    // Makes it unreadable again.
    void drain() const noexcept;

  private:
    FileDescriptor fd_;
};

}  // namespace rapidsmpf
