// A file that is open for reading, and how one knows that it is still what it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <rapidsmpf/core/detail/file_descriptor.hpp>

namespace rapidsmpf::compute {

// What tells one version of a file from another.
struct FileVersion {
    std::uint64_t device{0};
    std::uint64_t inode{0};
    std::uint64_t size{0};
    std::int64_t modified_ns{0};
    friend bool operator==(FileVersion const&, FileVersion const&) noexcept = default;
};

// Thread-safe.
class DataFile {
  public:
    // Throws SystemError that names the file.
    explicit DataFile(std::string path);

    [[nodiscard]] std::string const& path() const noexcept { return path_; }
    [[nodiscard]] FileVersion const& version() const noexcept { return version_; }  // when it was opened
    [[nodiscard]] std::size_t size() const noexcept { return version_.size; }
    [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

    // Reads all of the bytes; throws SystemError, or std::runtime_error if the file ends before.
    void read(void* into, std::size_t bytes, std::uint64_t offset) const;

    // Throws std::runtime_error if the file has been written or truncated since it was opened, or is not the `expected`
    // version. A file that another one replaced by renaming is still what it was.
    void check_version(FileVersion const& expected) const;

    // Whether its pages come over a network, or from a program: such a mapping is a bad source of copies.
    [[nodiscard]] bool is_remote() const noexcept;

  private:
    std::string path_;
    FileDescriptor descriptor_;
    FileVersion version_;
};

}  // namespace rapidsmpf::compute
