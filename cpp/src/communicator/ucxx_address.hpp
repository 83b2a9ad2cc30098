// The address of a UCXX communicator's root, as it is handed to other processes.
//
// UCX trusts an address: it ends the process, or worse, when it reads one that is truncated, changed or none at all. So the
// addresses that we give out carry a seal behind UCX's own bytes (which UCX does not look at, so that the address
// stays valid for it): the job's token, a checksum, the size and a magic number. So a process that has the address may join, and
// no other: it is a secret.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <rapidsmpf/core/detail/token.hpp>

namespace rapidsmpf::detail {

struct RootAddress {
    RootAddress(std::vector<std::uint8_t> address_, Token const& token_)
        : address{std::move(address_)}, token{token_} {}
    std::vector<std::uint8_t> address;  // UCX's bytes
    Token token;
};

[[nodiscard]] std::vector<std::uint8_t> seal_address(std::vector<std::uint8_t> address, Token const& token);
[[nodiscard]] bool is_sealed(std::span<std::uint8_t const> bytes);

// What a sealed address that came from elsewhere holds; its bytes are checked against the address of this process's
// worker as far as that goes. Throws std::invalid_argument.
[[nodiscard]] RootAddress checked_address(
    std::span<std::uint8_t const> bytes, std::span<std::uint8_t const> own_address);

}  // namespace rapidsmpf::detail
