// The plan of a gather copy, carried out on the host; and the kernel, where there is a GPU.
#include <rapidsmpf/device/detail/gather_copy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/device/device.hpp>

#include "device/gather_plan.hpp"

namespace rapidsmpf {
namespace {

std::vector<std::uint8_t> random_bytes(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::vector<std::uint8_t> bytes(count);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::uint8_t>(random()); });
    return bytes;
}

// 16-byte vector number 0 of the two that lie at `from`, shifted, as the kernel does it.
void copy_vector(std::uint8_t* to, std::uint8_t const* from, std::uint32_t shift) {
    if (shift == 0) {
        std::memcpy(to, from, 16);
        return;
    }
    std::uint32_t both[8];
    std::uint32_t out[4];
    std::memcpy(both, from, 32);
    auto const bits = shift % 4 * 8;
    switch (shift / 4) {
        case 0:
            detail::shift_words<0>(both, bits, out);
            break;
        case 1:
            detail::shift_words<1>(both, bits, out);
            break;
        case 2:
            detail::shift_words<2>(both, bits, out);
            break;
        default:
            detail::shift_words<3>(both, bits, out);
            break;
    }
    std::memcpy(to, out, 16);
}

// Carries out the plan of one piece; every byte of the destination may be written once only.
void copy_by_plan(
    std::vector<std::uint8_t> const& source, std::size_t from, std::vector<std::uint8_t>& destination,
    std::vector<int>& written, std::size_t to, std::size_t bytes, std::uint64_t chunk_bytes) {
    // Addresses whose alignment is that of the positions.
    auto const chunks = detail::num_chunks(to, bytes, chunk_bytes);
    for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
        auto const copy = detail::plan_chunk(from, to, bytes, chunk, chunk_bytes);
        ASSERT_LE(copy.begin, copy.vectors_begin);
        ASSERT_LE(copy.vectors_begin, copy.vectors_end);
        ASSERT_LE(copy.vectors_end, copy.end);
        ASSERT_LE(copy.end, bytes);
        auto const copy_bytes = [&](std::uint64_t begin, std::uint64_t end) {
            for (auto at = begin; at < end; ++at) {
                destination[to + at] = source[from + at];
                ++written[to + at];
            }
        };
        copy_bytes(copy.begin, copy.vectors_begin);
        copy_bytes(copy.vectors_end, copy.end);
        for (auto at = copy.vectors_begin; at < copy.vectors_end; at += 16) {
            ASSERT_EQ((to + at) % 16, 0U);
            ASSERT_EQ((from + at - copy.shift) % 16, 0U);
            ASSERT_GE(at, copy.shift);  // nothing before the piece is read
            if (copy.shift != 0) {
                ASSERT_LE(at + 32 - copy.shift, bytes);  // nor behind it
            }
            copy_vector(destination.data() + to + at, source.data() + from + at - copy.shift, copy.shift);
            std::for_each_n(written.begin() + static_cast<std::ptrdiff_t>(to + at), 16, [](int& n) { ++n; });
        }
    }
}

TEST(GatherPlan, every_byte_is_copied_once_for_all_alignments) {
    auto const source = random_bytes(512, 1);
    for (std::size_t from = 0; from < 16; ++from) {
        for (std::size_t to = 0; to < 16; ++to) {
            for (std::size_t const bytes :
                 {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 100, 129, 400}) {
                std::vector<std::uint8_t> destination(512, 0);
                std::vector<int> written(512, 0);
                copy_by_plan(source, from, destination, written, to, bytes, 64);
                auto const begin = static_cast<std::ptrdiff_t>(to);
                auto const end = static_cast<std::ptrdiff_t>(to + bytes);
                ASSERT_TRUE(
                    std::equal(
                        destination.begin() + begin, destination.begin() + end,
                        source.begin() + static_cast<std::ptrdiff_t>(from)))
                    << from << " -> " << to << ", " << bytes;
                for (std::ptrdiff_t at = 0; at < 512; ++at) {
                    ASSERT_EQ(written[static_cast<std::size_t>(at)], at >= begin && at < end ? 1 : 0)
                        << from << " -> " << to << ", " << bytes << " at " << at;
                }
            }
        }
    }
}

TEST(GatherPlan, few_bytes_are_copied_one_by_one) {
    for (std::uint64_t from = 0; from < 16; ++from) {
        for (std::uint64_t to = 0; to < 16; ++to) {
            std::uint64_t single{0};
            constexpr std::uint64_t bytes = 10'000;
            for (std::uint64_t chunk = 0; chunk < detail::num_chunks(to, bytes, 2048); ++chunk) {
                auto const copy = detail::plan_chunk(from, to, bytes, chunk, 2048);
                single += copy.vectors_begin - copy.begin + copy.end - copy.vectors_end;
            }
            EXPECT_LE(single, 64U);
        }
    }
}

TEST(GatherPlan, a_chunk_belongs_to_the_last_piece_that_begins_before_it) {
    std::vector<std::uint32_t> const firsts{0, 1, 5, 6, 100};
    for (std::uint32_t chunk = 0; chunk < 100; ++chunk) {
        auto const piece = detail::find_piece(firsts.data(), 4, chunk);
        ASSERT_LE(firsts[piece], chunk);
        ASSERT_GT(firsts[piece + 1], chunk);
    }
}

TEST(GatherPlan, chunks_grow_with_the_work) {
    EXPECT_EQ(detail::choose_chunk_bytes(0, 1000), detail::min_chunk_bytes);
    EXPECT_EQ(detail::choose_chunk_bytes(3 << 20, 1000), 4096U);
    EXPECT_EQ(detail::choose_chunk_bytes(std::uint64_t{1} << 40U, 1000), detail::max_chunk_bytes);
}

class GatherCopyCuda : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string reason;
        gpu_ = device::make_cuda_device(reason);
        if (!gpu_) {
            GTEST_SKIP() << "no GPU: " << reason;
        }
    }
    // Copies pieces from one block to another at random places; compares with the same on the host.
    void check(std::size_t block, std::vector<std::size_t> const& sizes, std::uint64_t seed) {
        std::mt19937_64 random{seed};
        auto const source = random_bytes(block, seed);
        auto* const from = static_cast<std::byte*>(gpu_->allocate(block, Stream{}));
        auto* const to = static_cast<std::byte*>(gpu_->allocate(block, Stream{}));
        gpu_->copy(from, source.data(), block, Stream{});
        std::vector<std::uint8_t> expected(block, 0);
        gpu_->copy(to, expected.data(), block, Stream{});
        std::vector<CopyPiece> pieces;
        std::size_t at{0};
        for (auto const size : sizes) {
            at += random() % 40;
            ASSERT_LE(at + size, block);
            auto const origin = random() % (block - size + 1);
            pieces.push_back({from + origin, to + at, size});
            std::copy_n(
                source.begin() + static_cast<std::ptrdiff_t>(origin), size,
                expected.begin() + static_cast<std::ptrdiff_t>(at));
            at += size;
        }
        gather_copy_cuda(pieces, Stream{});
        std::vector<std::uint8_t> found(block);
        gpu_->copy(found.data(), to, block, Stream{});
        gpu_->synchronize(Stream{});
        EXPECT_TRUE(found == expected) << seed;
        gpu_->deallocate(from, block, Stream{});
        gpu_->deallocate(to, block, Stream{});
    }

    std::unique_ptr<Device> gpu_;
};

TEST_F(GatherCopyCuda, copies_pieces_of_all_sizes_and_alignments) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        std::mt19937_64 random{seed};
        std::vector<std::size_t> sizes;
        for (int i = 0; i < 300; ++i) {
            sizes.push_back(random() % (i % 10 == 0 ? 20'000 : 200));
        }
        check(1 << 20, sizes, seed);
    }
}

TEST_F(GatherCopyCuda, copies_more_pieces_than_one_launch_takes) {
    std::vector<std::size_t> const sizes(5000, 77);
    check(1 << 20, sizes, 1);
}

TEST_F(GatherCopyCuda, copies_large_pieces) {
    check(std::size_t{96} << 20U, {std::size_t{32} << 20U, 1, (std::size_t{32} << 20U) + 5}, 2);
}

TEST_F(GatherCopyCuda, nothing_is_copied_without_pieces) {
    gather_copy_cuda({}, Stream{});
    check(100, {0, 0}, 3);
}

}  // namespace
}  // namespace rapidsmpf
