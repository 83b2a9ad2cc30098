// Waiting for descriptors and deadlines.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <initializer_list>
#include <limits>
#include <optional>
#include <vector>

#include <poll.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::rrun {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;

[[nodiscard]] inline Deadline deadline_in(std::optional<std::chrono::milliseconds> wait) {
    return wait ? Deadline{std::chrono::steady_clock::now() + *wait} : std::nullopt;
}

// Until a descriptor is ready or the first of the deadlines has come. Throws SystemError.
inline void wait_for(std::vector<pollfd>& fds, std::initializer_list<Deadline> deadlines) {
    Deadline first;
    for (auto const& deadline : deadlines) {
        if (deadline) {
            first = first ? std::min(*first, *deadline) : *deadline;
        }
    }
    int wait = -1;
    if (first) {
        auto const left =
            std::chrono::ceil<std::chrono::milliseconds>(*first - std::chrono::steady_clock::now()).count();
        wait = static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
    }
    if (::poll(fds.data(), fds.size(), wait) < 0) {
        if (errno != EINTR) {
            throw SystemError{"rrun cannot wait", errno};
        }
        for (auto& fd : fds) {
            fd.revents = 0;
        }
    }
}

}  // namespace rapidsmpf::rrun
