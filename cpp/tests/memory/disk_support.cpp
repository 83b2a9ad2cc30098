#include "disk_support.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::test {

TemporaryFolder::TemporaryFolder() {
    auto text = (std::filesystem::temp_directory_path() / "rapidsmpf-test-XXXXXX").string();
    if (::mkdtemp(text.data()) == nullptr) {
        throw std::runtime_error{"cannot make " + text};
    }
    path_ = std::filesystem::canonical(text);
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::names() const {
    std::vector<std::string> result;
    for (auto const& entry : std::filesystem::directory_iterator{path_}) {
        result.push_back(entry.path().filename());
    }
    return result;
}

TestBytes::TestBytes(std::size_t size, std::uint64_t seed, std::size_t misalignment)
    : memory_(size + DiskSpace::alignment + misalignment + 8) {
    auto const begin = reinterpret_cast<std::uintptr_t>(memory_.data());
    auto const aligned = (begin + DiskSpace::alignment - 1) / DiskSpace::alignment * DiskSpace::alignment;
    auto* const data = memory_.data() + (aligned - begin) + misalignment;
    std::uint64_t state = seed * 0x9E3779B97F4A7C15U;
    for (std::size_t i = 0; i < size; i += 8) {
        state ^= state << 13U;
        state ^= state >> 7U;
        state ^= state << 17U;
        std::memcpy(data + i, &state, 8);
    }
    bytes_ = {data, size};
}

bool equal(std::span<std::byte const> left, std::span<std::byte const> right) {
    return left.size() == right.size()
           && (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

std::vector<std::byte> read_all(DiskExtent const& extent) {
    std::vector<std::byte> bytes(extent.size());
    if (auto const space = extent.space()) {
        space->read(extent, 0, bytes);
    }
    return bytes;
}

std::int64_t bytes_on_disk(std::filesystem::path const& folder) {
    std::int64_t total = 0;
    for (auto const& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
        std::error_code gone;
        auto const target = std::filesystem::read_symlink(entry.path(), gone);
        struct stat status{};
        if (!gone && target.string().starts_with(folder.string() + "/")
            && ::stat(entry.path().c_str(), &status) == 0) {
            total += static_cast<std::int64_t>(status.st_blocks) * 512;
        }
    }
    return total;
}

std::string spill_error(std::function<void()> const& operation) {
    try {
        operation();
    } catch (SpillError const& error) {
        EXPECT_STRNE(error.what(), "");
        return error.what();
    }
    ADD_FAILURE() << "no SpillError";
    return {};
}

}  // namespace rapidsmpf::test
