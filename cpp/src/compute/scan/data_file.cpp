#include "compute/scan/data_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::compute {

namespace {

FileVersion version_of(int descriptor, std::string const& path) {
    struct stat status{};
    if (::fstat(descriptor, &status) != 0) {
        throw SystemError{"cannot read the size of " + path, errno};
    }
    if (!S_ISREG(status.st_mode)) {
        throw std::runtime_error{path + " is no regular file"};
    }
    return FileVersion{
        .device = status.st_dev,
        .inode = status.st_ino,
        .size = static_cast<std::uint64_t>(status.st_size),
        .modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace

DataFile::DataFile(std::string path)
    : path_{std::move(path)}, descriptor_{::open(path_.c_str(), O_RDONLY | O_CLOEXEC)} {
    if (!descriptor_.is_open()) {
        throw SystemError{"cannot open " + path_, errno};
    }
    version_ = version_of(descriptor_.get(), path_);
}

void DataFile::read(void* into, std::size_t bytes, std::uint64_t offset) const {
    auto* to = static_cast<char*>(into);
    while (bytes > 0) {
        auto const n = ::pread(descriptor_.get(), to, bytes, static_cast<off_t>(offset));
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            throw SystemError{"cannot read " + path_, errno};
        }
        if (n == 0) {
            throw std::runtime_error{path_ + " ends before its footer says: it was cut off or is damaged"};
        }
        to += n;
        offset += static_cast<std::uint64_t>(n);
        bytes -= static_cast<std::size_t>(n);
    }
}

void DataFile::check_version(FileVersion const& expected) const {
    if (version_of(descriptor_.get(), path_) != expected) {
        throw std::runtime_error{path_ + " was changed while a query read it; run the query again"};
    }
}

bool DataFile::is_remote() const noexcept {
    // Of linux/magic.h and of file systems that are not in it: NFS, SMB, CIFS, SMB2, FUSE, 9P, Ceph, AFS, Coda, Lustre, GPFS,
    // BeeGFS, OrangeFS, GFS2, OCFS2.
    constexpr std::array<std::uint32_t, 15> remote{0x6969U,     0x517BU,     0xFF534D42U, 0xFE534D42U,
                                                   0x65735546U, 0x01021997U, 0x00C36400U, 0x5346414FU,
                                                   0x73757245U, 0x0BD00BD0U, 0x47504653U, 0x19830326U,
                                                   0x20030528U, 0x01161970U, 0x7461636FU};
    struct statfs status{};
    return ::fstatfs(descriptor_.get(), &status) != 0
           || std::ranges::find(remote, static_cast<std::uint32_t>(status.f_type)) != remote.end();
}

}  // namespace rapidsmpf::compute
