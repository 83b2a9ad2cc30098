#include <rapidsmpf/core/detail/token.hpp>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include <sys/random.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

namespace {

std::uint8_t hex_digit(char c) {
    if (c >= '0' && c <= '9') {
        return static_cast<std::uint8_t>(c - '0');
    }
    if (c >= 'a' && c <= 'f') {
        return static_cast<std::uint8_t>(c - 'a' + 10);
    }
    throw FormatError{"the job's token holds something else than hexadecimal digits"};
}

}  // namespace

Token Token::random() {
    std::array<std::uint8_t, size> bytes{};
    // Up to 256 bytes come whole or not at all.
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        throw SystemError{"no random bytes for a token", errno};
    }
    return Token{bytes};
}

Token Token::from_hex(std::string const& text) {
    RAPIDSMPF_EXPECTS(text.size() == 2 * size, "the job's token has not 64 hexadecimal digits", FormatError);
    std::array<std::uint8_t, size> bytes{};
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<std::uint8_t>((hex_digit(text[2 * i]) << 4) | hex_digit(text[2 * i + 1]));
    }
    return Token{bytes};
}

std::string Token::hex() const {
    constexpr std::string_view digits{"0123456789abcdef"};
    std::string text;
    for (auto const byte : bytes_) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

bool Token::matches(Token const& other) const noexcept {
    unsigned difference = 0;
    for (std::size_t i = 0; i < size; ++i) {
        difference |= static_cast<unsigned>(bytes_[i] ^ other.bytes_[i]);
    }
    return difference == 0;
}

Token Token::from_bytes(std::span<std::uint8_t const> bytes) {
    RAPIDSMPF_EXPECTS(bytes.size() == size, "a token of another size", FormatError);
    std::array<std::uint8_t, size> own{};
    std::copy(bytes.begin(), bytes.end(), own.begin());
    return Token{own};
}

}  // namespace rapidsmpf
