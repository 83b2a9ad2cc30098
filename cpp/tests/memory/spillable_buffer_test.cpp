#include <rapidsmpf/memory/spillable_buffer.hpp>

#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/detail/bytes_spilled.hpp>
#include <rapidsmpf/memory/disk_space.hpp>

#include "about_the_cpu.hpp"
#include "memory/disk/disk_faults.hpp"

namespace rapidsmpf {
namespace {

constexpr auto device = MemoryType::DEVICE;

class SpillableBufferTest : public ::testing::Test {
  protected:
    SpillableBufferTest() {
        DiskSpace::Settings disk;
        disk.faults_for_testing = faults;
        BufferResource::Settings settings;
        settings.limits[2] = 0;  // to disk, also on a machine with a GPU
        settings.disk = DiskSpace::make(std::move(disk));
        br = BufferResource::make(std::move(settings));
    }

    std::unique_ptr<Buffer> bytes(std::string const& text) {
        auto buffer = br->allocate(device, text.size());
        buffer->write(
            [&](std::byte* to, Stream stream) { br->device().copy(to, text.data(), text.size(), stream); });
        buffer->synchronize();
        return buffer;
    }
    static std::string text(Buffer const& buffer) {
        auto const bytes = buffer.host_bytes();
        return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
    }
    std::unique_ptr<SpillableBuffer> of_size(std::size_t size, SpillableBuffer::NextUse next_use) {
        return std::make_unique<SpillableBuffer>(br->allocate(device, size), next_use);
    }

    std::shared_ptr<DiskFaults> faults = std::make_shared<DiskFaults>();
    std::shared_ptr<BufferResource> br;
};

TEST_F(SpillableBufferTest, BytesComeBackFromDisk) {
    SpillableBuffer buffer{bytes("some text")};
    EXPECT_EQ(br->spill_buffers(device, 1), 9U);
    EXPECT_EQ(buffer.mem_type(), MemoryType::DISK);
    EXPECT_EQ(br->memory_used(device), 0);
    EXPECT_EQ(detail::bytes_spilled(*br), 9U);
    EXPECT_EQ(text(*buffer.pin()), "some text");
    EXPECT_EQ(detail::bytes_spilled(*br), 9U);
    EXPECT_EQ(buffer.size(), 9U);
}

TEST_F(SpillableBufferTest, WhatLiesOnDiskIsTakenFromThere) {
    SpillableBuffer buffer{bytes("some text")};
    (void)br->spill_buffers(device, 1);
    auto taken = buffer.take();
    EXPECT_EQ(taken->mem_type(), MemoryType::DISK);
    EXPECT_EQ(taken->data(), nullptr);
    EXPECT_EQ(text(*br->move_to_host_access(std::move(taken))), "some text");
    EXPECT_EQ(br->memory_used(MemoryType::DISK), 0);
    EXPECT_THROW((void)buffer.take(), std::logic_error);
    EXPECT_THROW((void)buffer.try_pin(), std::logic_error);
}

TEST_F(SpillableBufferTest, WhatIsReadIsNotMovedAndNotTaken) {
    SpillableBuffer buffer{bytes("some text")};
    {
        auto const first = buffer.try_pin();
        auto const second = buffer.try_pin();
        EXPECT_EQ(br->spill_buffers(device, 1), 0U);
        EXPECT_THROW((void)buffer.take(), std::logic_error);
    }
    EXPECT_EQ(br->spill_buffers(device, 1), 9U);
}

TEST_F(SpillableBufferTest, WhatIsNeededLastGoesFirst) {
    auto const soon = of_size(100, 1);
    auto const late = of_size(100, 9);
    auto const later = of_size(100, 10);
    EXPECT_EQ(br->spill_buffers(device, 150), 200U);
    EXPECT_EQ(soon->mem_type(), device);
    EXPECT_EQ(late->mem_type(), MemoryType::DISK);
    EXPECT_EQ(later->mem_type(), MemoryType::DISK);
}

TEST_F(SpillableBufferTest, ANewNextUseCounts) {
    auto const first = of_size(100, 1);
    auto const other = of_size(100, 2);
    first->set_next_use(3);
    EXPECT_EQ(br->spill_buffers(device, 1), 100U);
    EXPECT_EQ(first->mem_type(), MemoryType::DISK);
    EXPECT_EQ(other->mem_type(), device);
}

TEST_F(SpillableBufferTest, AmongEqualsTheLargestGoesFirst) {
    auto const small = of_size(10, 1);
    auto const large = of_size(1000, 1);
    EXPECT_EQ(br->spill_buffers(device, 1), 1000U);
    EXPECT_EQ(small->mem_type(), device);
    EXPECT_EQ(large->mem_type(), MemoryType::DISK);
}

TEST_F(SpillableBufferTest, WhatLiesOnDiskAlreadyGoesFirstAndIsNotWrittenAgain) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const written = of_size(100, 1);
    (void)br->spill_buffers(device, 1);
    EXPECT_EQ(written->pin()->size(), 100U);
    EXPECT_EQ(written->mem_type(), device);
    auto const unwritten = of_size(100, 1);
    auto const writes = faults->calls(DiskCall::write);
    EXPECT_EQ(br->spill_buffers(device, 1), 100U);
    EXPECT_EQ(written->mem_type(), MemoryType::DISK);
    EXPECT_EQ(unwritten->mem_type(), device);
    EXPECT_EQ(faults->calls(DiskCall::write), writes);
}

TEST_F(SpillableBufferTest, FetchReadsInTheBackground) {
    struct Listener : MoveListener {
        void moved() noexcept override { told.test_and_set(), told.notify_all(); }
        std::atomic_flag told;
    };
    auto const listener = std::make_shared<Listener>();
    SpillableBuffer buffer{bytes("some text"), SpillableBuffer::soon, listener};
    (void)br->spill_buffers(device, 1);
    faults->hold(DiskCall::read);
    buffer.fetch();
    EXPECT_EQ(buffer.try_pin(), nullptr);
    faults->release(DiskCall::read);
    listener->told.wait(false);
    EXPECT_EQ(text(*buffer.try_pin()), "some text");
}

TEST_F(SpillableBufferTest, WhatIsAboutToBeTakenStays) {
    SpillableBuffer read_back{bytes("some text")};
    SpillableBuffer never_moved{bytes("in memory")};
    (void)br->spill_buffers(device, 10);
    ASSERT_EQ(read_back.mem_type(), MemoryType::DISK);
    ASSERT_EQ(never_moved.mem_type(), MemoryType::DISK);
    (void)never_moved.pin();
    for (auto* const buffer : {&read_back, &never_moved}) {
        buffer->keep_to_take();
        buffer->fetch(AllowOverbooking::no);
        while (buffer->mem_type() != device) {
            std::this_thread::yield();
        }
    }
    EXPECT_EQ(br->spill_buffers(device, 100), 0U);
    (void)read_back.pin();  // and when it has been read meanwhile
    EXPECT_EQ(br->spill_buffers(device, 100), 0U);
    EXPECT_EQ(text(*read_back.take()), "some text");
    EXPECT_EQ(text(*never_moved.take()), "in memory");
    EXPECT_EQ(br->memory_used(device), 0);
    EXPECT_EQ(br->memory_used(MemoryType::DISK), 0);
}

TEST_F(SpillableBufferTest, WhatIsAboutToBeTakenWaitsForMemoryOnDisk) {
    SpillableBuffer buffer{bytes("some text")};
    (void)br->spill_buffers(device, 1);
    faults->hold(DiskCall::read);
    buffer.keep_to_take();
    buffer.fetch(AllowOverbooking::no);
    EXPECT_EQ(buffer.try_pin(), nullptr);
    faults->release(DiskCall::read);
    EXPECT_EQ(text(*br->move_to_host_access(buffer.take())), "some text");
    auto dropped = std::make_unique<SpillableBuffer>(bytes("some text"));
    dropped->keep_to_take();
    dropped.reset();
    EXPECT_EQ(br->memory_used(device), 0);
}

TEST_F(SpillableBufferTest, SeveralComeBackWithOneTransfer) {
    constexpr std::size_t count = 50;
    std::vector<std::unique_ptr<SpillableBuffer>> buffers;
    std::vector<SpillableBuffer*> all;
    for (std::size_t i = 0; i < count; ++i) {
        buffers.push_back(
            std::make_unique<SpillableBuffer>(bytes(std::string(1000 + i, static_cast<char>('A' + i % 26)))));
        all.push_back(buffers.back().get());
    }
    (void)br->spill_buffers(device, std::size_t{1} << 20U);
    (void)all[7]->pin();  // one that is in memory already
    auto const before = faults->calls(DiskCall::read);
    SpillableBuffer::fetch_all(all);
    for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(text(*all[i]->pin()), std::string(1000 + i, static_cast<char>('A' + i % 26)));
    }
    EXPECT_EQ(faults->calls(DiskCall::read), before + 1);
    SpillableBuffer::fetch_all({});
}

TEST_F(SpillableBufferTest, WithoutOverbookingNoneComesBackWhereThereIsNoMemory) {
    BufferResource::Settings settings;
    settings.limits[static_cast<std::size_t>(br->type_to_read_into())] = 1;
    settings.limits[2] = 0;
    DiskSpace::Settings disk;
    disk.faults_for_testing = faults;
    settings.disk = DiskSpace::make(std::move(disk));
    br = BufferResource::make(std::move(settings));
    SpillableBuffer first{bytes("one")};
    SpillableBuffer second{bytes("two")};
    while (first.mem_type() != MemoryType::DISK || second.mem_type() != MemoryType::DISK) {
        (void)br->spill_buffers(device, 10);
    }
    std::array<SpillableBuffer*, 2> const all{&first, &second};
    SpillableBuffer::fetch_all(all, AllowOverbooking::no);
    EXPECT_EQ(first.mem_type(), MemoryType::DISK);
    EXPECT_EQ(faults->calls(DiskCall::read), 0U);
    SpillableBuffer::fetch_all(all, AllowOverbooking::yes);
    EXPECT_EQ(text(*first.pin()), "one");
    EXPECT_EQ(text(*second.pin()), "two");
}

TEST_F(SpillableBufferTest, AFailedFetchIsToldToWhoWantsTheBytes) {
    SpillableBuffer buffer{bytes("some text")};
    (void)br->spill_buffers(device, 1);
    faults->fail(DiskCall::read, 1, 1'000'000, EIO);
    buffer.fetch();
    EXPECT_THROW(
        {
            while (!buffer.try_pin()) {
                std::this_thread::yield();
            }
        },
        SpillError);
    EXPECT_THROW((void)buffer.pin(), SpillError);
    faults->clear();
    EXPECT_EQ(text(*buffer.pin()), "some text");
}

TEST_F(SpillableBufferTest, WhatIsDroppedWhileItMovesIsFreed) {
    auto buffer = std::make_unique<SpillableBuffer>(bytes("some text"));
    faults->hold(DiskCall::write);
    std::thread spiller{[&] { (void)br->spill_buffers(device, 1); }};
    faults->wait_until_held(DiskCall::write, 1);
    EXPECT_EQ(buffer->try_pin(), nullptr);
    buffer.reset();
    EXPECT_EQ(br->memory_used(device), 9);  // still being read by the move
    faults->release(DiskCall::write);
    spiller.join();
    EXPECT_EQ(br->memory_used(device), 0);
    EXPECT_EQ(br->memory_used(MemoryType::DISK), 0);
}

TEST_F(SpillableBufferTest, WhatIsDroppedWhileItIsFetchedIsFreed) {
    auto buffer = std::make_unique<SpillableBuffer>(bytes("some text"));
    (void)br->spill_buffers(device, 1);
    faults->hold(DiskCall::read);
    buffer->fetch();
    buffer.reset();
    faults->release(DiskCall::read);
    while (br->memory_used(device) + br->memory_used(MemoryType::DISK) > 0) {
        std::this_thread::yield();
    }
}

TEST_F(SpillableBufferTest, PinsOutliveTheirBuffer) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto buffer = std::make_unique<SpillableBuffer>(bytes("some text"));
    auto pin = buffer->try_pin();
    buffer.reset();
    EXPECT_EQ(text(*pin), "some text");
    EXPECT_EQ(br->spill_buffers(device, 1), 0U);
    pin.reset();
    EXPECT_EQ(br->memory_used(device), 0);
}

TEST_F(SpillableBufferTest, TheLastPinMayOutliveTheResource) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto pin = std::make_unique<SpillableBuffer>(bytes("some text"))->try_pin();
    br.reset();
    EXPECT_EQ(text(*pin), "some text");
}

TEST_F(SpillableBufferTest, EmptyBuffersStay) {
    SpillableBuffer buffer{br->allocate(device, 0)};
    EXPECT_EQ(br->spill_buffers(device, 1), 0U);
    EXPECT_EQ(buffer.take()->size(), 0U);
}

TEST_F(SpillableBufferTest, NeedsABuffer) {
    EXPECT_THROW(SpillableBuffer{nullptr}, std::invalid_argument);
}

}  // namespace
}  // namespace rapidsmpf
