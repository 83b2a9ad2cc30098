// What the system knows of the file system that a path lies on, for messages to users.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace rapidsmpf::detail {

struct FileSystem {
    std::string type;         // "ext4"; empty when unknown
    std::string mount_point;  // empty when unknown
    std::int64_t free{0};     // bytes that this user may still write
    std::int64_t total{0};    // bytes; 0 when unknown
};

// `path` need not exist: then it is about the nearest folder above it that does. Does not throw on what the system
// does not tell.
[[nodiscard]] FileSystem file_system_of(std::filesystem::path const& path);

// "/data/spill (ext4 file system at /data, 12.00 GiB of 250.00 GiB free)".
[[nodiscard]] std::string describe_place(std::filesystem::path const& path);

}  // namespace rapidsmpf::detail
