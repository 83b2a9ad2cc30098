// Reads values of Thrift's compact protocol, in which the footers of Parquet files are encoded. The input is not trusted: every
// length is checked, and malformed input throws FooterError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <rapidsmpf/parquet/detail/column_facts.hpp>

namespace rapidsmpf::parquet {

// Types of fields in the compact protocol.
namespace wire {
constexpr std::uint8_t stop = 0;
constexpr std::uint8_t boolean_true = 1;
constexpr std::uint8_t boolean_false = 2;
constexpr std::uint8_t i8 = 3;
constexpr std::uint8_t i16 = 4;
constexpr std::uint8_t i32 = 5;
constexpr std::uint8_t i64 = 6;
constexpr std::uint8_t real = 7;
constexpr std::uint8_t binary = 8;
constexpr std::uint8_t list = 9;
constexpr std::uint8_t set = 10;
constexpr std::uint8_t map = 11;
constexpr std::uint8_t structure = 12;
constexpr std::uint8_t uuid = 13;
}  // namespace wire

constexpr int deepest_value = 32;  // of values in values; Parquet's own have six

[[nodiscard]] inline bool is_wire_integer(std::uint8_t type) noexcept {
    return type == wire::i16 || type == wire::i32 || type == wire::i64;
}

class CompactReader {
  public:
    explicit CompactReader(std::span<std::uint8_t const> bytes)
        : at_{bytes.data()}, end_{bytes.data() + bytes.size()} {}

    [[nodiscard]] std::uint8_t const* at() const noexcept { return at_; }

    std::uint8_t byte() {
        if (at_ == end_) {
            short_of_bytes();
        }
        return *at_++;
    }

    std::uint64_t varint() {
        auto const first = byte();
        if (first < 0x80) [[likely]] {
            return first;
        }
        std::uint64_t value = first & 0x7FU;
        for (int shift = 7; shift < 64; shift += 7) {
            auto const next = byte();
            value |= std::uint64_t{next & 0x7FU} << shift;
            if (next < 0x80) {
                return value;
            }
        }
        throw FooterError{"a number in the footer has more than 64 bits"};
    }

    std::int64_t integer() {
        auto const value = varint();
        return static_cast<std::int64_t>(value >> 1U) ^ -static_cast<std::int64_t>(value & 1U);
    }

    std::string_view bytes() {
        auto const n = varint();
        if (n > static_cast<std::uint64_t>(end_ - at_)) {
            short_of_bytes();
        }
        std::string_view const value{reinterpret_cast<char const*>(at_), static_cast<std::size_t>(n)};
        at_ += n;
        return value;
    }

    // The header of a list: how many, of which type. Every element takes a byte at least.
    std::pair<std::size_t, std::uint8_t> list_header() {
        auto const header = byte();
        std::uint64_t n = header >> 4U;
        if (n == 15) {
            n = varint();
        }
        if (n > static_cast<std::uint64_t>(end_ - at_)) {
            short_of_bytes();
        }
        return {static_cast<std::size_t>(n), static_cast<std::uint8_t>(header & 15U)};
    }

    // The length of a list whose elements are structures; `what` names the list in errors.
    std::size_t structures(char const* what) {
        auto const [n, element] = list_header();
        if (n > 0 && element != wire::structure) {
            throw FooterError{std::string{what} + " are no structures"};
        }
        return n;
    }

    // Reads an integer field into `to`; false, and nothing is read, if `type` is not that of an integer.
    bool take_integer(std::uint8_t type, std::int64_t& to) {
        if (!is_wire_integer(type)) {
            return false;
        }
        to = integer();
        return true;
    }

    // Reads a structure field by field. take(field, type) either reads the value and returns true, or returns false: then the value
    // is skipped.
    template <typename Take>
    void fields(Take&& take, int depth) {
        std::int64_t field = 0;
        for (;;) {
            auto const header = byte();
            auto const type = static_cast<std::uint8_t>(header & 15U);
            if (type == wire::stop) {
                return;
            }
            auto const delta = header >> 4U;
            field = delta != 0 ? field + delta : integer();
            if (!take(field, type)) {
                skip(type, depth);
            }
        }
    }

    void skip(std::uint8_t type, int depth) {
        if (depth > deepest_value) {
            throw FooterError{"the footer has values nested too deep"};
        }
        switch (type) {
            case wire::boolean_true:
            case wire::boolean_false:
                return;  // in a structure the value is in the header
            case wire::i8:
                byte();
                return;
            case wire::i16:
            case wire::i32:
            case wire::i64:
                varint();
                return;
            case wire::real:
                advance(8);
                return;
            case wire::binary:
                bytes();
                return;
            case wire::uuid:
                advance(16);
                return;
            case wire::list:
            case wire::set: {
                auto const [n, element] = list_header();
                for (std::size_t i = 0; i < n; ++i) {
                    skip_element(element, depth + 1);
                }
                return;
            }
            case wire::map: {
                auto const n = varint();
                if (n == 0) {
                    return;
                }
                if (n > static_cast<std::uint64_t>(end_ - at_)) {
                    short_of_bytes();
                }
                auto const types = byte();
                for (std::uint64_t i = 0; i < n; ++i) {
                    skip_element(types >> 4U, depth + 1);
                    skip_element(types & 15U, depth + 1);
                }
                return;
            }
            case wire::structure:
                fields([](std::int64_t, std::uint8_t) { return false; }, depth + 1);
                return;
            default:
                throw FooterError{"the footer has a value of the unknown type " + std::to_string(type)};
        }
    }

  private:
    void skip_element(std::uint8_t type, int depth) {
        if (type == wire::boolean_true || type == wire::boolean_false) {
            byte();  // in a list a truth value takes a byte
        } else {
            skip(type, depth);
        }
    }

    void advance(std::ptrdiff_t n) {
        if (n > end_ - at_) {
            short_of_bytes();
        }
        at_ += n;
    }

    [[noreturn]] static void short_of_bytes() { throw FooterError{"the footer ends within a value"}; }

    std::uint8_t const* at_;
    std::uint8_t const* end_;
};

}  // namespace rapidsmpf::parquet
