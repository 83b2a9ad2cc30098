#include <rapidsmpf/core/detail/host_name.hpp>

#include <array>

#include <unistd.h>

namespace rapidsmpf {

std::string host_name() {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) {
        return "localhost";
    }
    return name.data();
}

}  // namespace rapidsmpf
