// Bitmaps, 64 bits at a time: counting, copying between any two bit positions, gathering.
//
// Bits are numbered from the least significant one of each byte. Destinations are written in whole 8-byte words,
// so a destination has to be aligned to 8 bytes and as long as its last word; sources are never read beyond their
// last byte.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rapidsmpf::detail {

[[nodiscard]] constexpr std::uint64_t low_bits(std::int64_t count) noexcept {
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

[[nodiscard]] constexpr std::int64_t bytes_for_bits(std::int64_t bits) noexcept {
    return (bits >> 3) + ((bits & 7) != 0 ? 1 : 0);
}

[[nodiscard]] inline bool get_bit(std::uint8_t const* bits, std::int64_t position) noexcept {
    return ((bits[position >> 3] >> (position & 7)) & 1) != 0;
}

// `count` (1 to 64) bits from `position` on.
[[nodiscard]] inline std::uint64_t load_bits(
    std::uint8_t const* bits, std::int64_t position, std::int64_t count) noexcept {
    auto const shift = position & 7;
    auto const bytes = bytes_for_bits(shift + count);
    auto const* const at = bits + (position >> 3);
    std::uint64_t word{0};
    std::memcpy(&word, at, static_cast<std::size_t>(bytes < 8 ? bytes : 8));
    word >>= shift;
    if (bytes > 8) {
        word |= static_cast<std::uint64_t>(at[8]) << (64 - shift);
    }
    return word & low_bits(count);
}

[[nodiscard]] inline std::int64_t count_bits(
    std::uint8_t const* bits, std::int64_t position, std::int64_t count) noexcept {
    std::int64_t set{0};
    for (std::int64_t done = 0; done < count; done += 64) {
        auto const now = count - done < 64 ? count - done : 64;
        set += std::popcount(load_bits(bits, position + done, now));
    }
    return set;
}

// Appends bits to a bitmap from any position on; what lies before is kept, the rest of the last word is zeroed.
class BitAppender {
  public:
    BitAppender(std::byte* bits, std::int64_t position) noexcept
        : word_at_{bits + (position >> 6) * 8}, used_{position & 63} {
        if (used_ != 0) {
            std::memcpy(&word_, word_at_, 8);
            word_ &= low_bits(used_);
        }
    }
    // The low `count` (1 to 64) bits of `value`, whose other bits are zero.
    void append(std::uint64_t value, std::int64_t count) noexcept {
        word_ |= value << used_;
        used_ += count;
        if (used_ >= 64) {
            std::memcpy(word_at_, &word_, 8);
            word_at_ += 8;
            used_ -= 64;
            word_ = used_ == 0 ? 0 : value >> (count - used_);
        }
    }
    void flush() noexcept {
        if (used_ != 0) {
            std::memcpy(word_at_, &word_, 8);
        }
    }

  private:
    std::byte* word_at_;
    std::int64_t used_;
    std::uint64_t word_{0};
};

// Copies `count` bits; returns how many of them are set.
inline std::int64_t copy_bits(
    std::byte* to, std::int64_t to_position, std::uint8_t const* from, std::int64_t from_position,
    std::int64_t count) noexcept {
    BitAppender out{to, to_position};
    std::int64_t set{0};
    for (std::int64_t done = 0; done < count; done += 64) {
        auto const now = count - done < 64 ? count - done : 64;
        auto const word = load_bits(from, from_position + done, now);
        set += std::popcount(word);
        out.append(word, now);
    }
    out.flush();
    return set;
}

inline void fill_bits(std::byte* to, std::int64_t position, std::int64_t count) noexcept {
    BitAppender out{to, position};
    for (std::int64_t done = 0; done < count; done += 64) {
        auto const now = count - done < 64 ? count - done : 64;
        out.append(low_bits(now), now);
    }
    out.flush();
}

// Appends the bits at from_position + rows[i]; returns how many of them are set.
template <typename Index>
std::int64_t gather_bits(
    std::byte* to, std::int64_t to_position, std::uint8_t const* from, std::int64_t from_position,
    Index const* rows, std::int64_t count) noexcept {
    BitAppender out{to, to_position};
    std::int64_t set{0};
    for (std::int64_t done = 0; done < count;) {
        auto const now = count - done < 64 ? count - done : 64;
        std::uint64_t word{0};
        for (std::int64_t k = 0; k < now; ++k) {
            auto const position = from_position + static_cast<std::int64_t>(rows[done + k]);
            word |= static_cast<std::uint64_t>((from[position >> 3] >> (position & 7)) & 1) << k;
        }
        set += std::popcount(word);
        out.append(word, now);
        done += now;
    }
    out.flush();
    return set;
}

}  // namespace rapidsmpf::detail
