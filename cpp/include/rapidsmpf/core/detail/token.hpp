// The secret by which processes of one job recognise each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace rapidsmpf {

// 256 random bits that all processes of a job share.
class Token {
  public:
    static constexpr std::size_t size = 32;

    // Throws SystemError when the kernel gives no random bytes.
    [[nodiscard]] static Token random();
    // Throws FormatError unless `text` is 64 hexadecimal digits.
    [[nodiscard]] static Token from_hex(std::string const& text);
    // Throws FormatError unless there are as many bytes as a token has.
    [[nodiscard]] static Token from_bytes(std::span<std::uint8_t const> bytes);
    explicit Token(std::array<std::uint8_t, size> const& bytes) : bytes_{bytes} {}

    [[nodiscard]] std::string hex() const;
    [[nodiscard]] std::array<std::uint8_t, size> const& bytes() const noexcept { return bytes_; }
    // Takes the same time wherever the first difference is.
    [[nodiscard]] bool matches(Token const& other) const noexcept;

  private:
    std::array<std::uint8_t, size> bytes_;
};

}  // namespace rapidsmpf
