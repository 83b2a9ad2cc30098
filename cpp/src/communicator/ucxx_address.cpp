#include "communicator/ucxx_address.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {

namespace {

constexpr std::array<std::uint8_t, 8> magic{'R', 'V', 'R', 'N', 'U', 'C', 'X', '2'};
constexpr std::size_t seal_size = Token::size + 2 * sizeof(std::uint32_t) + magic.size();
// A version byte, the worker's number of eight bytes, and one transport.
constexpr std::size_t smallest_address = 16;

}  // namespace

std::vector<std::uint8_t> seal_address(std::vector<std::uint8_t> address, Token const& token) {
    auto const size = static_cast<std::uint32_t>(address.size());
    address.insert(address.end(), token.bytes().begin(), token.bytes().end());
    ByteWriter seal;
    seal.integer(crc32c(address)).integer(size).raw(magic);
    auto const bytes = seal.take();
    address.insert(address.end(), bytes.begin(), bytes.end());
    return address;
}

bool is_sealed(std::span<std::uint8_t const> bytes) {
    return bytes.size() >= seal_size && std::ranges::equal(bytes.last(magic.size()), magic);
}

RootAddress checked_address(std::span<std::uint8_t const> bytes, std::span<std::uint8_t const> own_address) {
    RAPIDSMPF_EXPECTS(
        is_sealed(bytes),
        "these " + std::to_string(bytes.size())
            + " bytes are not the address of a root: use what get_root_ucxx_address() gives (the address of its UCX "
              "worker alone lacks the token that lets a process in)",
        std::invalid_argument);
    auto const address = bytes.first(bytes.size() - seal_size);
    ByteReader seal{bytes.last(seal_size)};
    auto const token = Token::from_bytes(seal.raw(Token::size));
    auto const checksum = seal.integer<std::uint32_t>();
    auto const size = seal.integer<std::uint32_t>();
    RAPIDSMPF_EXPECTS(
        size == address.size() && checksum == crc32c(bytes.first(address.size() + Token::size)),
        "the root's address is damaged: some of its " + std::to_string(bytes.size())
            + " bytes are missing or changed",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        address.size() >= smallest_address,
        "the root's address is too short: use what get_root_ucxx_address() gives", std::invalid_argument);
    // Its first byte says how the rest is laid out.
    RAPIDSMPF_EXPECTS(
        address.front() == own_address.front(),
        "this is the address of a UCX worker of another version of UCX than this process's: use what "
        "get_root_ucxx_address() gives, and the same UCX on all ranks",
        std::invalid_argument);
    return {{address.begin(), address.end()}, token};
}

}  // namespace rapidsmpf::detail
