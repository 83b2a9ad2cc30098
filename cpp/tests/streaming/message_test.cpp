#include <rapidsmpf/streaming/message.hpp>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>

#include "about_the_cpu.hpp"
#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

PackedData packed(BufferResource& resource, MemoryType type, std::string const& text) {
    auto buffer = resource.allocate(type, text.size());
    std::memcpy(buffer->mutable_host_bytes().data(), text.data(), text.size());
    return PackedData{std::vector<std::uint8_t>{1, 2, 3}, std::move(buffer)};
}

std::string text_of(PackedData const& data) {
    auto const bytes = data.data->host_bytes();
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

TEST(Message, HoldsItsPayload) {
    Message message{7, std::string{"hello"}};
    EXPECT_FALSE(message.empty());
    EXPECT_EQ(message.sequence(), 7U);
    EXPECT_TRUE(message.holds<std::string>());
    EXPECT_FALSE(message.holds<int>());
    EXPECT_EQ(message.get<std::string>(), "hello");
}

TEST(Message, ReleaseLeavesItEmpty) {
    Message message{0, std::make_unique<int>(3)};
    auto const value = message.release<std::unique_ptr<int>>();
    EXPECT_EQ(*value, 3);
    EXPECT_TRUE(message.empty());
    EXPECT_THROW((void)message.release<std::unique_ptr<int>>(), std::invalid_argument);
}

TEST(Message, NamesBothTypesWhenTheyDiffer) {
    Message message{0, 3};
    try {
        (void)message.get<double>();
        FAIL() << "no exception";
    } catch (std::invalid_argument const& error) {
        EXPECT_NE(std::string{error.what()}.find("holds a int, not a double"), std::string::npos)
            << error.what();
    }
}

TEST(Message, TakesADescriptionOfItsOwn) {
    Message message{0, 3, ContentDescription{MemoryType::HOST, 100, Spillable::no}};
    EXPECT_EQ(message.description().bytes(MemoryType::HOST), 100U);
    EXPECT_EQ(message.description().total_bytes(), 100U);
}

TEST(Message, DescribesTheRowsOfTablesPackedOrNot) {
    auto const resource = BufferResource::make();
    auto const table = testing::make_table(testing::count_rows(0, 12));
    EXPECT_EQ((Message{0, Table{table}}.description().rows()), 12U);
    EXPECT_EQ((Message{0, TableBatch{std::vector<Table>{table, table}}}.description().rows()), 24U);
    EXPECT_EQ((Message{0, pack(table, *resource)}.description().rows()), 12U);
    EXPECT_EQ((Message{0, packed(*resource, MemoryType::HOST, "no rows")}.description().rows()), 0U);
}

TEST(Message, DescribesPackedData) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto resource = BufferResource::make();
    Message message{0, packed(*resource, MemoryType::DEVICE, "0123456789")};
    EXPECT_EQ(message.description().bytes(MemoryType::DEVICE), 10U);
    EXPECT_TRUE(message.description().spillable());
}

TEST(Message, SpillMovesPackedDataToALowerTier) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto resource = BufferResource::make();
    auto const lower = resource->spill_targets(MemoryType::DEVICE).front();
    Message message{0, packed(*resource, MemoryType::DEVICE, "0123456789")};
    EXPECT_EQ(message.spill(), 10U);
    EXPECT_EQ(message.description().bytes(MemoryType::DEVICE), 0U);
    EXPECT_EQ(message.description().bytes(lower), 10U);
    EXPECT_FALSE(message.description().spillable());
    EXPECT_EQ(message.spill(), 0U);
    EXPECT_EQ(resource->memory_used(MemoryType::DEVICE), 0);
    auto payload = message.release<PackedData>();
    payload.data = resource->move_to_host_access(std::move(payload.data));
    EXPECT_EQ(text_of(payload), "0123456789");
}

TEST(Message, SpillDoesNothingWhenThereIsNoRoomBelow) {
    RAPIDSMPF_ABOUT_THE_CPU();
    BufferResource::Settings settings;
    settings.limits[static_cast<std::size_t>(MemoryType::HOST)] = 5;
    settings.limits[static_cast<std::size_t>(MemoryType::DISK)] = 0;
    auto resource = BufferResource::make(settings);
    Message message{0, packed(*resource, MemoryType::DEVICE, "0123456789")};
    EXPECT_EQ(message.spill(), 0U);
    EXPECT_EQ(text_of(message.get<PackedData>()), "0123456789");
    EXPECT_EQ(message.description().bytes(MemoryType::DEVICE), 10U);
}

TEST(Message, ReleasesForeignPayloads) {
    int released = 0;
    auto release = [](void* object) { ++*static_cast<int*>(object); };
    {
        Message message{0, ForeignPayload{&released, release}};
    }
    EXPECT_EQ(released, 1);
    {
        Message message{0, ForeignPayload{&released, release}};
        auto payload = message.release<ForeignPayload>();
        EXPECT_EQ(payload.take(), &released);
    }
    EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace rapidsmpf::streaming
