#include <rapidsmpf/device/stream_copy.hpp>

#include <algorithm>
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

TEST(StreamCopy, CopiesEverySizeAndAlignmentAndNothingElse) {
    constexpr std::size_t margin = 256;
    auto const source = numbered(200'000);
    for (std::size_t const size :
         {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{4096}, stream_copy_threshold - 1,
          stream_copy_threshold, stream_copy_threshold + 1, std::size_t{16'384 + 63},
          std::size_t{2 * 16'384 + 17}, std::size_t{100'003}}) {
        for (std::size_t const from : {0U, 1U, 8U, 63U}) {
            for (std::size_t const to : {0U, 1U, 8U, 63U}) {
                std::vector<std::byte> target(size + 2 * margin, std::byte{0xEE});
                stream_copy(target.data() + margin + to, source.data() + from, size);
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

template <typename T>
std::vector<T> stored_one_by_one(std::size_t count) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        stream_store(reinterpret_cast<std::byte*>(values.data() + i), static_cast<T>(i * 2654435761U));
    }
    finish_streaming();
    return values;
}

TEST(StreamCopy, StoresValuesOfEveryWidth) {
    constexpr std::size_t count = 100;
    auto const expect = [](auto const& values) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            using T = std::decay_t<decltype(values[0])>;
            ASSERT_EQ(values[i], static_cast<T>(i * 2654435761U));
        }
    };
    expect(stored_one_by_one<std::uint8_t>(count));
    expect(stored_one_by_one<std::uint16_t>(count));
    expect(stored_one_by_one<std::uint32_t>(count));
    expect(stored_one_by_one<std::uint64_t>(count));
}

}  // namespace
}  // namespace rapidsmpf::device
