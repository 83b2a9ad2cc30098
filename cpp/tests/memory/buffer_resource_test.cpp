#include <rapidsmpf/memory/buffer_resource.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

#include "about_the_cpu.hpp"

namespace rapidsmpf {
namespace {

std::shared_ptr<BufferResource> limited(
    std::int64_t limit, std::shared_ptr<Statistics> statistics = nullptr) {
    BufferResource::Settings settings;
    settings.statistics = std::move(statistics);
    settings.limits[0] = limit;
    // Nothing is spilled before it must be.
    settings.high_water = 1;
    settings.low_water = 1;
    // No measured resident memory: these tests are about the accounting.
    settings.available[0] = [] { return BufferResource::unlimited; };
    return BufferResource::make(std::move(settings));
}

TEST(BufferResource, ReservationTakesFromWhatIsAvailable) {
    auto const br = limited(1000);
    auto const [reservation, overbooked] = br->reserve(MemoryType::DEVICE, 400, AllowOverbooking::no);
    EXPECT_EQ(overbooked, 0U);
    EXPECT_EQ(reservation.size(), 400U);
    EXPECT_EQ(br->memory_available(MemoryType::DEVICE), 600);
    EXPECT_EQ(br->memory_reserved(MemoryType::DEVICE), 400);
}

TEST(BufferResource, TooMuchWithoutOverbookingGivesNothing) {
    auto const br = limited(1000);
    auto const [reservation, overbooked] = br->reserve(MemoryType::DEVICE, 1500, AllowOverbooking::no);
    EXPECT_EQ(overbooked, 500U);
    EXPECT_EQ(reservation.size(), 0U);
    EXPECT_EQ(br->memory_reserved(MemoryType::DEVICE), 0);
}

TEST(BufferResource, OverbookingCountsOtherPeoplesExcess) {
    auto const br = limited(1000);
    auto const first = br->reserve(MemoryType::DEVICE, 1200, AllowOverbooking::yes);
    auto const second = br->reserve(MemoryType::DEVICE, 100, AllowOverbooking::yes);
    EXPECT_EQ(first.second, 200U);
    EXPECT_EQ(second.second, 300U);
}

TEST(BufferResource, StatisticsHaveTheLargestExcessNotTheSumOfAll) {
    auto const statistics = std::make_shared<Statistics>();
    auto const br = limited(1000, statistics);
    auto const held = br->reserve(MemoryType::DEVICE, 1200, AllowOverbooking::yes).first;
    for (int i = 0; i < 10; ++i) {
        (void)br->reserve(MemoryType::DEVICE, 100, AllowOverbooking::yes);
    }
    EXPECT_EQ(statistics->get("reservation-overbooked-bytes").value, 300);
}

TEST(BufferResource, StatisticsHaveWhatSpillingCouldNotFree) {
    auto const statistics = std::make_shared<Statistics>();
    auto const br = limited(1000, statistics);
    auto remaining = std::size_t{300};
    br->spill_manager().add_spill_function(
        [&remaining](std::size_t amount) {
            auto const freed = std::min(amount, remaining);
            remaining -= freed;
            return freed;
        },
        0);
    EXPECT_EQ(br->spill(MemoryType::DEVICE, 200), 200U);
    EXPECT_EQ(statistics->get("spill-shortfall-bytes").value, 0);
    EXPECT_EQ(br->spill(MemoryType::DEVICE, 250), 100U);
    EXPECT_EQ(br->spill(MemoryType::DEVICE, 50), 0U);
    EXPECT_EQ(statistics->get("spill-freed-bytes").value, 300);
    EXPECT_EQ(statistics->get("spill-shortfall-bytes").value, 150);
}

TEST(BufferResource, AllocationTurnsReservationIntoUse) {
    auto const br = limited(1000);
    auto reservation = br->reserve(MemoryType::DEVICE, 400, AllowOverbooking::no).first;
    auto buffer = br->allocate(300, reservation);
    EXPECT_EQ(reservation.size(), 100U);
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 300);
    EXPECT_EQ(br->memory_available(MemoryType::DEVICE), 600);
    buffer.reset();
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 0);
    EXPECT_EQ(br->memory_peak(MemoryType::DEVICE), 300);
}

TEST(BufferResource, DroppedReservationComesBack) {
    auto const br = limited(1000);
    {
        auto const reservation = br->reserve(MemoryType::DEVICE, 400, AllowOverbooking::no);
    }
    EXPECT_EQ(br->memory_available(MemoryType::DEVICE), 1000);
}

TEST(BufferResource, AllocatingMoreThanReservedIsRefused) {
    auto const br = limited(1000);
    auto reservation = br->reserve(MemoryType::DEVICE, 10, AllowOverbooking::no).first;
    EXPECT_THROW((void)br->allocate(11, reservation), ReservationError);
    EXPECT_EQ(reservation.size(), 10U);
}

TEST(BufferResource, ReleaseReturnsWhatIsLeft) {
    auto const br = limited(1000);
    auto reservation = br->reserve(MemoryType::DEVICE, 100, AllowOverbooking::no).first;
    EXPECT_EQ(br->release(reservation, 30), 70U);
    EXPECT_THROW((void)br->release(reservation, 71), ReservationError);
}

TEST(BufferResource, ReservationOfAnotherResourceIsRefused) {
    auto const br = limited(1000);
    auto const other = limited(1000);
    auto reservation = other->reserve(MemoryType::DEVICE, 100, AllowOverbooking::no).first;
    EXPECT_THROW((void)br->release(reservation, 10), std::invalid_argument);
}

TEST(BufferResource, ReservingSpillsWhatIsMissing) {
    auto const br = limited(1000);
    std::vector<std::unique_ptr<Buffer>> held;
    for (int i = 0; i < 4; ++i) {
        held.push_back(br->allocate(MemoryType::DEVICE, 250));
    }
    br->spill_manager().add_spill_function(
        [&](std::size_t amount) {
            std::size_t freed = 0;
            while (freed < amount && !held.empty()) {
                freed += held.back()->size();
                held.pop_back();
            }
            return freed;
        },
        0);
    auto const reservation = br->reserve_device_memory_and_spill(600, AllowOverbooking::no);
    EXPECT_EQ(reservation.size(), 600U);
    EXPECT_EQ(held.size(), 1U);
}

TEST(BufferResource, SpillingTooLittleIsAReservationError) {
    auto const br = limited(1000);
    auto const held = br->allocate(MemoryType::DEVICE, 900);
    EXPECT_THROW((void)br->reserve_device_memory_and_spill(200, AllowOverbooking::no), ReservationError);
    EXPECT_EQ(br->memory_reserved(MemoryType::DEVICE), 0);
    EXPECT_EQ(br->reserve_device_memory_and_spill(200, AllowOverbooking::yes).size(), 200U);
}

TEST(BufferResource, BestTierWithRoomIsTaken) {
    auto const br = limited(1000);
    constexpr std::array tiers{MemoryType::DEVICE, MemoryType::HOST};
    EXPECT_EQ(br->reserve_best(500, tiers).mem_type(), MemoryType::DEVICE);
    EXPECT_EQ(br->reserve_best(5000, tiers).mem_type(), MemoryType::HOST);
}

TEST(BufferResource, MovingKeepsTheBytes) {
    auto const br = limited(1000);
    auto buffer = br->allocate(MemoryType::DEVICE, 5);
    buffer->write([&](std::byte* bytes, Stream stream) { br->device().copy(bytes, "hello", 5, stream); });
    auto reservation = br->reserve(MemoryType::HOST, 5, AllowOverbooking::no).first;
    auto const moved = br->move(std::move(buffer), reservation);
    EXPECT_EQ(moved->mem_type(), MemoryType::HOST);
    EXPECT_EQ(std::memcmp(moved->host_bytes().data(), "hello", 5), 0);
    EXPECT_EQ(br->memory_used(MemoryType::DEVICE), 0);
}

TEST(BufferResource, CopyOfASlice) {
    auto const br = BufferResource::make();
    auto buffer = br->allocate(MemoryType::HOST, 5);
    std::memcpy(buffer->mutable_host_bytes().data(), "hello", 5);
    auto reservation = br->reserve(MemoryType::HOST, 3, AllowOverbooking::no).first;
    auto const part = br->copy(*buffer, 1, 3, reservation);
    EXPECT_EQ(std::memcmp(part->host_bytes().data(), "ell", 3), 0);
    auto more = br->reserve(MemoryType::HOST, 9, AllowOverbooking::no).first;
    EXPECT_THROW((void)br->copy(*buffer, 3, 3, more), std::invalid_argument);
}

TEST(BufferResource, AdoptedMemoryLivesAsLongAsItsBuffers) {
    auto const br = BufferResource::make();
    auto owner = std::make_shared<std::vector<std::byte>>(100);
    std::weak_ptr<std::vector<std::byte>> const watch = owner;
    auto* const bytes = owner->data();
    auto first = br->adopt(MemoryType::HOST, bytes, 50, owner);
    auto second = br->adopt(MemoryType::HOST, bytes + 50, 50, std::move(owner));
    EXPECT_EQ(br->memory_used(MemoryType::HOST), 100);
    first.reset();
    EXPECT_FALSE(watch.expired());
    second.reset();
    EXPECT_TRUE(watch.expired());
}

TEST(BufferResource, BuffersKeepTheirResourceAlive) {
    auto buffer = BufferResource::make()->allocate(MemoryType::HOST, 10);
    EXPECT_EQ(buffer->resource()->memory_used(MemoryType::HOST), 10);
}

TEST(BufferResource, ConcurrentReservationsNeverExceedTheLimit) {
    auto const br = limited(10'000);
    std::vector<std::thread> threads;
    std::atomic<std::int64_t> worst{0};
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 2'000; ++i) {
                auto [reservation, overbooked] = br->reserve(MemoryType::DEVICE, 3'000, AllowOverbooking::no);
                if (overbooked == 0) {
                    auto const buffer = br->allocate(3'000, reservation);
                    auto const used = br->memory_used(MemoryType::DEVICE);
                    for (auto seen = worst.load(); seen < used && !worst.compare_exchange_weak(seen, used);) {
                    }
                }
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_LE(worst, 10'000);
    EXPECT_EQ(br->memory_available(MemoryType::DEVICE), 10'000);
}

TEST(BufferResource, LimitComesFromTheOptions) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const br =
        BufferResource::from_options(config::Options{config::Strings{{"spill_device_limit", "1GiB"}}});
    EXPECT_LE(br->memory_available(MemoryType::DEVICE), std::int64_t{1} << 30U);
    auto const off =
        BufferResource::from_options(config::Options{config::Strings{{"spill_device_limit", "off"}}});
    auto const share = BufferResource::from_options(
        config::Options{config::Strings{{"memory_limit", "1 GiB"}, {"spill_device_limit", "50%"}}});
    EXPECT_EQ(share->memory_limit(MemoryType::DEVICE), std::int64_t{1} << 29U);
    EXPECT_EQ(off->memory_available(MemoryType::DEVICE), BufferResource::unlimited);
}

TEST(SpillManager, AsksByDescendingPriorityAndStopsWhenEnough) {
    SpillManager manager;
    std::vector<int> order;
    auto const spill = [&](int who) {
        return [&order, who](std::size_t) {
            order.push_back(who);
            return std::size_t{10};
        };
    };
    manager.add_spill_function(spill(1), 1);
    manager.add_spill_function(spill(3), 3);
    manager.add_spill_function(spill(2), 2);
    EXPECT_EQ(manager.spill(15), 20U);
    EXPECT_EQ(order, (std::vector{3, 2}));
}

TEST(PackedData, BytesWithoutMetadataAreRefused) {
    auto const br = BufferResource::make();
    EXPECT_THROW((PackedData{{}, br->allocate(MemoryType::HOST, 1)}), std::invalid_argument);
    EXPECT_THROW((PackedData{{1}, nullptr}), std::invalid_argument);
    EXPECT_TRUE((PackedData{{}, br->allocate(MemoryType::HOST, 0)}).empty());
}

}  // namespace
}  // namespace rapidsmpf
