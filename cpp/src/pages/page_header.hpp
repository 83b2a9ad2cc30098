// The header of a page in a Parquet column chunk: a struct of Thrift's compact protocol, of which a decompressor needs the
// sizes. Runs on both devices. What it reads comes from outside: every length is checked.
#pragma once

#include <cstdint>

#include "pages/lanes.hpp"

namespace rapidsmpf::pages {

struct PageHeader {
    enum Type : std::int32_t { data = 0, index = 1, dictionary = 2, data_v2 = 3 };

    std::int32_t type{-1};
    std::uint32_t compressed_bytes{0};    // of what follows the header
    std::uint32_t uncompressed_bytes{0};  // the same, after decompression
    std::int64_t values{0};               // of data pages
    std::int64_t dictionary_values{0};    // of dictionary pages
    std::int32_t encoding{-1};            // Parquet's number; -1: the header does not say
    std::int32_t level_encoding{-1};      // of data: that of definition levels
    std::uint32_t level_bytes{0};         // of data_v2: what comes before the values and is never compressed
    bool is_compressed{true};             // data_v2 may say that its values are not
    std::uint32_t bytes{0};               // of the header
    // Where in the header its varint of compressed_bytes is.
    std::uint32_t size_begin{0};
    std::uint32_t size_end{0};
};

// Reads a compact struct byte by byte; `failed` stays set.
class ThriftBytes {
  public:
    RAPIDSMPF_DEVICE ThriftBytes(std::uint8_t const* data, std::uint64_t bytes)
        : data_{data}, bytes_{bytes} {}

    [[nodiscard]] RAPIDSMPF_DEVICE bool failed() const { return failed_; }
    [[nodiscard]] RAPIDSMPF_DEVICE std::uint64_t place() const { return place_; }

    RAPIDSMPF_DEVICE std::uint8_t byte() {
        if (place_ >= bytes_) {
            failed_ = true;
            return 0;
        }
        return data_[place_++];
    }

    RAPIDSMPF_DEVICE std::uint64_t varint() {
        std::uint64_t value = 0;
        for (std::uint32_t shift = 0; shift < 64; shift += 7) {
            auto const next = byte();
            value |= static_cast<std::uint64_t>(next & 0x7fU) << shift;
            if (next < 0x80U) {
                return value;
            }
        }
        failed_ = true;
        return 0;
    }

    RAPIDSMPF_DEVICE std::int64_t integer() {
        auto const value = varint();
        return static_cast<std::int64_t>(value >> 1U) ^ -static_cast<std::int64_t>(value & 1U);
    }

    RAPIDSMPF_DEVICE void forward(std::uint64_t n) {
        if (n > bytes_ - place_) {
            failed_ = true;
        } else {
            place_ += n;
        }
    }

    // The next field of the struct that is being read, or false at its end. `field` is the one before.
    RAPIDSMPF_DEVICE bool next_field(std::int32_t& field, std::uint8_t& type) {
        auto const head = byte();
        if (failed_ || head == 0) {
            return false;
        }
        type = head & 0x0fU;
        auto const step = head >> 4U;
        if (step != 0) {
            field += step;
        } else {
            // Fields of Thrift are 16 bits wide; what is not is in no header.
            auto const number = integer();
            if (number < 0 || number > 0x7fff) {
                failed_ = true;
            }
            field = static_cast<std::int32_t>(number);
        }
        return !failed_;
    }

    // Passes over a value of a type that is not needed.
    RAPIDSMPF_DEVICE void skip(std::uint8_t type) {
        // Structs and lists that have been entered: of a list, how many elements are left and of which type.
        constexpr int deepest = 16;
        std::uint64_t left[deepest];
        std::uint8_t element[deepest];
        int depth = 0;
        enter(type, left, element, depth);
        while (depth > 0 && !failed_) {
            auto const at = depth - 1;
            if (element[at] == in_struct) {
                std::int32_t field = 0;
                std::uint8_t of_field = 0;
                if (!next_field(field, of_field)) {
                    --depth;
                } else if (depth < deepest) {
                    enter(of_field, left, element, depth);
                } else {
                    failed_ = true;
                }
            } else if (left[at] == 0) {
                --depth;
            } else if (depth < deepest) {
                --left[at];
                // Elements that are true or false take a byte each, where fields have none.
                if (element[at] == 1 || element[at] == 2) {
                    byte();
                } else {
                    enter(element[at], left, element, depth);
                }
            } else {
                failed_ = true;
            }
        }
    }

  private:
    static constexpr std::uint8_t in_struct = 12;

    // Passes over a scalar; of what has parts, notes what is inside.
    RAPIDSMPF_DEVICE void enter(std::uint8_t type, std::uint64_t* left, std::uint8_t* element, int& depth) {
        switch (type) {
            case 1:  // true
            case 2:  // false
                break;
            case 3:
                byte();
                break;
            case 4:
            case 5:
            case 6:
                varint();
                break;
            case 7:
                forward(8);
                break;
            case 8:
                forward(varint());
                break;
            case 9:
            case 10: {
                auto const head = byte();
                element[depth] = head & 0x0fU;
                left[depth] = head >> 4U;
                if (left[depth] == 15) {
                    left[depth] = varint();
                }
                if (element[depth] == in_struct) {
                    failed_ = true;  // in no header of a page
                }
                ++depth;
                break;
            }
            case in_struct:
                element[depth] = in_struct;
                left[depth] = 0;
                ++depth;
                break;
            default:
                failed_ = true;
        }
    }

    std::uint8_t const* data_;
    std::uint64_t bytes_;
    std::uint64_t place_{0};
    bool failed_{false};
};

// False if these bytes begin with no header of a page.
[[nodiscard]] RAPIDSMPF_DEVICE bool read_page_header(
    std::uint8_t const* data, std::uint64_t bytes, PageHeader& header) {
    ThriftBytes in{data, bytes};
    header = PageHeader{};
    std::int64_t compressed = -1;
    std::int64_t uncompressed = -1;
    std::int64_t levels[2] = {0, 0};
    std::int32_t field = 0;
    std::uint8_t type = 0;
    constexpr std::uint8_t a_struct = 12;
    while (in.next_field(field, type)) {
        auto const is_integer = type >= 4 && type <= 6;
        if (field == 1 && is_integer) {
            header.type = static_cast<std::int32_t>(in.integer());
        } else if (field == 2 && is_integer) {
            uncompressed = in.integer();
        } else if (field == 3 && is_integer) {
            header.size_begin = static_cast<std::uint32_t>(in.place());
            compressed = in.integer();
            header.size_end = static_cast<std::uint32_t>(in.place());
        } else if ((field == 5 || field == 7 || field == 8) && type == a_struct) {
            auto const is_dictionary = field == 7;
            auto const is_v2 = field == 8;
            std::int32_t inner = 0;
            while (in.next_field(inner, type)) {
                auto const is_number = type >= 4 && type <= 6;
                if (inner == 1 && is_number) {
                    (is_dictionary ? header.dictionary_values : header.values) = in.integer();
                } else if (inner == (is_v2 ? 4 : 2) && is_number) {
                    header.encoding = static_cast<std::int32_t>(in.integer());
                } else if (field == 5 && inner == 3 && is_number) {
                    header.level_encoding = static_cast<std::int32_t>(in.integer());
                } else if (is_v2 && (inner == 5 || inner == 6) && is_number) {
                    levels[inner - 5] = in.integer();
                } else if (is_v2 && inner == 7 && (type == 1 || type == 2)) {
                    header.is_compressed = type == 1;
                } else {
                    in.skip(type);
                }
            }
        } else {
            in.skip(type);
        }
    }
    // Sizes of pages are 32-bit integers with a sign.
    constexpr std::int64_t most = 0x7fffffff;
    if (in.failed() || in.place() > most || compressed < 0 || compressed > most || uncompressed < 0
        || uncompressed > most || header.values < 0 || header.values > most || levels[0] < 0
        || levels[1] < 0) {
        return false;
    }
    if (header.type == PageHeader::data_v2) {
        if (levels[0] > most || levels[1] > most || levels[0] + levels[1] > compressed
            || levels[0] + levels[1] > uncompressed) {
            return false;
        }
        header.level_bytes = static_cast<std::uint32_t>(levels[0] + levels[1]);
    }
    header.compressed_bytes = static_cast<std::uint32_t>(compressed);
    header.uncompressed_bytes = static_cast<std::uint32_t>(uncompressed);
    header.bytes = static_cast<std::uint32_t>(in.place());
    return true;
}

// Writes the header as that of the same page without compression, and returns its length; at most most_header_growth longer.
inline constexpr std::uint32_t most_header_growth = 4;
RAPIDSMPF_DEVICE std::uint32_t write_uncompressed_header(
    std::uint8_t const* data, PageHeader const& header, std::uint8_t* to) {
    std::uint32_t at = 0;
    for (; at < header.size_begin; ++at) {
        to[at] = data[at];
    }
    auto value = static_cast<std::uint64_t>(header.uncompressed_bytes) << 1U;
    for (; value >= 0x80U; value >>= 7U) {
        to[at++] = static_cast<std::uint8_t>(value | 0x80U);
    }
    to[at++] = static_cast<std::uint8_t>(value);
    for (auto from = header.size_end; from < header.bytes; ++from) {
        to[at++] = data[from];
    }
    return at;
}

}  // namespace rapidsmpf::pages
