#include <rapidsmpf/device/detail/host_memory.hpp>

#include <cstdint>
#include <cstring>
#include <latch>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::device {
namespace {

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

// The free blocks are the process's: each test begins with none, and with a bound of its own.
class HostMemory : public testing::Test {
  protected:
    void SetUp() override {
        trim_host_memory(0);
        set_host_memory_cache_limit(64 * MiB);
        keeps_ = host_memory_cache_limit() > 0;  // not under AddressSanitizer
    }
    void TearDown() override {
        set_host_memory_cache_limit(before_);
        trim_host_memory(0);
    }
    // What is kept of `bytes`, if anything is.
    [[nodiscard]] std::size_t if_kept(std::size_t bytes) const { return keeps_ ? bytes : 0; }

    std::size_t before_{host_memory_cache_limit()};
    bool keeps_{false};
};

TEST_F(HostMemory, BlocksOfEverySizeAreAlignedAndWritable) {
    for (auto const bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{255}, 4 * KiB - 1, 4 * KiB, 64 * KiB - 1, 64 * KiB,
          64 * KiB + 1, MiB - 1, MiB + 1, 4 * MiB, 4 * MiB + 1, 9 * MiB + 5}) {
        auto* const block = static_cast<std::byte*>(allocate_host(bytes));
        auto const alignment = bytes >= 4 * MiB ? 2 * MiB : bytes >= 4 * KiB ? 4 * KiB : Device::alignment;
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U) << bytes;
        std::memset(block, 7, bytes);
        deallocate_host(block, bytes);
    }
}

TEST_F(HostMemory, AFreedBlockIsTheNextOne) {
    auto* const first = allocate_host(MiB);
    deallocate_host(first, MiB);
    EXPECT_EQ(cached_host_memory(), if_kept(MiB));
    auto* const second = allocate_host(MiB - 100);  // of the same size class
    EXPECT_TRUE(first == second || !keeps_);
    EXPECT_EQ(cached_host_memory(), 0U);
    deallocate_host(second, MiB - 100);
}

TEST_F(HostMemory, LosesAnEighthAtMost) {
    if (!keeps_) {
        EXPECT_EQ(cached_host_memory(), 0U);
        return;
    }
    std::mt19937_64 random{5};
    for (int i = 0; i < 300; ++i) {
        auto const bytes = 64 * KiB + random() % (16 * MiB);
        trim_host_memory(0);
        deallocate_host(allocate_host(bytes), bytes);
        EXPECT_GE(cached_host_memory(), bytes);
        EXPECT_LE(cached_host_memory(), bytes + bytes / 8);
    }
}

TEST_F(HostMemory, SmallBlocksAreNotKept) {
    deallocate_host(allocate_host(64 * KiB - 1), 64 * KiB - 1);
    EXPECT_EQ(cached_host_memory(), 0U);
}

TEST_F(HostMemory, KeepsNoMoreThanItsBound) {
    std::vector<void*> blocks;
    for (int i = 0; i < 100; ++i) {
        blocks.push_back(allocate_host(MiB));
    }
    for (auto* const block : blocks) {
        deallocate_host(block, MiB);
        EXPECT_LE(cached_host_memory(), 64 * MiB);
    }
    EXPECT_EQ(cached_host_memory(), if_kept(64 * MiB));
}

TEST_F(HostMemory, ABlockOfMostOfTheBoundIsNotKept) {
    deallocate_host(allocate_host(40 * MiB), 40 * MiB);
    EXPECT_EQ(cached_host_memory(), 0U);
}

TEST_F(HostMemory, OtherSizesMakeRoom) {
    std::vector<void*> blocks;
    for (int i = 0; i < 64; ++i) {
        blocks.push_back(allocate_host(MiB));
    }
    for (auto* const block : blocks) {
        deallocate_host(block, MiB);
    }
    // A program that turns to another size finds it kept after a while.
    for (int i = 0; i < 20; ++i) {
        auto* const one = allocate_host(3 * MiB);
        auto* const two = allocate_host(3 * MiB);
        deallocate_host(one, 3 * MiB);
        deallocate_host(two, 3 * MiB);
    }
    auto const before = cached_host_memory();
    auto* const block = allocate_host(3 * MiB);
    EXPECT_EQ(cached_host_memory(), before - if_kept(3 * MiB));
    deallocate_host(block, 3 * MiB);
}

// A page that the system gives anew is clear; one that we kept is not.
TEST_F(HostMemory, TrimmedPagesAreGone) {
    if (!keeps_) {
        EXPECT_EQ(trim_host_memory(0), 0U);
        return;
    }
    auto const first_byte = [] {
        auto* const block = static_cast<std::byte*>(allocate_host(8 * MiB));
        auto const result = *block;
        *block = std::byte{1};
        deallocate_host(block, 8 * MiB);
        return result;
    };
    EXPECT_EQ(first_byte(), std::byte{0});
    EXPECT_EQ(first_byte(), std::byte{1});
    EXPECT_EQ(trim_host_memory(0), 8 * MiB);
    EXPECT_EQ(first_byte(), std::byte{0});
}

TEST_F(HostMemory, TrimsToWhatIsAskedFor) {
    std::vector<void*> blocks;
    for (int i = 0; i < 10; ++i) {
        blocks.push_back(allocate_host(MiB));
    }
    for (auto* const block : blocks) {
        deallocate_host(block, MiB);
    }
    EXPECT_EQ(trim_host_memory(3 * MiB), if_kept(7 * MiB));
    EXPECT_EQ(cached_host_memory(), if_kept(3 * MiB));
    set_host_memory_cache_limit(2 * MiB);
    EXPECT_EQ(cached_host_memory(), if_kept(2 * MiB));
}

TEST_F(HostMemory, MeasuringGivesNothingBack) {
    auto const cpu = make_cpu_device();
    auto* const block = allocate_host(8 * MiB);
    std::memset(block, 1, 8 * MiB);  // what was never written is not resident
    deallocate_host(block, 8 * MiB);
    auto const use = measure_host_memory(*cpu);
    EXPECT_EQ(use.kept, static_cast<std::int64_t>(if_kept(8 * MiB)));
    EXPECT_GT(use.in_use(), 0);
    EXPECT_EQ(use.in_use() + use.kept + use.kept_shared, use.resident);
    EXPECT_EQ(cached_host_memory(), if_kept(8 * MiB));
}

TEST_F(HostMemory, AboveALimitAsMuchIsGivenBackAsThatTakes) {
    for (int i = 0; i < 4; ++i) {
        std::vector<void*> blocks;
        for (int k = 0; k < 4; ++k) {
            blocks.push_back(allocate_host(2 * MiB));
        }
        for (auto* const block : blocks) {
            deallocate_host(block, 2 * MiB);
        }
    }
    HostMemoryUse use;
    use.kept = static_cast<std::int64_t>(cached_host_memory());
    use.resident = static_cast<std::int64_t>(100 * MiB);
    trim_host_memory_above(use.resident, use);
    EXPECT_EQ(cached_host_memory(), if_kept(8 * MiB));
    trim_host_memory_above(use.resident - static_cast<std::int64_t>(3 * MiB), use);
    EXPECT_EQ(cached_host_memory(), if_kept(4 * MiB));
    use.kept = static_cast<std::int64_t>(cached_host_memory());
    trim_host_memory_above(0, use);
    EXPECT_EQ(cached_host_memory(), 0U);
}

TEST_F(HostMemory, LargerThanTheLargestSize) {
    constexpr std::size_t bytes = (std::size_t{1} << 30U) + 1;
    auto* const block = static_cast<std::byte*>(allocate_host(bytes));
    block[bytes - 1] = std::byte{1};
    deallocate_host(block, bytes);
    EXPECT_EQ(cached_host_memory(), 0U);
}

TEST_F(HostMemory, AbsurdSizesAreOutOfMemory) {
    for (auto const bytes : {std::size_t{1} << 60U, SIZE_MAX, SIZE_MAX - MiB, SIZE_MAX / 2 + 1}) {
        EXPECT_THROW((void)allocate_host(bytes), OutOfMemory) << bytes;
    }
}

// No block is handed out twice, whichever thread releases it, while another trims.
TEST_F(HostMemory, ManyThreads) {
    set_host_memory_cache_limit(4 * MiB);
    std::vector<std::thread> threads;
    std::latch ready{4};
    for (unsigned thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            std::mt19937 random{thread};
            std::vector<std::pair<unsigned*, std::size_t>> held;
            ready.arrive_and_wait();
            for (unsigned step = 0; step < 400; ++step) {
                auto const bytes = 64 * KiB + random() % (512 * KiB);
                auto* const block = static_cast<unsigned*>(allocate_host(bytes));
                block[0] = thread;
                block[bytes / sizeof(unsigned) - 1] = thread;
                held.emplace_back(block, bytes);
                std::swap(held[random() % held.size()], held.back());
                if (held.size() > 8 || random() % 2 == 0) {
                    auto const [old, size] = held.back();
                    EXPECT_EQ(old[0], thread);
                    EXPECT_EQ(old[size / sizeof(unsigned) - 1], thread);
                    deallocate_host(old, size);
                    held.pop_back();
                }
                if (step % 100 == 99) {
                    trim_host_memory(MiB);
                }
            }
            for (auto const& [block, bytes] : held) {
                EXPECT_EQ(block[0], thread);
                deallocate_host(block, bytes);
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_LE(cached_host_memory(), 4 * MiB);
    auto const kept = cached_host_memory();
    EXPECT_EQ(trim_host_memory(0), kept);
    EXPECT_EQ(cached_host_memory(), 0U);
}

}  // namespace
}  // namespace rapidsmpf::device
