// The address of a UCXX communicator's root, as it is handed to other processes.
//
// UCX trusts an address: it ends the process, or worse, when it reads one that is cut, changed or none at all. So the
// addresses that we give out carry a seal behind UCX's own bytes (which UCX does not look at, so that the address
// stays valid for it): a checksum, the size and a magic number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rapidsmpf::detail {

[[nodiscard]] std::vector<std::uint8_t> seal_address(std::vector<std::uint8_t> address);
[[nodiscard]] bool is_sealed(std::span<std::uint8_t const> bytes);

// UCX's bytes of an address that came from elsewhere. What is not sealed is taken for UCX's own, and checked against
// the address of this process's worker as far as that goes. Throws std::invalid_argument.
[[nodiscard]] std::vector<std::uint8_t> checked_address(
    std::span<std::uint8_t const> bytes, std::span<std::uint8_t const> own_address);

}  // namespace rapidsmpf::detail
