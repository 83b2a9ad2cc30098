#include <rapidsmpf/streaming/spillable_messages.hpp>

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/memory_wait.hpp>
#include <rapidsmpf/streaming/sync_wait.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>

#include "about_the_cpu.hpp"
#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{16} << 10;

// Room for 16 chunks in memory, and a disk below.
std::shared_ptr<BufferResource> room_for_sixteen() {
    BufferResource::Settings settings;
    settings.limits[0] = 16 * chunk_bytes;
    settings.available[0] = [] { return BufferResource::unlimited; };  // about the accounting only
    settings.limits[static_cast<std::size_t>(MemoryType::HOST)] = 0;
    settings.reserve_timeout = std::chrono::seconds{20};
    return BufferResource::make(std::move(settings));
}

// A chunk full of a number.
std::unique_ptr<Buffer> chunk_of(
    BufferResource& resource, MemoryReservation& reservation, std::uint8_t number) {
    auto buffer = resource.allocate(chunk_bytes, reservation);
    auto const bytes = buffer->mutable_host_bytes();
    std::memset(bytes.data(), number, bytes.size());
    return buffer;
}

bool is_full_of(Buffer const& buffer, std::uint8_t number) {
    auto const bytes = buffer.host_bytes();
    return std::ranges::all_of(bytes, [&](std::byte byte) { return byte == std::byte{number}; });
}

Task<void> send_chunks(Context context, ChannelPtr out, int count) {
    for (int i = 0; i < count; ++i) {
        auto const number = static_cast<std::uint8_t>(i);
        auto reservation = co_await reserve_memory(context, chunk_bytes);
        auto buffer = chunk_of(*context.resource(), reservation, number);
        Message message;
        if (i % 2 == 0) {
            message = Message{static_cast<std::uint64_t>(i), std::move(buffer)};
        } else {
            std::vector<std::uint8_t> metadata{number};
            message =
                Message{static_cast<std::uint64_t>(i), PackedData{std::move(metadata), std::move(buffer)}};
        }
        EXPECT_EQ(message.description().bytes(MemoryType::DEVICE), chunk_bytes);
        if (!co_await out->send(std::move(message))) {
            co_return;
        }
    }
    out->finish();
}

Task<void> check_chunks(ChannelPtr in, int* received) {
    while (auto message = co_await in->receive()) {
        auto const number = static_cast<std::uint8_t>(message->sequence());
        EXPECT_EQ(message->sequence(), static_cast<std::uint64_t>(*received));
        auto const buffer = message->holds<PackedData>() ? std::move(message->release<PackedData>().data)
                                                         : message->release<std::unique_ptr<Buffer>>();
        EXPECT_NE(buffer->mem_type(), MemoryType::DISK);
        EXPECT_TRUE(is_full_of(*buffer, number));
        ++*received;
    }
}

TEST(SpillingChannel, TenTimesTheBudgetWaitsAndComesBack) {
    RAPIDSMPF_ABOUT_THE_CPU();
    for (std::size_t threads : {1, 3}) {
        auto const resource = room_for_sixteen();
        Context const context{config::Options{}, nullptr, resource, std::make_shared<Executor>(threads)};
        auto const channel = context.create_channel(ChannelCapacity{ChannelCapacity::unlimited});
        constexpr int count = 160;
        context.executor()->spawn(send_chunks(context, channel, count)).get();
        EXPECT_EQ(channel->size(), count);
        EXPECT_EQ(channel->bytes(), count * chunk_bytes);
        EXPECT_GE(resource->memory_used(MemoryType::DISK), static_cast<std::int64_t>(140 * chunk_bytes));
        int received = 0;
        context.executor()->spawn(check_chunks(channel, &received)).get();
        EXPECT_EQ(received, count);
        EXPECT_LE(resource->memory_peak(MemoryType::DEVICE), static_cast<std::int64_t>(20 * chunk_bytes));
        EXPECT_EQ(resource->memory_used(MemoryType::DEVICE), 0);
        EXPECT_EQ(resource->memory_used(MemoryType::DISK), 0);
    }
}

TEST(SpillingChannel, AThreadThatMayBlockGetsItsBytesToo) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const resource = room_for_sixteen();
    Context const context{config::Options{}, nullptr, resource, std::make_shared<Executor>(1)};
    auto const channel = context.create_channel(ChannelCapacity{ChannelCapacity::unlimited});
    context.executor()->spawn(send_chunks(context, channel, 40)).get();
    for (int i = 0; i < 40; ++i) {
        auto const message = channel->receive_blocking();
        ASSERT_TRUE(message.has_value());
        EXPECT_EQ(message->sequence(), static_cast<std::uint64_t>(i));
    }
    EXPECT_FALSE(channel->receive_blocking().has_value());
}

TEST(SpillingChannel, ACancelledChannelGivesItsMemoryBack) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const resource = room_for_sixteen();
    Context const context{config::Options{}, nullptr, resource, std::make_shared<Executor>(2)};
    auto const channel = context.create_channel(ChannelCapacity{ChannelCapacity::unlimited});
    context.executor()->spawn(send_chunks(context, channel, 60)).get();
    channel->cancel(std::make_exception_ptr(std::domain_error{"no more"}));
    EXPECT_EQ(channel->size(), 0);
    // What is on its way to the disk is free when it has arrived.
    auto const all = resource->reserve_or_wait(MemoryType::DEVICE, 16 * chunk_bytes, AllowOverbooking::no);
    EXPECT_EQ(all.size(), 16 * chunk_bytes);
    EXPECT_EQ(resource->memory_used(MemoryType::DEVICE), 0);
}

TEST(SpillingChannel, TablesArePackedWhenMemoryIsShort) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const resource = BufferResource::make();
    Context const context{config::Options{}, nullptr, resource, std::make_shared<Executor>(1)};
    auto const channel = context.create_channel(ChannelCapacity{10});
    auto const rows = testing::count_rows(0, 100);
    channel->send_blocking(Message{0, testing::make_table(rows)});
    channel->send_blocking(Message{1, TableBatch{testing::make_table(rows)}});
    EXPECT_GT(channel->spill(1 << 20), 0);
    EXPECT_GT(resource->memory_used(MemoryType::DISK), 0);
    EXPECT_EQ(channel->spill(1 << 20), 0);  // all that can be
    EXPECT_EQ(testing::rows_of(channel->receive_blocking()->get<Table>()), rows);
    EXPECT_EQ(testing::rows_of(channel->receive_blocking()->get<TableBatch>().combine(*resource)), rows);
    EXPECT_EQ(resource->memory_used(MemoryType::DISK), 0);
}

TEST(SpillableMessages, KeepsMessagesUnderTheArbiter) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const resource = room_for_sixteen();
    Context const context{config::Options{}, nullptr, resource, std::make_shared<Executor>(2)};
    SpillableMessages messages{context};
    std::vector<SpillableMessages::Id> ids;
    for (std::uint64_t i = 0; i < 64; ++i) {
        auto reservation = sync_wait(reserve_memory(context, chunk_bytes));
        Message message{i, chunk_of(*resource, reservation, static_cast<std::uint8_t>(i))};
        ids.push_back(messages.insert(std::move(message), i));
    }
    EXPECT_EQ(messages.size(), 64);
    std::size_t on_disk = 0;
    for (auto const id : ids) {
        on_disk += messages.description(id).bytes(MemoryType::DISK);
        EXPECT_EQ(messages.description(id).total_bytes(), chunk_bytes);
    }
    EXPECT_EQ(on_disk, static_cast<std::size_t>(resource->memory_used(MemoryType::DISK)));
    EXPECT_GE(on_disk, 40 * chunk_bytes);
    for (std::uint64_t i = 64; i-- > 0;) {
        auto message = sync_wait(messages.extract(ids[i]));
        EXPECT_EQ(message.sequence(), i);
        auto const buffer = message.release<std::unique_ptr<Buffer>>();
        EXPECT_TRUE(is_full_of(*buffer, static_cast<std::uint8_t>(i)));
    }
    EXPECT_EQ(messages.size(), 0);
    EXPECT_THROW((void)messages.extract(ids[0]), std::out_of_range);
    EXPECT_THROW((void)messages.description(ids[0]), std::out_of_range);
    EXPECT_THROW((void)messages.insert(Message()), std::invalid_argument);
}

TEST(SpillableMessages, TablesAndOtherPayloads) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto const resource = BufferResource::make();
    Context const context{config::Options{}, nullptr, resource, std::make_shared<Executor>(1)};
    SpillableMessages messages{context};
    auto const rows = testing::count_rows(0, 100);
    auto const table = messages.insert(Message{0, testing::make_table(rows)});
    auto const number = messages.insert(Message{1, 42});
    EXPECT_GT(messages.spill(1), 0);
    EXPECT_GT(messages.description(table).bytes(MemoryType::DISK), 0);
    EXPECT_EQ(testing::rows_of(sync_wait(messages.extract(table)).get<Table>()), rows);
    EXPECT_EQ(sync_wait(messages.extract(number)).get<int>(), 42);
}

}  // namespace
}  // namespace rapidsmpf::streaming
