#include "memory/disk/disk_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>

#include "memory/disk/disk_faults.hpp"
#include "memory/disk/file_system.hpp"

namespace rapidsmpf::detail {

namespace {

// What a user can do about an error.
char const* advice(int error_number) {
    switch (error_number) {
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return " Free some space there, or set spill_directory to a folder with more.";
        case EACCES:
        case EPERM:
        case EROFS:
        case ENOTDIR:
        case ENOENT:
            return " Set spill_directory to a folder that this process may write to.";
        case EMFILE:
        case ENFILE:
            return " Raise the limit of open files.";
        default:
            return " Look at the system's log for errors of that disk, or set spill_directory to another "
                   "one.";
    }
}

// Makes a folder and those above it, for this user only. What is wrong with it shows when a file is made in it.
int make_private_directories(std::filesystem::path const& path) {
    if (::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) {
        return 0;
    }
    if (errno != ENOENT || !path.has_parent_path() || path.parent_path() == path) {
        return errno;
    }
    if (int const error = make_private_directories(path.parent_path()); error != 0) {
        return error;
    }
    return ::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST ? 0 : errno;
}

// The parts of `pieces` from `done` on, at most `bytes` of them.
std::size_t remaining_pieces(
    std::span<iovec const> pieces, std::size_t done, std::size_t bytes, std::span<iovec> result) {
    std::size_t count = 0;
    for (auto const& piece : pieces) {
        if (done >= piece.iov_len) {
            done -= piece.iov_len;
            continue;
        }
        if (bytes == 0 || count == result.size()) {
            break;
        }
        auto const length = std::min(piece.iov_len - done, bytes);
        result[count++] = {static_cast<std::byte*>(piece.iov_base) + done, length};
        bytes -= length;
        done = 0;
    }
    return count;
}

}  // namespace

DiskFile::DiskFile(std::filesystem::path directory, std::shared_ptr<DiskFaults> faults)
    : directory_{std::move(directory)}, faults_{std::move(faults)} {}

std::string DiskFile::describe() const {
    return describe_place(directory_);
}

void DiskFile::fail(std::string const& action, int error_number) const {
    throw SpillError{
        action + " " + describe() + ": " + std::strerror(error_number) + "." + advice(error_number),
        error_number};
}

int DiskFile::call_open(std::filesystem::path const& path, int flags) {
    if (faults_) {
        if (int const error = faults_->before(DiskCall::open); error != 0) {
            errno = error;
            return -1;
        }
    }
    return ::open(path.c_str(), flags | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
}

FileDescriptor DiskFile::open_nameless(int flags) {
    return FileDescriptor{call_open(directory_, O_TMPFILE | O_EXCL | flags)};
}

FileDescriptor DiskFile::open_and_unlink(int flags) {
    std::random_device random;
    for (;;) {
        auto const path =
            directory_ / (".rapidsmpf-spill-" + std::to_string(::getpid()) + "-" + std::to_string(random()));
        FileDescriptor file{call_open(path, O_CREAT | O_EXCL | flags)};
        if (file.is_open()) {
            ::unlink(path.c_str());
            return file;
        }
        if (errno != EEXIST) {
            return file;
        }
    }
}

void DiskFile::open() {
    if (is_open_.load(std::memory_order_acquire)) {
        return;
    }
    MutexLock lock{open_mutex_};
    if (is_open_) {
        return;
    }
    if (int const error = make_private_directories(directory_); error != 0) {
        fail("cannot make the spill folder", error);
    }
    FileDescriptor file;
    // Direct before buffered, nameless before unlinked; each combination may be refused by a file system.
    for (int const flags : {O_DIRECT, 0}) {
        file = open_nameless(flags);
        // A kernel or file system without O_TMPFILE says one of these.
        if (!file.is_open()
            && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL)) {
            file = open_and_unlink(flags);
        }
        if (file.is_open() || errno != EINVAL) {
            direct_ = flags != 0;
            break;
        }
    }
    if (!file.is_open()) {
        fail("cannot make a spill file in", errno);
    }
    file_ = std::move(file);
    is_open_.store(true, std::memory_order_release);
}

void DiskFile::allocate(FileRange range) {
    for (;;) {
        int error = faults_ ? faults_->before(DiskCall::allocate) : 0;
        if (error == 0 && ::fallocate(file_.get(), 0, range.offset, range.length) != 0) {
            error = errno;
        }
        if (error == EOPNOTSUPP || error == ENOSYS) {
            // No reservation there: blocks come with the writes, and a full disk shows only then.
            can_punch_ = false;
            struct stat status{};
            error = ::fstat(file_.get(), &status) != 0                                            ? errno
                    : status.st_size >= range.end() || ::ftruncate(file_.get(), range.end()) == 0 ? 0
                                                                                                  : errno;
        }
        if (error == 0) {
            return;
        }
        if (error != EINTR) {
            fail("cannot get " + config::format_bytes(range.length) + " for spilled data in", error);
        }
    }
}

bool DiskFile::punch(FileRange range) noexcept {
    if (!can_punch_) {
        return false;
    }
    while (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range.offset, range.length)
           != 0) {
        if (errno != EINTR) {
            can_punch_ = can_punch_ && errno != EOPNOTSUPP && errno != ENOSYS;
            return false;
        }
    }
    return true;
}

void DiskFile::truncate(std::int64_t size) noexcept {
    // If it fails the file stays long, which costs space and nothing else.
    [[maybe_unused]] int const result = ::ftruncate(file_.get(), size);
}

void DiskFile::write(std::int64_t offset, std::span<iovec const> pieces) {
    transfer(Direction::write, offset, pieces);
}

void DiskFile::read(std::int64_t offset, std::span<iovec const> pieces) {
    transfer(Direction::read, offset, pieces);
    if (faults_ && !pieces.empty()) {
        faults_->after_read({static_cast<std::byte*>(pieces.front().iov_base), pieces.front().iov_len});
    }
}

void DiskFile::leave_direct_io() {
    direct_ = false;
    auto const flags = ::fcntl(file_.get(), F_GETFL);
    ::fcntl(file_.get(), F_SETFL, flags & ~O_DIRECT);
}

void DiskFile::transfer(Direction direction, std::int64_t offset, std::span<iovec const> pieces) {
    auto const writing = direction == Direction::write;
    std::size_t total = 0;
    for (auto const& piece : pieces) {
        total += piece.iov_len;
    }
    auto const action = [&] {
        return "cannot " + std::string{writing ? "write " : "read "}
               + config::format_bytes(static_cast<std::int64_t>(total))
               + (writing ? " of spilled data to" : " of spilled data from");
    };
    for (std::size_t done = 0; done < total;) {
        std::size_t length = total - done;
        int error = faults_ ? faults_->before(writing ? DiskCall::write : DiskCall::read, length) : 0;
        std::array<iovec, 4> left{};
        auto const count = static_cast<int>(remaining_pieces(pieces, done, length, left));
        auto const place = offset + static_cast<std::int64_t>(done);
        ssize_t moved = 0;
        auto const was_direct = direct_.load(std::memory_order_relaxed);
        if (error == 0) {
            moved = writing ? ::pwritev(file_.get(), left.data(), count, place)
                            : ::preadv(file_.get(), left.data(), count, place);
            error = moved < 0 ? errno : 0;
        }
        if (error == EINTR) {
            continue;
        }
        if (error == EINVAL && was_direct) {
            // The file system took the flag but not the transfer.
            leave_direct_io();
            continue;
        }
        if (error != 0) {
            fail(action(), error);
        }
        // A transfer that stops short goes on at the last whole page; what stands in its way shows then.
        auto const whole = done + static_cast<std::size_t>(moved);
        auto const next = whole == total ? whole
                                         : whole / static_cast<std::size_t>(disk_page)
                                               * static_cast<std::size_t>(disk_page);
        if (next <= done) {
            throw SpillError{
                action() + " " + describe() + ": the spill file " + (writing ? "takes" : "has")
                    + " no more bytes at " + std::to_string(place) + ". Did something cut it short?",
                EIO};
        }
        if (writing && !was_direct) {
            // Begin to write it out, so that dirty pages do not pile up in memory until the kernel stops us.
            ::sync_file_range(file_.get(), place, static_cast<off64_t>(next - done), SYNC_FILE_RANGE_WRITE);
        }
        done = next;
    }
    if (!writing && !direct_.load(std::memory_order_relaxed)) {
        // Mostly read once: the page cache need not keep it.
        ::posix_fadvise(file_.get(), offset, static_cast<off_t>(total), POSIX_FADV_DONTNEED);
    }
}

}  // namespace rapidsmpf::detail
