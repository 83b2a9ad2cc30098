// What every fuzzer has: a function that reads one input as if a stranger had sent it, and messages as they really are, from
// which libFuzzer starts (fuzzer_main.cpp calls both).
//
// A parser may refuse its input by FormatError, or by std::invalid_argument where the input is a user's text. Anything else
// that it throws, any memory error, undefined behaviour, large allocation or long run is a finding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::fuzz {

using Bytes = std::vector<std::uint8_t>;

// Defined by each fuzzer.
void read_input(std::span<std::uint8_t const> input);
[[nodiscard]] std::vector<Bytes> seeds();

// Whether `read` took what it read; false when it refused.
template <typename Rejection = FormatError, typename Read>
bool takes(Read const& read) {
    try {
        read();
        return true;
    } catch (Rejection const&) {
        return false;
    }
}

// Ends the program, which libFuzzer reports as a finding.
inline void require(bool condition, char const* what) {
    if (!condition) {
        std::fprintf(stderr, "a promise of the parser does not hold: %s\n", what);
        std::abort();
    }
}

// Takes an input apart. What is not there is zero, or empty.
class Input {
  public:
    explicit Input(std::span<std::uint8_t const> bytes) : bytes_{bytes} {}

    [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
    std::uint8_t byte() {
        auto const one = take(1);
        return one.empty() ? std::uint8_t{0} : one[0];
    }
    std::span<std::uint8_t const> take(std::size_t size) {
        auto const taken = bytes_.first(std::min(size, bytes_.size()));
        bytes_ = bytes_.subspan(taken.size());
        return taken;
    }
    std::span<std::uint8_t const> rest() { return take(bytes_.size()); }

  private:
    std::span<std::uint8_t const> bytes_;
};

// In an allocation of its own, so that a read beyond the end is one that ASan sees.
[[nodiscard]] inline Bytes copied(std::span<std::uint8_t const> bytes) {
    return Bytes(bytes.begin(), bytes.end());
}

[[nodiscard]] inline std::string_view text_of(std::span<std::uint8_t const> bytes) {
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

// An input for a fuzzer whose first byte says which parser the rest is for.
[[nodiscard]] inline Bytes with_kind(std::uint8_t kind, std::span<std::uint8_t const> bytes) {
    Bytes input{kind};
    input.insert(input.end(), bytes.begin(), bytes.end());
    return input;
}
[[nodiscard]] inline Bytes with_kind(std::uint8_t kind, std::string_view text) {
    return with_kind(kind, {reinterpret_cast<std::uint8_t const*>(text.data()), text.size()});
}

}  // namespace rapidsmpf::fuzz
