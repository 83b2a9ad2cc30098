// Device memory with a limit, over ordinary memory.
#include "compute/device_memory.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/memory_resource.hpp>

#include "compute/admission.hpp"

namespace rapidsmpf::compute {
namespace {

// Gives addresses and no memory.
class Addresses final : public MemoryResource {
  public:
    [[nodiscard]] void* allocate(std::size_t bytes, Stream /*stream*/) override {
        if (bytes - DeviceMemory::spare_bytes > largest) {
            throw OutOfMemory{"too large"};
        }
        return reinterpret_cast<void*>(next_.fetch_add(256));
    }
    void deallocate(void* /*pointer*/, std::size_t /*bytes*/, Stream /*stream*/) noexcept override {}
    [[nodiscard]] bool is_host_accessible() const noexcept override { return false; }
    [[nodiscard]] bool is_device_accessible() const noexcept override { return true; }

    std::atomic<std::size_t> largest{static_cast<std::size_t>(-1)};

  private:
    std::atomic<std::uintptr_t> next_{256};
};

class DeviceMemoryTest : public ::testing::Test {
  protected:
    void free(void* pointer, std::size_t bytes) { memory_.deallocate(pointer, bytes, {}); }

    std::shared_ptr<Addresses> upstream_{std::make_shared<Addresses>()};
    DeviceMemory memory_{upstream_, 1000};
};

TEST_F(DeviceMemoryTest, CountsAndLimits) {
    auto* const first = memory_.allocate(600, {});
    EXPECT_EQ(memory_.in_use(), 600);
    EXPECT_THROW((void)memory_.allocate(401, {}), OutOfMemory);
    EXPECT_EQ(memory_.in_use(), 600);
    auto* const second = memory_.allocate(400, {});
    free(first, 600);
    free(second, 400);
    EXPECT_EQ(memory_.in_use(), 0);
    EXPECT_EQ(memory_.peak(), 1000);
}

TEST_F(DeviceMemoryTest, HoldersMakeRoom) {
    std::vector<void*> held;
    for (int i = 0; i < 10; ++i) {
        held.push_back(memory_.allocate(100, {}));
    }
    auto const id = memory_.add_holder([&](std::size_t bytes) {
        std::size_t freed{0};
        while (freed < bytes && !held.empty()) {
            free(held.back(), 100);
            held.pop_back();
            freed += 100;
        }
        return freed;
    });
    auto* const large = memory_.allocate(450, {});
    EXPECT_EQ(held.size(), 5U);
    EXPECT_THROW((void)memory_.allocate(551, {}), OutOfMemory);
    EXPECT_TRUE(held.empty());
    memory_.remove_holder(id);
    free(large, 450);
}

TEST_F(DeviceMemoryTest, HoldersMakeRoomWhereTheSystemHasNoMore) {
    upstream_->largest = 10;
    auto const id = memory_.add_holder([&](std::size_t) {
        auto const had = upstream_->largest.exchange(100);
        return had == 10 ? std::size_t{50} : std::size_t{0};
    });
    auto* const block = memory_.allocate(50, {});
    EXPECT_THROW((void)memory_.allocate(200, {}), OutOfMemory);
    EXPECT_EQ(memory_.in_use(), 50);
    free(block, 50);
    memory_.remove_holder(id);
}

TEST_F(DeviceMemoryTest, WaitsForChunksOfOthers) {
    // The other thread has all memory, and releases it when this one waits for it.
    auto* const all = memory_.allocate(1000, {});
    std::mutex mutex;
    std::condition_variable changed;
    bool began{false};
    std::atomic<bool> done{false};
    std::thread other{[&] {
        ChunkMemory const chunk{memory_, 0};
        {
            std::lock_guard const lock{mutex};
            began = true;
        }
        changed.notify_all();
        while (memory_.waiting_for_testing() == 0) {
            std::this_thread::yield();
        }
        EXPECT_FALSE(done);
        free(all, 1000);
    }};
    {
        std::unique_lock lock{mutex};
        changed.wait(lock, [&] { return began; });
    }
    auto* const block = memory_.allocate(500, {});
    done = true;
    other.join();
    free(block, 500);
}

TEST_F(DeviceMemoryTest, AChunkBeginsWhenThereIsRoomForIt) {
    std::optional<ChunkMemory> first;
    first.emplace(memory_, 600);
    std::atomic<bool> began{false};
    std::thread other{[&] {
        ChunkMemory const second{memory_, 600};
        began = true;
    }};
    std::thread small{[&] { ChunkMemory const third{memory_, 400}; }};
    small.join();  // fits beside the first
    EXPECT_FALSE(began);
    first.reset();
    other.join();
    EXPECT_TRUE(began);
}

TEST_F(DeviceMemoryTest, AChunkAloneBeginsWhateverItExpects) {
    ChunkMemory const chunk{memory_, 100'000};
    auto* const block = memory_.allocate(700, {});
    free(block, 700);
    auto* const again = memory_.allocate(300, {});
    EXPECT_EQ(chunk.peak(), 700);
    free(again, 300);
}

class Numbers final : public ChunkSource {
  public:
    [[nodiscard]] std::optional<Chunk> next(Work& /*work*/) override { return Chunk{nullptr, next_++}; }

  private:
    std::atomic<std::uint64_t> next_{0};
};

TEST_F(DeviceMemoryTest, ThreadsWithLargeChunksTakeTurns) {
    // Each chunk takes 400 of 1000 bytes: two at a time, once that is known.
    auto const source = admit(std::make_unique<Numbers>(), memory_, 400);
    std::atomic<int> inside{0};
    std::atomic<int> most{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
            Work work{cudaStream_t{}};
            for (int chunk = 0; chunk < 50; ++chunk) {
                ASSERT_TRUE(source->next(work).has_value());
                auto const now = ++inside;
                auto seen = most.load();
                while (seen < now && !most.compare_exchange_weak(seen, now)) {
                }
                auto* const block = memory_.allocate(400, {});
                free(block, 400);
                --inside;
            }
            end_chunk();
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_LE(most, 2);
    EXPECT_EQ(memory_.in_use(), 0);
    EXPECT_LE(memory_.peak(), 1000);
}

}  // namespace
}  // namespace rapidsmpf::compute
