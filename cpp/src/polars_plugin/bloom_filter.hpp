// A Bloom filter of 64-bit hashes: says of a key that it is not there, or that it may be.
//
// It is a split block Bloom filter, as Parquet files have them: a hash sets one bit in each of the eight 32-bit words of
// one block, so that it costs one cache line. With 12 bits a key about 0.6 % of the keys that are not there are taken for
// keys that are, with 8 bits about 3 %. The caller owns the words; no two threads may insert at the same time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace polars_plugin::bloom_filter {

inline constexpr std::size_t words_of_block = 8;
// The constants of the Parquet specification, odd numbers with bits spread over all of the word.
inline constexpr std::array<std::uint32_t, words_of_block> salts{
    0x47b6137bU, 0x44974d91U, 0x8824ad5bU, 0xa2b7289dU, 0x705495c7U, 0x2df1424bU, 0x9efc4947U, 0x5c6bfb31U};

// The first word of the block of a hash, by its upper half: neighbouring blocks of a filter with an even number of blocks
// are one block of the filter with half as many, which is what halve() uses.
[[nodiscard]] inline std::size_t first_word(std::uint64_t hash, std::size_t blocks) {
    return static_cast<std::size_t>(((hash >> 32U) * blocks) >> 32U) * words_of_block;
}

[[nodiscard]] inline std::uint32_t bit(std::uint64_t hash, std::size_t word) {
    return std::uint32_t{1} << ((static_cast<std::uint32_t>(hash) * salts[word]) >> 27U);
}

inline void insert(std::span<std::uint32_t> words, std::span<std::uint64_t const> hashes) {
    auto const blocks = words.size() / words_of_block;
    for (auto const hash : hashes) {
        auto* const block = words.data() + first_word(hash, blocks);
        for (std::size_t word = 0; word < words_of_block; ++word) {
            block[word] |= bit(hash, word);
        }
    }
}

// Calls found(position, may_be_there) for each hash, in their order.
template <typename Found>
void look_up(std::span<std::uint32_t const> words, std::span<std::uint64_t const> hashes, Found&& found) {
    // So far ahead the block of a hash is asked for: a filter of many keys is not in the processor's cache.
    constexpr std::size_t ahead = 16;
    auto const blocks = words.size() / words_of_block;
    for (std::size_t at = 0; at < std::min(ahead, hashes.size()); ++at) {
        __builtin_prefetch(words.data() + first_word(hashes[at], blocks));
    }
    for (std::size_t at = 0; at < hashes.size(); ++at) {
        if (at + ahead < hashes.size()) {
            __builtin_prefetch(words.data() + first_word(hashes[at + ahead], blocks));
        }
        auto const hash = hashes[at];
        auto const* const block = words.data() + first_word(hash, blocks);
        std::uint32_t missing = 0;
        for (std::size_t word = 0; word < words_of_block; ++word) {
            missing |= bit(hash, word) & ~block[word];
        }
        found(at, missing == 0);
    }
}

// Makes the first half of the words a filter of the same keys. The number of blocks must be even.
inline void halve(std::span<std::uint32_t> words) {
    for (std::size_t to = 0; to < words.size() / 2; ++to) {
        auto const from = to / words_of_block * 2 * words_of_block + to % words_of_block;
        words[to] = words[from] | words[from + words_of_block];
    }
}

// About how many different hashes were inserted: a hash leaves a bit of its block unset with probability 31/32, and
// the number of hashes of a block has a Poisson distribution.
[[nodiscard]] inline double estimated_count(std::span<std::uint32_t const> words) {
    std::uint64_t set = 0;
    for (auto const word : words) {
        set += static_cast<std::uint64_t>(std::popcount(word));
    }
    auto const bits = 32.0 * static_cast<double>(words.size());
    auto const unset = std::max(bits - static_cast<double>(set), 0.5);
    return -32.0 * std::log(unset / bits) * static_cast<double>(words.size() / words_of_block);
}

}  // namespace polars_plugin::bloom_filter
