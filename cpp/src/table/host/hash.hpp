// The 64-bit row hash that says to which partition a row goes: the same on the host and on a GPU, and on every
// rank that uses the same seed.
//
// A row's hash starts from the seed and takes in one key column after the other. Values that Polars holds equal
// hash alike: -0.0 and 0.0, all NaNs, nulls; text by its bytes whatever its layout; dictionaries by the value that
// a code stands for; decimals and 128-bit integers by their bytes; lists by their length and items, structs by
// their fields. Columns of different width or type need not hash alike.
//
// The primitive is the folded 64x64 -> 128 bit multiplication of wyhash (Wang Yi, public domain).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#if defined(__CUDACC__)
#define RAPIDSMPF_HOST_DEVICE __host__ __device__
#else
#define RAPIDSMPF_HOST_DEVICE
#endif

namespace rapidsmpf {

class Table;

namespace hash {

// Odd, with as many ones as zeros in each byte (wyhash's secret).
inline constexpr std::uint64_t key0 = 0xa0761d6478bd642fULL;
inline constexpr std::uint64_t key1 = 0xe7037ed1a0b428dbULL;
inline constexpr std::uint64_t key2 = 0x8ebc6af09c88c6e3ULL;
inline constexpr std::uint64_t key3 = 0x589965cc75374cc3ULL;

// What a null contributes in place of a value.
inline constexpr std::uint64_t null_word = 0x4cf5ad432745937fULL;
// What a struct contributes before its fields.
inline constexpr std::uint64_t struct_word = 0x52dce729da3ed7c5ULL;

// Both halves of the product, folded.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
#if defined(__CUDA_ARCH__)
    return (a * b) ^ __umul64hi(a, b);
#else
    auto const product = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
#endif
}

RAPIDSMPF_HOST_DEVICE inline std::uint64_t start(std::uint64_t seed) noexcept {
    return fold(seed ^ key2, key3) ^ key1;
}

// Takes one more word into a row's state.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t combine(std::uint64_t state, std::uint64_t word) noexcept {
    return fold(word ^ key0, state ^ key1);
}

// The hash of a row from its state after the last column.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t finish(std::uint64_t state) noexcept {
    return fold(state ^ key3, key2);
}

// The word of a float, from its bits.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t float64_word(std::uint64_t bits) noexcept {
    auto const magnitude = bits & 0x7fffffffffffffffULL;
    return magnitude == 0 ? 0 : magnitude > 0x7ff0000000000000ULL ? 0x7ff8000000000000ULL : bits;
}
RAPIDSMPF_HOST_DEVICE inline std::uint64_t float32_word(std::uint32_t bits) noexcept {
    auto const magnitude = bits & 0x7fffffffU;
    return magnitude == 0 ? 0 : magnitude > 0x7f800000U ? 0x7fc00000U : bits;
}
RAPIDSMPF_HOST_DEVICE inline std::uint64_t float16_word(std::uint16_t bits) noexcept {
    auto const magnitude = bits & 0x7fffU;
    return magnitude == 0 ? 0 : magnitude > 0x7c00U ? 0x7e00U : bits;
}

// Up to 8 bytes as a number, zeros above.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t load_word(std::uint8_t const* bytes, std::size_t size) noexcept {
    std::uint64_t word{0};
    if (size >= 8) {
        memcpy(&word, bytes, 8);
        return word;
    }
    if (size >= 4) {
        std::uint32_t low;
        std::uint32_t high;
        memcpy(&low, bytes, 4);
        memcpy(&high, bytes + size - 4, 4);
        return low | (static_cast<std::uint64_t>(high) << (8 * (size - 4)));
    }
    for (std::size_t i = 0; i < size; ++i) {
        word |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    }
    return word;
}

// The word of up to 16 bytes given as two zero-padded numbers, and of a longer run of bytes.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t short_bytes_word(
    std::uint64_t low, std::uint64_t high, std::size_t size) noexcept {
    return fold(low ^ key1, high ^ key2 ^ (static_cast<std::uint64_t>(size) << 56U));
}
RAPIDSMPF_HOST_DEVICE inline std::uint64_t bytes_word(std::uint8_t const* bytes, std::size_t size) noexcept {
    if (size <= 16) {
        auto const low = load_word(bytes, size);
        auto const high = size > 8 ? load_word(bytes + 8, size - 8) : 0;
        return short_bytes_word(low, high, size);
    }
    std::uint64_t state = size ^ key3;
    std::size_t left = size;
    for (; left > 16; left -= 16, bytes += 16) {
        state = fold(load_word(bytes, 8) ^ key1, load_word(bytes + 8, 8) ^ state);
    }
    // The last 16 bytes; they overlap with what came before unless the size is a multiple.
    auto const* const last = bytes + left - 16;
    return fold(load_word(last, 8) ^ key2, load_word(last + 8, 8) ^ state);
}

// The partition of a hash: multiplication spreads it evenly, whatever the number.
RAPIDSMPF_HOST_DEVICE inline std::uint32_t partition_of(
    std::uint64_t hash, std::uint32_t num_partitions) noexcept {
#if defined(__CUDA_ARCH__)
    return static_cast<std::uint32_t>(__umul64hi(hash, num_partitions));
#else
    return static_cast<std::uint32_t>((static_cast<unsigned __int128>(hash) * num_partitions) >> 64U);
#endif
}

}  // namespace hash

// Fills `hashes` with the hashes of rows [first, first + hashes.size()). Throws std::out_of_range for a key column
// or rows that are not there.
void hash_rows(
    Table const& table, std::span<int const> key_columns, std::int64_t first, std::span<std::uint64_t> hashes,
    std::uint64_t seed = 0);

}  // namespace rapidsmpf
