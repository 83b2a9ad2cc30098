// Not of a parser: a copy of what one does, with an overflow on purpose. A run that does not find it within seconds would find
// none in the parsers either (scripts/fuzz.py makes sure that it does).
#include <cstring>

#include <rapidsmpf/core/detail/byte_codec.hpp>

#include "fuzzer.hpp"

namespace rapidsmpf::fuzz {

namespace {

constexpr std::uint8_t greeting = 1;

// A frame's text, which is at most as long as what came, but not as `name` is.
void read_name(std::span<std::uint8_t const> bytes) {
    ByteReader reader{bytes};
    if (reader.integer<std::uint8_t>() != greeting || reader.integer<std::uint16_t>() != 0x5652) {
        return;
    }
    auto const size = reader.integer<std::uint8_t>();
    auto const text = reader.raw(size);
    std::vector<char> name(32);
    std::memcpy(name.data(), text.data(), text.size());
    static_cast<void>(reader.integer<std::uint8_t>());
}

}  // namespace

void read_input(std::span<std::uint8_t const> bytes) {
    auto const message = copied(bytes);
    static_cast<void>(takes([&] { read_name(message); }));
}

std::vector<Bytes> seeds() {
    return {ByteWriter{}
                .integer(greeting)
                .integer(std::uint16_t{0x5652})
                .integer(std::uint8_t{4})
                .raw(Bytes{'n', 'o', 'd', 'e', 0})
                .take()};
}

}  // namespace rapidsmpf::fuzz
