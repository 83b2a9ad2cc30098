#include <rapidsmpf/memory/detail/spillable_parts.hpp>

#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/disk_space.hpp>

#include "about_the_cpu.hpp"
#include "memory/disk/disk_faults.hpp"

namespace rapidsmpf {
namespace {

constexpr auto device = MemoryType::DEVICE;
constexpr auto disk = MemoryType::DISK;

// Words in one buffer, each of them a part.
class SpillablePartsTest : public ::testing::Test {
  protected:
    SpillablePartsTest() {
        DiskSpace::Settings space;
        space.faults_for_testing = faults;
        BufferResource::Settings settings;
        settings.disk = DiskSpace::make(std::move(space));
        br = BufferResource::make(std::move(settings));
    }

    [[nodiscard]] std::unique_ptr<SpillableParts> words(
        std::vector<std::string> const& words, SpillableBuffer::NextUse next_use = 1) const {
        std::string all;
        std::vector<SpillableParts::Part> parts;
        for (auto const& word : words) {
            parts.push_back({all.size(), word.size()});
            all += word;
        }
        auto buffer = br->allocate(MemoryType::DEVICE, all.size());
        buffer->write(
            [&](std::byte* to, Stream stream) { br->device().copy(to, all.data(), all.size(), stream); });
        buffer->synchronize();
        return std::make_unique<SpillableParts>(std::move(buffer), std::move(parts), next_use);
    }
    [[nodiscard]] std::string text(std::unique_ptr<Buffer> buffer) const {
        auto const readable = br->move_to_host_access(std::move(buffer));
        auto const bytes = readable->host_bytes();
        return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
    }

    std::shared_ptr<DiskFaults> faults = std::make_shared<DiskFaults>();
    std::shared_ptr<BufferResource> br;
};

TEST_F(SpillablePartsTest, PartsAreTakenOneByOneAndOutliveTheWhole) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto parts = words({"one", "", "three"});
    EXPECT_EQ(br->memory_used(device), 8);
    auto third = parts->take(2);
    auto second = parts->take(1);
    EXPECT_EQ(second->size(), 0U);
    EXPECT_EQ(br->memory_used(device), 8);
    parts.reset();
    EXPECT_EQ(br->memory_used(device), 5);
    EXPECT_EQ(text(std::move(third)), "three");
    EXPECT_EQ(br->memory_used(device), 0);
}

TEST_F(SpillablePartsTest, APartIsTakenOnce) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const parts = words({"one", "two"});
    (void)parts->take(0);
    EXPECT_THROW((void)parts->take(0), std::logic_error);
    EXPECT_THROW((void)parts->take(2), std::out_of_range);
    EXPECT_EQ(text(parts->take(1)), "two");
}

TEST_F(SpillablePartsTest, WhatIsLeftIsSpilledAsAWholeAndReadPartByPart) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const parts = words({"one", "", "three", "seven"});
    auto first = parts->take(0);
    EXPECT_EQ(br->spill_buffers(device, 1), 10U);
    EXPECT_EQ(br->memory_used(device), 3);
    EXPECT_EQ(br->memory_used(disk), 10);
    EXPECT_EQ(br->spill_buffers(device, 1), 0U);
    auto last = parts->take(3);
    EXPECT_EQ(last->mem_type(), disk);
    EXPECT_EQ(text(std::move(last)), "seven");
    EXPECT_EQ(br->memory_used(disk), 5);
    EXPECT_EQ(text(std::move(first)), "one");
    EXPECT_EQ(parts->take(1)->size(), 0U);
    EXPECT_THROW((void)parts->take(3), std::logic_error);
    EXPECT_EQ(text(parts->take(2)), "three");
    EXPECT_EQ(br->memory_used(device) + br->memory_used(disk), 0);
}

// From a GPU to the host as one block, which goes on to disk as what is left of it does from a CPU.
TEST_F(SpillablePartsTest, FromAGpuTheyGoToTheHostAsOneBlock) {
    if (br->device().kind() == DeviceKind::cpu) {
        GTEST_SKIP() << "this is about the memory of a GPU, and the compute device is a CPU";
    }
    auto const parts = words({"one", "two", "", "three", "seven"});
    auto first = parts->take(0);
    EXPECT_EQ(br->spill_buffers(device, 1), 13U);
    EXPECT_EQ(br->memory_used(device), 3);
    EXPECT_EQ(br->memory_used(MemoryType::HOST), 16);
    EXPECT_EQ(br->memory_used(disk), 0);
    auto second = parts->take(1);
    EXPECT_EQ(second->mem_type(), MemoryType::HOST);
    EXPECT_EQ(br->spill_buffers(MemoryType::HOST, 1), 10U);
    EXPECT_EQ(br->memory_used(MemoryType::HOST), 3);
    EXPECT_EQ(br->memory_used(disk), 10);
    auto last = parts->take(4);
    EXPECT_EQ(last->mem_type(), disk);
    EXPECT_EQ(text(std::move(first)), "one");
    EXPECT_EQ(text(std::move(second)), "two");
    EXPECT_EQ(parts->take(2)->size(), 0U);
    EXPECT_EQ(text(parts->take(3)), "three");
    EXPECT_EQ(text(std::move(last)), "seven");
    EXPECT_EQ(br->memory_used(device) + br->memory_used(MemoryType::HOST) + br->memory_used(disk), 0);
}

TEST_F(SpillablePartsTest, WhatHasBeenTakenIsNotThereToBeSpilled) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const parts = words({"one", "two"});
    auto const first = parts->take(0);
    auto const second = parts->take(1);
    EXPECT_EQ(br->spill_buffers(device, 1), 0U);
}

TEST_F(SpillablePartsTest, TheyAreSpilledAmongOthersInTheOrderOfTheirNextUse) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const soon = words({"one", "two"}, 1);
    SpillableBuffer const between{br->allocate(device, 100), 2};
    auto const late = words({"three", "seven"}, 3);
    EXPECT_EQ(br->spill_buffers(device, 11), 110U);
    EXPECT_EQ(between.mem_type(), disk);
    EXPECT_EQ(soon->take(0)->mem_type(), device);
    EXPECT_EQ(late->take(0)->mem_type(), disk);
}

TEST_F(SpillablePartsTest, WhatCannotBeWrittenStays) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const parts = words({"one", "two"});
    faults->fail(DiskCall::write, 1, 1'000'000, EIO);
    EXPECT_THROW((void)br->spill_buffers(device, 1), SpillError);
    EXPECT_EQ(text(parts->take(0)), "one");
    faults->clear();
    EXPECT_EQ(br->spill_buffers(device, 1), 3U);
    EXPECT_EQ(text(parts->take(1)), "two");
}

TEST_F(SpillablePartsTest, WithoutADiskTheyStay) {
    RAPIDSMPF_ABOUT_THE_CPU();
    BufferResource::Settings settings;
    settings.limits[static_cast<std::size_t>(disk)] = 0;
    br = BufferResource::make(std::move(settings));
    auto const parts = words({"one", "two"});
    EXPECT_EQ(br->spill_buffers(device, 1), 0U);
    EXPECT_EQ(text(parts->take(1)), "two");
}

TEST_F(SpillablePartsTest, WhoTakesAPartWaitsForAMove) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const parts = words({"one", "two"});
    faults->hold(DiskCall::write);
    std::thread spiller{[&] { EXPECT_EQ(br->spill_buffers(device, 1), 6U); }};
    faults->wait_until_held(DiskCall::write, 1);
    std::thread taker{[&] { EXPECT_EQ(text(parts->take(0)), "one"); }};
    faults->release(DiskCall::write);
    taker.join();
    spiller.join();
    EXPECT_EQ(parts->take(1)->mem_type(), disk);
}

TEST_F(SpillablePartsTest, WhatIsDroppedWhileItMovesIsFreed) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto parts = words({"one", "two"});
    faults->hold(DiskCall::write);
    std::thread spiller{[&] { (void)br->spill_buffers(device, 1); }};
    faults->wait_until_held(DiskCall::write, 1);
    parts.reset();
    EXPECT_EQ(br->memory_used(device), 6);  // still being read by the move
    faults->release(DiskCall::write);
    spiller.join();
    EXPECT_EQ(br->memory_used(device) + br->memory_used(disk), 0);
}

TEST_F(SpillablePartsTest, PartsMustBeInTheirBuffer) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const make = [&](SpillableParts::Part part) { SpillableParts{br->allocate(device, 10), {part}, 1}; };
    EXPECT_NO_THROW(make({10, 0}));
    EXPECT_THROW(make({8, 3}), std::invalid_argument);
    EXPECT_THROW(make({11, 0}), std::invalid_argument);
    EXPECT_THROW((SpillableParts{nullptr, {}, 1}), std::invalid_argument);
}

// Neighbours in one block become one buffer without a copy, and the budget counts what it did before.
TEST_F(SpillablePartsTest, NeighboursArePutTogetherAndToldApart) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const block = std::shared_ptr<std::byte>(new std::byte[12], std::default_delete<std::byte[]>());
    auto first = br->adopt(device, block.get(), 4, block);
    auto second = br->adopt(device, block.get() + 4, 8, block);
    EXPECT_TRUE(first->is_followed_by(*second));
    EXPECT_FALSE(second->is_followed_by(*first));
    EXPECT_FALSE(first->is_followed_by(*br->allocate(device, 8)));
    first->append(std::move(second));
    EXPECT_EQ(first->size(), 12U);
    EXPECT_EQ(br->memory_used(device), 12);
    auto const end = first->split_off(10, 2);
    EXPECT_EQ(end->data(), block.get() + 10);
    EXPECT_EQ(br->memory_used(device), 12);
    EXPECT_THROW((void)first->split_off(11, 2), std::logic_error);
    first.reset();
    EXPECT_EQ(br->memory_used(device), 2);
}

}  // namespace
}  // namespace rapidsmpf
