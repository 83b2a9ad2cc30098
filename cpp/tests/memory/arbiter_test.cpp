// Requests that wait, water marks, and what the arbiter's thread does about them.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/statistics.hpp>
#include <rapidsmpf/device/detail/host_memory.hpp>
#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/disk_space.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

#include "about_the_cpu.hpp"
#include "memory/disk/disk_faults.hpp"

namespace rapidsmpf {
namespace {

constexpr auto device = MemoryType::DEVICE;
constexpr std::chrono::hours forever{1};

BufferResource::Settings limited(std::int64_t limit) {
    BufferResource::Settings settings;
    settings.limits[0] = limit;
    // These tests are about the accounting, not about what this process takes.
    settings.available[0] = [] { return BufferResource::unlimited; };
    settings.reserve_timeout = forever;
    settings.high_water = 1;
    settings.low_water = 1;
    return settings;
}

// Waits for what another thread is about to do.
template <typename Condition>
void await(Condition condition) {
    while (!condition()) {
        std::this_thread::yield();
    }
}

TEST(Arbiter, AWaitingRequestIsServedWhenMemoryComesBack) {
    auto const br = BufferResource::make(limited(1000));
    auto held = br->reserve(device, 900, AllowOverbooking::no).first;
    auto const request = br->request(device, 800, AllowOverbooking::no, nullptr);
    EXPECT_FALSE(request->is_done());
    held.clear();
    auto const reservation = request->take();
    EXPECT_EQ(reservation.size(), 800U);
    EXPECT_EQ(br->memory_reserved(device), 800);
}

TEST(Arbiter, TellsWhenARequestIsServed) {
    auto const br = BufferResource::make(limited(1000));
    auto held = br->allocate(device, 900);
    std::latch served{1};
    auto const request = br->request(device, 800, AllowOverbooking::no, [&] { served.count_down(); });
    held.reset();
    served.wait();
    EXPECT_TRUE(request->is_done());
}

TEST(Arbiter, SmallRequestsDoNotOvertakeALargeOne) {
    auto const br = BufferResource::make(limited(1000));
    auto held = br->reserve(device, 900, AllowOverbooking::no).first;
    auto const large = br->request(device, 800, AllowOverbooking::no, nullptr);
    auto const small = br->request(device, 50, AllowOverbooking::no, nullptr);
    // There is room for 50 bytes, but they are kept for the one that waits longer; the same for who does not wait.
    EXPECT_EQ(br->reserve(device, 50, AllowOverbooking::no).first.size(), 0U);
    held.clear();
    auto const first = large->take();
    auto const second = small->take();
    EXPECT_EQ(br->memory_reserved(device), 850);
}

TEST(Arbiter, AGivenUpRequestLetsTheNextOneThrough) {
    auto const br = BufferResource::make(limited(1000));
    auto const held = br->reserve(device, 900, AllowOverbooking::no).first;
    auto large = br->request(device, 800, AllowOverbooking::no, nullptr);
    auto const small = br->request(device, 50, AllowOverbooking::no, nullptr);
    large.reset();
    EXPECT_EQ(small->take().size(), 50U);
}

TEST(Arbiter, ARequestOverTheLimitIsServedAlone) {
    auto const br = BufferResource::make(limited(1000));
    auto held = br->reserve(device, 100, AllowOverbooking::no).first;
    auto const request = br->request(device, 3000, AllowOverbooking::no, nullptr);
    EXPECT_FALSE(request->is_done());
    held.clear();
    EXPECT_EQ(request->take().size(), 3000U);
}

TEST(Arbiter, ARequestWhoseTimeIsUpSaysWhoHoldsTheMemory) {
    auto const br = BufferResource::make(limited(1000));
    auto const held = br->allocate(device, 600);
    auto const reserved = br->reserve(device, 200, AllowOverbooking::no).first;
    try {
        (void)br->reserve_or_wait(device, 500, AllowOverbooking::no, std::chrono::milliseconds{1});
        FAIL() << "there is not enough memory";
    } catch (ReservationError const& error) {
        EXPECT_EQ(
            std::string{error.what()},
            "cannot reserve 500 B of DEVICE memory: 300 B too much after spilling. DEVICE has a limit of "
            "1000 B: "
            "600 B in buffers (0 B can be spilled, 0 B being read, 0 B being moved), 200 B reserved, 1 "
            "requests "
            "for 500 B wait");
    }
    EXPECT_EQ(br->memory_reserved(device), 200);
}

TEST(Arbiter, ARequestWhoseTimeIsUpMayOverbook) {
    auto const br = BufferResource::make(limited(1000));
    auto const held = br->allocate(device, 900);
    auto const reservation =
        br->reserve_or_wait(device, 500, AllowOverbooking::yes, std::chrono::milliseconds{1});
    EXPECT_EQ(reservation.size(), 500U);
    EXPECT_EQ(br->memory_available(device), -400);
}

TEST(Arbiter, AfterAWaitInVainOthersDoNotWaitForTheSame) {
    auto settings = limited(BufferResource::unlimited);
    std::atomic<std::int64_t> available{-1000};  // as other code of the process leaves it
    settings.available[0] = [&] { return available.load(); };
    settings.statistics = std::make_shared<Statistics>();
    auto const br = BufferResource::make(std::move(settings));
    auto const timeouts = [&] { return br->statistics()->get("reservation-timeouts").count; };
    auto const reserve = [&](std::chrono::milliseconds timeout) {
        return br->reserve_or_wait(device, 100, AllowOverbooking::yes, timeout);
    };
    constexpr std::chrono::milliseconds timeout{300};
    reserve(timeout).clear();
    EXPECT_EQ(timeouts(), 1U);
    for (int i = 0; i < 100; ++i) {
        reserve(timeout).clear();
    }
    EXPECT_EQ(timeouts(), 1U);
    // What is reserved already is not what the first one found.
    auto const held = reserve(timeout);
    auto const more = reserve(timeout);
    EXPECT_EQ(timeouts(), 2U);
    // Who would wait longer waits, and so does everyone when much has become free.
    reserve(timeout + std::chrono::milliseconds{1}).clear();
    EXPECT_EQ(timeouts(), 3U);
    available = -10;
    reserve(timeout).clear();
    EXPECT_EQ(timeouts(), 4U);
}

TEST(Arbiter, SpillsForTheOneThatWaits) {
    auto const br = BufferResource::make(limited(1000));
    SpillableBuffer buffer{br->allocate(device, 900)};
    auto const reservation = br->reserve_or_wait(device, 800, AllowOverbooking::no);
    EXPECT_EQ(reservation.size(), 800U);
    EXPECT_EQ(buffer.mem_type(), br->spill_targets(device).front());
}

TEST(Arbiter, SpillsFromTheHighWaterMarkToTheLowOne) {
    auto settings = limited(100'000);
    settings.high_water = 0.9;
    settings.low_water = 0.5;
    auto const br = BufferResource::make(std::move(settings));
    std::vector<std::unique_ptr<SpillableBuffer>> buffers;
    for (int i = 0; i < 9; ++i) {
        buffers.push_back(std::make_unique<SpillableBuffer>(br->allocate(device, 10'000)));
    }
    EXPECT_EQ(br->memory_used(device), 90'000);  // at the mark, not above
    auto const more = br->allocate(device, 1);
    await([&] { return br->memory_used(device) <= 50'000; });
    EXPECT_EQ(br->memory_used(device), 40'001);
}

TEST(Arbiter, LooksAtWhatAFunctionSaysFromTimeToTime) {
    std::atomic<std::int64_t> available{1'000'000};
    BufferResource::Settings settings;
    settings.available[0] = [&] { return available.load(); };
    auto const br = BufferResource::make(std::move(settings));
    SpillableBuffer const buffer{br->allocate(device, 1000)};
    available = -1;
    await([&] { return buffer.mem_type() != device; });
}

TEST(Arbiter, AFailingDiskFailsWhoNeedsTheMemoryAndNobodyElse) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto settings = limited(1000);
    auto const faults = std::make_shared<DiskFaults>();
    faults->fail_randomly(DiskCall::write, 1, ENOSPC);
    DiskSpace::Settings disk;
    disk.faults_for_testing = faults;
    settings.disk = DiskSpace::make(std::move(disk));
    settings.limits[2] = 0;
    auto const br = BufferResource::make(std::move(settings));
    auto bytes = br->allocate(device, 900);
    bytes->mutable_host_bytes()[7] = std::byte{42};
    SpillableBuffer buffer{std::move(bytes)};
    EXPECT_THROW((void)br->reserve_device_memory_and_spill(800, AllowOverbooking::no), SpillError);
    EXPECT_THROW((void)br->reserve_device_memory_and_spill(800, AllowOverbooking::yes), SpillError);
    EXPECT_EQ(buffer.pin()->host_bytes()[7], std::byte{42});
    EXPECT_EQ(br->memory_reserved(device), 0);

    faults->clear();
    EXPECT_EQ(br->reserve_device_memory_and_spill(800, AllowOverbooking::no).size(), 800U);
    EXPECT_EQ(buffer.mem_type(), MemoryType::DISK);
    EXPECT_EQ(buffer.pin()->host_bytes()[7], std::byte{42});
}

// A producer is faster than the disk: if it did not wait, buffers that are not written yet would fill the memory.
TEST(Arbiter, ReservingWaitsForWhatIsBeingSpilled) {
    constexpr std::size_t size = 1UL << 20U;
    constexpr std::size_t limit = 16 * size;
    for (auto const type : {MemoryType::DEVICE, MemoryType::HOST}) {
        auto settings = limited(BufferResource::unlimited);
        settings.limits[static_cast<std::size_t>(type)] = limit;
        auto const br = BufferResource::make(std::move(settings));
        std::vector<std::unique_ptr<SpillableBuffer>> buffers;
        for (int i = 0; i < 200; ++i) {
            auto reservation = br->reserve_and_spill(type, size, AllowOverbooking::yes);
            buffers.push_back(std::make_unique<SpillableBuffer>(br->allocate(size, reservation)));
            ASSERT_LE(br->memory_used(type), static_cast<std::int64_t>(limit));
        }
        EXPECT_LE(br->memory_peak(type), static_cast<std::int64_t>(limit));
        auto spilled = br->memory_used(MemoryType::DISK);
        if (type == MemoryType::DEVICE) {  // from a GPU to the host, whose memory is not limited here
            spilled += br->memory_used(MemoryType::HOST) + br->memory_used(MemoryType::PINNED_HOST);
        }
        EXPECT_GE(spilled, static_cast<std::int64_t>(184 * size));
    }
}

TEST(Arbiter, RequestsOfADestroyedResourceFail) {
    auto br = BufferResource::make(limited(1000));
    std::shared_ptr<MemoryRequest> request;
    {
        auto const held = br->reserve(device, 900, AllowOverbooking::no).first;
        request = br->request(device, 800, AllowOverbooking::no, nullptr);
        br.reset();
    }
    // The reservation kept the resource until here; the request was served, or failed, but does not wait.
    try {
        EXPECT_EQ(request->take().size(), 800U);
    } catch (ReservationError const&) {
    }
}

TEST(Arbiter, ManyThreadsShareTheMemoryFairly) {
    auto settings = limited(1000);
    auto const br = BufferResource::make(std::move(settings));
    std::atomic<std::int64_t> held{0};
    std::atomic<std::int64_t> most{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 200; ++i) {
                auto const size = static_cast<std::size_t>((i * 37 + t * 101) % 1000 + 1);
                auto const reservation = br->reserve_or_wait(device, size, AllowOverbooking::no);
                auto const now = held += static_cast<std::int64_t>(size);
                for (auto seen = most.load(); now > seen && !most.compare_exchange_weak(seen, now);) {
                }
                held -= static_cast<std::int64_t>(size);
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_LE(most, 1000);
    EXPECT_EQ(br->memory_reserved(device), 0);
}

TEST(Arbiter, MarksMustBeInOrder) {
    BufferResource::Settings settings;
    settings.high_water = 0.5;
    settings.low_water = 0.6;
    EXPECT_THROW((void)BufferResource::make(settings), std::invalid_argument);
    settings.low_water = 0;
    EXPECT_THROW((void)BufferResource::make(settings), std::invalid_argument);
}

TEST(Arbiter, FreeBlocksAreKeptUpToTheLimit) {
    auto& cpu = Device::current();
    if (cpu.kind() != DeviceKind::cpu || device::host_memory_cache_limit() == 0) {
        GTEST_SKIP() << "the device is not a CPU, or free blocks are not kept (AddressSanitizer)";
    }
    constexpr std::size_t MiB = 1U << 20U;
    constexpr std::size_t block = 64 * MiB;
    auto const before = device::host_memory_cache_limit();
    device::set_host_memory_cache_limit(4 * block);
    device::trim_host_memory(0);
    auto* const pointer = device::allocate_host(block);
    std::memset(pointer, 1, block);
    device::deallocate_host(pointer, block);
    ASSERT_EQ(device::cached_host_memory(), block);
    BufferResource::Settings settings;
    settings.periodic_spill_check = std::nullopt;
    settings.high_water = 0.01;  // the process is far above the mark: that alone must not release free blocks
    settings.low_water = 0.01;
    auto const resident = device::measure_host_memory(cpu).resident;
    settings.limits[0] = resident + static_cast<std::int64_t>(8 * MiB);
    EXPECT_GT(BufferResource::make(settings)->memory_available(MemoryType::DEVICE), 0);
    EXPECT_EQ(device::cached_host_memory(), block);
    settings.limits[0] = resident - static_cast<std::int64_t>(8 * MiB);
    EXPECT_GT(BufferResource::make(settings)->memory_available(MemoryType::DEVICE), 0);
    EXPECT_EQ(device::cached_host_memory(), 0U);
    device::set_host_memory_cache_limit(before);
}

}  // namespace
}  // namespace rapidsmpf
