// Many threads work with twenty times as much as there is memory for, on a disk that fails now and then.
//
// Nothing may be lost or changed: each read compares a checksum. Errors of the disk reach only who needed the bytes.
// The resident memory of the process is held below 1.25 times the limit (not measured under a sanitizer).
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/disk_space.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

#include "memory/disk/disk_faults.hpp"
#include "sanitized.hpp"

namespace rapidsmpf {
namespace {

constexpr std::int64_t limit = sanitized ? std::int64_t{64} << 20 : std::int64_t{256} << 20;
constexpr std::size_t largest = static_cast<std::size_t>(limit) / 64;
constexpr std::int64_t working_set = 20 * limit / (sanitized ? 4 : 1);
constexpr int num_threads = 8;

struct Item {
    Item(std::unique_ptr<Buffer> bytes, std::uint64_t next_use, std::uint32_t checksum_)
        : buffer{std::make_unique<SpillableBuffer>(std::move(bytes), next_use)}, checksum{checksum_} {}
    std::mutex mutex;  // held by who moves, or takes, the buffer; readers pin it
    std::unique_ptr<SpillableBuffer> buffer;
    std::uint32_t checksum;
};

std::int64_t resident_bytes() {
    return Device::current().used_memory();
}

class Stress {
  public:
    Stress() {
        faults_ = std::make_shared<DiskFaults>(7);
        DiskSpace::Settings disk;
        disk.faults_for_testing = faults_;
        BufferResource::Settings settings;
        settings.disk = DiskSpace::make(std::move(disk));
        if (sanitized) {
            settings.available[0] = [] { return BufferResource::unlimited; };
        }
        settings.limits[0] = limit;
        settings.reserve_timeout = std::chrono::minutes{5};
        br_ = BufferResource::make(std::move(settings));
        std::mt19937_64 random{1};
        pattern_.resize(2 * largest / 8);
        for (auto& word : pattern_) {
            word = random();
        }
    }

    // Inserts until the working set is complete, then exchanges its items a while.
    void work(int thread) {
        std::mt19937_64 random{static_cast<std::uint64_t>(thread)};
        std::vector<std::shared_ptr<Item>> own;
        std::int64_t bytes = 0;
        while (bytes < working_set / num_threads) {
            if (auto item = insert(random)) {
                bytes += static_cast<std::int64_t>(item->buffer->size());
                own.push_back(std::move(item));
            }
            if (own.size() % 4 == 3) {
                read(*own[random() % own.size()]);
            }
        }
        for (std::size_t i = 0; i < own.size() / 4; ++i) {
            auto& item = own[random() % own.size()];
            auto const choice = random() % 3;
            if (choice == 0) {
                read(*item);
            } else if (choice == 1) {
                move(*item, random);
            } else if (auto other = insert(random)) {
                item = std::move(other);
            }
        }
        for (std::size_t i = 0; i < own.size(); i += 3) {
            read(*own[i]);
        }
    }

    [[nodiscard]] BufferResource& resource() { return *br_; }
    [[nodiscard]] DiskFaults& faults() { return *faults_; }
    [[nodiscard]] std::int64_t errors() const { return errors_; }
    [[nodiscard]] std::int64_t reads() const { return reads_; }

  private:
    std::shared_ptr<Item> insert(std::mt19937_64& random) {
        auto const size = 1 + random() % (random() % 8 == 0 ? largest : largest / 8);
        auto const offset = random() % (pattern_.size() * 8 - size);
        try {
            auto memory = br_->reserve_or_wait(MemoryType::DEVICE, size, AllowOverbooking::no);
            auto buffer = br_->allocate(size, memory);
            auto const bytes = buffer->mutable_host_bytes();
            std::memcpy(bytes.data(), reinterpret_cast<std::byte const*>(pattern_.data()) + offset, size);
            auto const checksum = crc32c(std::span<std::byte const>{bytes});
            return std::make_shared<Item>(std::move(buffer), random() % 1000, checksum);
        } catch (SpillError const&) {
            ++errors_;
            return nullptr;
        }
    }

    void read(Item& item) {
        std::lock_guard const lock{item.mutex};
        for (;;) {
            try {
                auto const pin = item.buffer->pin();
                auto const bytes = pin->host_bytes();
                ASSERT_EQ(crc32c(bytes), item.checksum);
                ++reads_;
                return;
            } catch (SpillError const&) {
                ++errors_;  // the bytes are still there: the next attempt may find them
            }
        }
    }

    void move(Item& item, std::mt19937_64& random) {
        std::lock_guard const lock{item.mutex};
        auto buffer = item.buffer->take();
        auto const size = buffer->size();
        constexpr std::array tiers{MemoryType::DEVICE, MemoryType::HOST, MemoryType::DISK};
        auto const to = tiers[random() % tiers.size()];
        if (buffer->mem_type() != to) {
            try {
                auto memory = to == MemoryType::DISK ? br_->reserve(to, size, AllowOverbooking::yes).first
                                                     : br_->reserve_or_wait(to, size, AllowOverbooking::no);
                auto moved = br_->copy(*buffer, 0, size, memory);
                buffer = std::move(moved);
            } catch (SpillError const&) {
                ++errors_;  // it stays where it is
            }
        }
        item.buffer = std::make_unique<SpillableBuffer>(std::move(buffer), random() % 1000);
    }

    std::shared_ptr<DiskFaults> faults_;
    std::shared_ptr<BufferResource> br_;
    std::vector<std::uint64_t> pattern_;
    std::atomic<std::int64_t> errors_{0};
    std::atomic<std::int64_t> reads_{0};
};

// Looks at the resident memory all the time while it lives.
class ResidentMemory {
  public:
    ResidentMemory() : thread_{[this] { watch(); }} {}
    ~ResidentMemory() {
        {
            std::lock_guard const lock{mutex_};
            done_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    [[nodiscard]] std::int64_t peak() const { return peak_; }

  private:
    void watch() {
        std::unique_lock lock{mutex_};
        do {
            peak_ = std::max<std::int64_t>(peak_, resident_bytes());
        } while (!changed_.wait_for(lock, std::chrono::milliseconds{2}, [this] { return done_; }));
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_{false};
    std::atomic<std::int64_t> peak_{0};
    std::thread thread_;
};

TEST(MemoryStress, TwentyTimesTheMemoryOnAFailingDisk) {
    if (Device::current().kind() != DeviceKind::cpu) {
        GTEST_SKIP() << "it measures this process's memory, which is the CPU device's";
    }
    Stress stress;
    stress.faults().fail_randomly(DiskCall::write, 0.001, ENOSPC);
    stress.faults().fail_randomly(DiskCall::read, 0.001, EIO);
    stress.faults().corrupt_reads(0.001);
    {
        ResidentMemory const resident;
        std::vector<std::thread> threads;
        for (int thread = 0; thread < num_threads; ++thread) {
            threads.emplace_back([&stress, thread] { stress.work(thread); });
        }
        for (auto& thread : threads) {
            thread.join();
        }
        if (!sanitized) {
            EXPECT_LT(resident.peak(), limit + limit / 4);
            ::testing::Test::RecordProperty("peak_resident_bytes", std::to_string(resident.peak()));
        }
        std::printf(
            "peak resident %lld MiB of %lld MiB, %lld reads, %lld errors of the disk, %lld injected\n",
            static_cast<long long>(resident.peak() >> 20), static_cast<long long>(limit >> 20),
            static_cast<long long>(stress.reads()), static_cast<long long>(stress.errors()),
            static_cast<long long>(stress.faults().injected()));
    }
    EXPECT_GT(stress.reads(), 0);
    EXPECT_GT(stress.faults().injected(), 0U);
    auto& br = stress.resource();
    for (auto const type : memory_types) {
        EXPECT_EQ(br.memory_used(type), 0) << to_string(type);
        EXPECT_EQ(br.memory_reserved(type), 0) << to_string(type);
    }
}

}  // namespace
}  // namespace rapidsmpf
