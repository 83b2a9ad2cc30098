#include <rapidsmpf/core/detail/checksum.hpp>

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace rapidsmpf {

namespace {

constexpr std::uint32_t polynomial = 0x82F63B78;  // reflected

using Table = std::array<std::uint32_t, 256>;

// tables[k][b]: the effect of byte b followed by k zero bytes, for eight bytes a step.
constexpr auto tables = [] {
    std::array<Table, 8> result{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) {
            value = (value >> 1U) ^ ((value & 1U) != 0 ? polynomial : 0U);
        }
        result[0][byte] = value;
    }
    for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            auto const before = result[k - 1][byte];
            result[k][byte] = (before >> 8U) ^ result[0][before & 0xFFU];
        }
    }
    return result;
}();

}  // namespace

std::uint32_t detail::crc32c_portable(std::span<std::byte const> bytes, std::uint32_t crc) noexcept {
    crc = ~crc;
    std::size_t i = 0;
    for (; i + 8 <= bytes.size(); i += 8) {
        std::uint64_t word;
        std::memcpy(&word, bytes.data() + i, 8);
        word ^= crc;
        crc = 0;
        for (std::size_t k = 0; k < 8; ++k) {
            crc ^= tables[7 - k][(word >> (8 * k)) & 0xFFU];
        }
    }
    for (; i < bytes.size(); ++i) {
        crc = (crc >> 8U) ^ tables[0][(crc ^ static_cast<std::uint32_t>(bytes[i])) & 0xFFU];
    }
    return ~crc;
}

#if defined(__x86_64__)
namespace {

// A linear map of 32 bits: the images of the single bits.
using Matrix = std::array<std::uint32_t, 32>;

constexpr std::uint32_t image_of(Matrix const& matrix, std::uint32_t value) {
    std::uint32_t result = 0;
    for (std::size_t bit = 0; bit < 32; ++bit) {
        result ^= ((value >> bit) & 1U) != 0 ? matrix[bit] : 0U;
    }
    return result;
}

// What 2^log2_bytes zero bytes do to a checksum, by its four bytes.
constexpr std::array<Table, 4> zeros(int log2_bytes) {
    Matrix matrix{};
    for (std::size_t bit = 0; bit < 32; ++bit) {
        auto const value = std::uint32_t{1} << bit;
        matrix[bit] = (value >> 8U) ^ tables[0][value & 0xFFU];
    }
    for (int i = 0; i < log2_bytes; ++i) {
        Matrix square{};
        for (std::size_t bit = 0; bit < 32; ++bit) {
            square[bit] = image_of(matrix, matrix[bit]);
        }
        matrix = square;
    }
    std::array<Table, 4> result{};
    for (std::size_t place = 0; place < 4; ++place) {
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            result[place][byte] = image_of(matrix, byte << (8 * place));
        }
    }
    return result;
}

constexpr int log2_long = 12;
constexpr int log2_short = 8;
constexpr auto long_zeros = zeros(log2_long);
constexpr auto short_zeros = zeros(log2_short);

std::uint64_t shift(std::array<Table, 4> const& by, std::uint64_t crc) noexcept {
    return by[0][crc & 0xFFU] ^ by[1][(crc >> 8U) & 0xFFU] ^ by[2][(crc >> 16U) & 0xFFU]
           ^ by[3][(crc >> 24U) & 0xFFU];
}

std::uint64_t load(std::byte const* from) noexcept {
    std::uint64_t word;
    std::memcpy(&word, from, 8);
    return word;
}

// The instruction takes one word a cycle but answers after three: three streams at once keep it busy.
template <int log2_bytes>
__attribute__((target("sse4.2"))) std::uint64_t three_streams(
    std::byte const*& data, std::size_t& size, std::array<Table, 4> const& by, std::uint64_t crc) noexcept {
    constexpr std::size_t stride = std::size_t{1} << log2_bytes;
    while (size >= 3 * stride) {
        std::uint64_t second = 0;
        std::uint64_t third = 0;
        for (std::byte const* const end = data + stride; data != end; data += 8) {
            crc = _mm_crc32_u64(crc, load(data));
            second = _mm_crc32_u64(second, load(data + stride));
            third = _mm_crc32_u64(third, load(data + 2 * stride));
        }
        crc = shift(by, shift(by, crc) ^ second) ^ third;
        data += 2 * stride;
        size -= 3 * stride;
    }
    return crc;
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(
    std::span<std::byte const> bytes, std::uint32_t start) noexcept {
    auto const* data = bytes.data();
    auto size = bytes.size();
    std::uint64_t crc = ~start;
    crc = three_streams<log2_long>(data, size, long_zeros, crc);
    crc = three_streams<log2_short>(data, size, short_zeros, crc);
    for (; size >= 8; size -= 8, data += 8) {
        crc = _mm_crc32_u64(crc, load(data));
    }
    auto narrow = static_cast<std::uint32_t>(crc);
    for (; size > 0; --size, ++data) {
        narrow = _mm_crc32_u8(narrow, static_cast<std::uint8_t>(*data));
    }
    return ~narrow;
}

}  // namespace
#endif

std::uint32_t crc32c(std::span<std::byte const> bytes, std::uint32_t crc) noexcept {
#if defined(__x86_64__)
    static bool const has_instruction = __builtin_cpu_supports("sse4.2") != 0;
    if (has_instruction) {
        return crc32c_sse42(bytes, crc);
    }
#endif
    return detail::crc32c_portable(bytes, crc);
}

}  // namespace rapidsmpf
