// Little-endian messages between processes: a writer that appends, and a reader that checks every bound.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

class ByteWriter {
  public:
    template <std::integral T>
    ByteWriter& integer(T value) {
        auto const bits = static_cast<std::make_unsigned_t<T>>(value);
        for (std::size_t i = 0; i < sizeof(T); ++i) {
            bytes_.push_back(static_cast<std::uint8_t>(bits >> (8 * i)));
        }
        return *this;
    }
    // Not inlined: g++ 12 takes the growing of a vector that it knows to be empty for an overflow.
    [[gnu::noinline]] ByteWriter& raw(std::span<std::uint8_t const> value) {
        bytes_.insert(bytes_.end(), value.begin(), value.end());
        return *this;
    }
    // With its 32-bit size in front.
    ByteWriter& blob(std::span<std::uint8_t const> value) {
        return integer(static_cast<std::uint32_t>(value.size())).raw(value);
    }
    // As blob(); what is longer is truncated to `max_size` bytes.
    ByteWriter& text(std::string_view value, std::size_t max_size) {
        value = value.substr(0, max_size);
        return blob({reinterpret_cast<std::uint8_t const*>(value.data()), value.size()});
    }
    [[nodiscard]] std::vector<std::uint8_t> take() { return std::move(bytes_); }

  private:
    std::vector<std::uint8_t> bytes_;
};

// Every method throws FormatError instead of reading beyond the end.
class ByteReader {
  public:
    explicit ByteReader(std::span<std::uint8_t const> bytes) : bytes_{bytes} {}

    template <std::integral T>
    [[nodiscard]] T integer() {
        auto const from = raw(sizeof(T));
        std::make_unsigned_t<T> bits{0};
        for (std::size_t i = 0; i < sizeof(T); ++i) {
            bits = static_cast<std::make_unsigned_t<T>>(
                bits | (static_cast<std::make_unsigned_t<T>>(from[i]) << (8 * i)));
        }
        return static_cast<T>(bits);
    }
    // A view of the next `size` bytes.
    [[nodiscard]] std::span<std::uint8_t const> raw(std::size_t size) {
        RAPIDSMPF_EXPECTS(size <= bytes_.size(), "the message is cut short", FormatError);
        auto const taken = bytes_.first(size);
        bytes_ = bytes_.subspan(size);
        return taken;
    }
    [[nodiscard]] std::vector<std::uint8_t> blob(std::size_t max_size) {
        auto const size = integer<std::uint32_t>();
        RAPIDSMPF_EXPECTS(size <= max_size, "a field of the message is too long", FormatError);
        auto const taken = raw(size);
        return std::vector<std::uint8_t>(taken.begin(), taken.end());
    }
    [[nodiscard]] std::string text(std::size_t max_size) {
        auto const taken = blob(max_size);
        return std::string(taken.begin(), taken.end());
    }
    // There must be nothing left.
    void end() const { RAPIDSMPF_EXPECTS(bytes_.empty(), "the message has trailing bytes", FormatError); }

  private:
    std::span<std::uint8_t const> bytes_;
};

}  // namespace rapidsmpf
