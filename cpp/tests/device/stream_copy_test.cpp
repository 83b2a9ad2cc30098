#include <rapidsmpf/device/detail/stream_copy.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::device {
namespace {

std::vector<std::byte> numbered(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<std::byte>((i * 2654435761U) >> 24U);
    }
    return bytes;
}

void expect_copies_and_nothing_else(void (*copy)(std::byte*, std::byte const*, std::size_t)) {
    constexpr std::size_t margin = 256;
    auto const source = numbered(200'000);
    for (std::size_t const size :
         {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{511}, std::size_t{512},
          std::size_t{577}, std::size_t{4096}, stream_copy_threshold - 1, stream_copy_threshold,
          stream_copy_threshold + 1, std::size_t{16'384 + 63}, std::size_t{2 * 16'384 + 17},
          std::size_t{100'003}}) {
        for (std::size_t const from : {0U, 1U, 8U, 63U}) {
            for (std::size_t const to : {0U, 1U, 8U, 63U}) {
                std::vector<std::byte> target(size + 2 * margin, std::byte{0xEE});
                copy(target.data() + margin + to, source.data() + from, size);
                finish_streaming();
                auto const begin = target.begin() + static_cast<std::ptrdiff_t>(margin + to);
                auto const end = begin + static_cast<std::ptrdiff_t>(size);
                ASSERT_TRUE(std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from)))
                    << size << " bytes from " << from << " to " << to;
                auto const untouched = [](std::byte byte) { return byte == std::byte{0xEE}; };
                ASSERT_TRUE(std::all_of(target.begin(), begin, untouched));
                ASSERT_TRUE(std::all_of(end, target.end(), untouched));
            }
        }
    }
}

TEST(StreamCopy, CopiesEverySizeAndAlignmentAndNothingElse) {
    expect_copies_and_nothing_else(stream_copy);
}

TEST(StreamCopy, CopiesLinesFromAnywhereAndNothingElse) {
    auto const source = numbered(200'000);
    for (std::size_t const lines : {0, 1, 2, 63, 256, 257, 1023}) {
        auto const size = lines * cache_line;
        for (std::size_t const from : {0U, 1U, 8U, 63U}) {
            std::vector<std::byte> memory(size + 3 * cache_line, std::byte{0xEE});
            auto const begin = reinterpret_cast<std::uintptr_t>(memory.data());
            auto const past = (cache_line - begin % cache_line) % cache_line + cache_line;
            stream_lines(memory.data() + past, source.data() + from, size);
            finish_streaming();
            auto expected = std::vector<std::byte>(memory.size(), std::byte{0xEE});
            std::copy_n(
                source.begin() + static_cast<std::ptrdiff_t>(from), size,
                expected.begin() + static_cast<std::ptrdiff_t>(past));
            ASSERT_TRUE(memory == expected) << lines << " lines from " << from;
        }
    }
}

struct Sixteen {
    std::uint64_t low;
    std::uint64_t high;
    bool operator==(Sixteen const&) const = default;
};

struct ThirtyTwo {
    Sixteen low;
    Sixteen high;
    bool operator==(ThirtyTwo const&) const = default;
};

template <typename T>
void expect_gathered_lines() {
    if constexpr (streams_gathered_lines<T>) {
        constexpr std::size_t per_line = cache_line / sizeof(T);
        constexpr std::size_t lines = 20;
        std::vector<T> source(3'000);
        auto* const bytes = reinterpret_cast<std::uint8_t*>(source.data());
        for (std::size_t i = 0; i < source.size() * sizeof(T); ++i) {
            bytes[i] = static_cast<std::uint8_t>(i * 2654435761U >> 13U);
        }
        std::vector<std::uint16_t> rows(per_line * lines);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            rows[i] = static_cast<std::uint16_t>(i * 7919 % source.size());
        }
        struct alignas(cache_line) Line {
            std::array<T, per_line> values;
        };
        std::vector<Line> target(lines);
        for (std::size_t i = 0; i < lines; ++i) {
            stream_gathered_line<T>(
                reinterpret_cast<std::byte*>(&target[i]), reinterpret_cast<std::byte const*>(source.data()),
                rows.data() + i * per_line);
        }
        finish_streaming();
        for (std::size_t i = 0; i < rows.size(); ++i) {
            ASSERT_EQ(target[i / per_line].values[i % per_line], source[rows[i]]) << sizeof(T) << ", " << i;
        }
    } else {
        GTEST_SKIP() << "this processor has no streaming stores of values of " << sizeof(T) << " bytes";
    }
}

TEST(StreamCopy, GathersLinesOf4Bytes) {
    expect_gathered_lines<std::uint32_t>();
}

TEST(StreamCopy, GathersLinesOf8Bytes) {
    expect_gathered_lines<std::uint64_t>();
}

TEST(StreamCopy, GathersLinesOf16Bytes) {
    expect_gathered_lines<Sixteen>();
}

TEST(StreamCopy, GathersLinesOf32Bytes) {
    expect_gathered_lines<ThirtyTwo>();
}

}  // namespace
}  // namespace rapidsmpf::device
