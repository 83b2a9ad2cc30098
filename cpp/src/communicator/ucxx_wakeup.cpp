#include "communicator/ucxx_wakeup.hpp"

#include <array>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

#include <linux/filter.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace rapidsmpf::detail {

namespace {

// The kernel gives a socket that is bound to no name five hexadecimal digits, behind a null byte.
constexpr std::size_t automatic_name = offsetof(sockaddr_un, sun_path) + 6;

int socket_option(int fd, int option) {
    int value = -1;
    socklen_t size = sizeof(value);
    return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

bool is_wakeup_socket(int fd) {
    if (socket_option(fd, SO_DOMAIN) != AF_UNIX || socket_option(fd, SO_TYPE) != SOCK_DGRAM) {
        return false;
    }
    sockaddr_un name{};
    socklen_t size = sizeof(name);
    return ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 && size == automatic_name
           && name.sun_path[0] == '\0';
}

void drop_empty_datagrams(int fd) {
    std::array<sock_filter, 4> program{
        sock_filter{BPF_LD | BPF_W | BPF_LEN, 0, 0, 0}, sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0},
        sock_filter{BPF_RET | BPF_K, 0, 0, 0},           // empty: drop it
        sock_filter{BPF_RET | BPF_K, 0, 0, 0xffff'ffff}  // else take all of it
    };
    sock_fprog const filter{static_cast<unsigned short>(program.size()), program.data()};
    static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)));
}

}  // namespace

void drop_empty_wakeups() noexcept {
    try {
        std::error_code error;
        for (auto const& entry : std::filesystem::directory_iterator{"/proc/self/fd", error}) {
            auto const name = entry.path().filename().string();
            int fd = -1;
            std::from_chars(name.data(), name.data() + name.size(), fd);
            if (fd >= 0 && is_wakeup_socket(fd)) {
                drop_empty_datagrams(fd);
            }
        }
    } catch (std::exception const&) {
        // A file that was closed meanwhile, say: what was found is guarded.
    }
}

}  // namespace rapidsmpf::detail
