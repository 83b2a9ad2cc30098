// Writing and reading little-endian metadata. The reader checks every access: it faces bytes off a wire.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {

class ByteWriter {
  public:
    explicit ByteWriter(std::vector<std::uint8_t>& out) noexcept : out_{out} {}

    template <std::integral T>
    void number(T value) {
        append(&value, sizeof(T));
    }
    void numbers(std::span<std::uint64_t const> values) { append(values.data(), values.size_bytes()); }
    void text(std::string_view value) {
        RAPIDSMPF_EXPECTS(
            value.size() <= UINT32_MAX, "a schema text is longer than 4 GiB", std::invalid_argument);
        number(static_cast<std::uint32_t>(value.size()));
        append(value.data(), value.size());
    }

  private:
    // Not inlined: g++ 12 warns of an overflow that cannot be when it sees the vector grow.
    [[gnu::noinline]] void append(void const* bytes, std::size_t size) {
        auto const* const first = static_cast<std::uint8_t const*>(bytes);
        out_.insert(out_.end(), first, first + size);
    }

    std::vector<std::uint8_t>& out_;
};

class ByteReader {
  public:
    explicit ByteReader(std::span<std::uint8_t const> bytes) noexcept : bytes_{bytes} {}

    template <std::integral T>
    [[nodiscard]] T number() {
        T value;
        std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
        return value;
    }
    [[nodiscard]] std::string text() {
        auto const bytes = take(number<std::uint32_t>());
        return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
    }
    // How many things follow, each at least `smallest` bytes long: so a wrong count cannot make us allocate much.
    [[nodiscard]] std::size_t count(std::size_t smallest) {
        auto const value = number<std::uint32_t>();
        RAPIDSMPF_EXPECTS(
            value <= bytes_.size() / smallest,
            "malformed metadata: " + std::to_string(value) + " entries do not fit into it", FormatError);
        return value;
    }
    [[nodiscard]] std::span<std::uint8_t const> take(std::size_t size) {
        RAPIDSMPF_EXPECTS(
            size <= bytes_.size(),
            "malformed metadata: it ends " + std::to_string(size - bytes_.size()) + " bytes too early",
            FormatError);
        auto const taken = bytes_.first(size);
        bytes_ = bytes_.subspan(size);
        return taken;
    }
    [[nodiscard]] std::size_t remaining() const noexcept { return bytes_.size(); }

  private:
    std::span<std::uint8_t const> bytes_;
};

}  // namespace rapidsmpf::detail
