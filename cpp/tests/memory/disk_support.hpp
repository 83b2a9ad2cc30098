// What the tests of the disk tier share: a folder of their own, bytes to write, a look at the spill file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rapidsmpf/memory/disk_space.hpp>

namespace rapidsmpf::test {

// A new folder that is removed with all that is in it.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(TemporaryFolder const&) = delete;
    TemporaryFolder& operator=(TemporaryFolder const&) = delete;

    [[nodiscard]] std::filesystem::path const& path() const noexcept { return path_; }
    // The names of what is in it.
    [[nodiscard]] std::vector<std::string> names() const;

  private:
    std::filesystem::path path_;
};

// Bytes at a given distance from a page's beginning.
class TestBytes {
  public:
    explicit TestBytes(std::size_t size, std::uint64_t seed = 1, std::size_t misalignment = 0);
    [[nodiscard]] std::span<std::byte> all() noexcept { return bytes_; }
    [[nodiscard]] std::span<std::byte const> all() const noexcept { return bytes_; }

  private:
    std::vector<std::byte> memory_;
    std::span<std::byte> bytes_;
};

[[nodiscard]] bool equal(std::span<std::byte const> left, std::span<std::byte const> right);

// Reads a whole extent.
[[nodiscard]] std::vector<std::byte> read_all(DiskExtent const& extent);

// Bytes that the nameless files of this process in a folder take on disk.
[[nodiscard]] std::int64_t bytes_on_disk(std::filesystem::path const& folder);

// What an operation throws as SpillError; empty, and a failure of the test, when it throws none.
[[nodiscard]] std::string spill_error(std::function<void()> const& operation);

}  // namespace rapidsmpf::test
