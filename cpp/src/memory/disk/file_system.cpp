#include "memory/disk/file_system.hpp"

#include <fstream>
#include <sstream>
#include <system_error>

#include <sys/statvfs.h>

#include <rapidsmpf/core/config.hpp>

namespace rapidsmpf::detail {

namespace {

// The kernel writes blanks and their kind as \ooo.
std::string unescape(std::string const& text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            result +=
                static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
            i += 3;
        } else {
            result += text[i];
        }
    }
    return result;
}

bool lies_under(std::string const& path, std::string const& folder) {
    return folder == "/" || path == folder
           || (path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/');
}

// A line: id parent major:minor root mount-point options [tags...] - type source super-options.
void find_mount(std::string const& path, FileSystem& found) {
    std::ifstream mounts{"/proc/self/mountinfo"};
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream words{line};
        std::string skipped;
        std::string point;
        words >> skipped >> skipped >> skipped >> skipped >> point;
        std::string word;
        while (words >> word && word != "-") {
        }
        std::string type;
        words >> type;
        point = unescape(point);
        // What is mounted later on the same place hides what was there.
        if (!type.empty() && lies_under(path, point) && point.size() >= found.mount_point.size()) {
            found.mount_point = point;
            found.type = type;
        }
    }
}

}  // namespace

FileSystem file_system_of(std::filesystem::path const& path) {
    FileSystem result;
    std::error_code error;
    auto place = std::filesystem::absolute(path, error);
    while (place.has_relative_path() && !std::filesystem::exists(place, error)) {
        place = place.parent_path();
    }
    struct statvfs numbers{};
    if (::statvfs(place.c_str(), &numbers) == 0) {
        auto const block = static_cast<std::int64_t>(numbers.f_frsize);
        result.free = static_cast<std::int64_t>(numbers.f_bavail) * block;
        result.total = static_cast<std::int64_t>(numbers.f_blocks) * block;
    }
    auto const real = std::filesystem::canonical(place, error);
    find_mount((error ? place : real).string(), result);
    return result;
}

std::string describe_place(std::filesystem::path const& path) {
    auto const system = file_system_of(path);
    std::string text = path.string();
    if (system.type.empty() && system.total == 0) {
        return text;
    }
    text += " (" + (system.type.empty() ? std::string{"file system"} : system.type + " file system");
    text += system.mount_point.empty() ? "" : " at " + system.mount_point;
    if (system.total > 0) {
        text +=
            ", " + config::format_bytes(system.free) + " of " + config::format_bytes(system.total) + " free";
    }
    return text + ")";
}

}  // namespace rapidsmpf::detail
