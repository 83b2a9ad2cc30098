#include <rapidsmpf/streaming/channel.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/sync_wait.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

namespace rapidsmpf::streaming {
namespace {

std::shared_ptr<Executor> threads(std::size_t count) {
    return std::make_shared<Executor>(count);
}

Message number(std::uint64_t value) {
    return Message{value, std::uint64_t{value}};
}
Message number_of_bytes(std::uint64_t value, std::size_t bytes) {
    return Message{value, std::uint64_t{value}, ContentDescription{MemoryType::HOST, bytes, Spillable::no}};
}

// Sends first, first + 1, ... and returns how many the channel took.
Task<std::uint64_t> produce(ChannelPtr channel, std::uint64_t first, std::uint64_t count) {
    co_await channel->executor()->schedule();
    for (std::uint64_t i = 0; i < count; ++i) {
        auto message = number(first + i);
        if (!co_await channel->send(std::move(message))) {
            co_return i;
        }
    }
    co_return count;
}

Task<std::vector<std::uint64_t>> consume(ChannelPtr channel) {
    co_await channel->executor()->schedule();
    std::vector<std::uint64_t> values;
    while (auto message = co_await channel->receive()) {
        values.push_back(message->release<std::uint64_t>());
    }
    co_return values;
}

Task<void> produce_all(ChannelPtr channel, std::uint64_t first, std::uint64_t count) {
    (void)co_await produce(std::move(channel), first, count);
}

Task<void> consume_into(ChannelPtr channel, std::vector<std::uint64_t>* values) {
    *values = co_await consume(std::move(channel));
}

std::exception_ptr failure(std::string const& text) {
    return std::make_exception_ptr(std::runtime_error{text});
}

// What a call throws, "" when nothing.
template <typename Call>
std::string error_of(Call call) {
    try {
        call();
    } catch (std::exception const& error) {
        return error.what();
    }
    return "";
}

TEST(Channel, DeliversInOrderAndEnds) {
    auto channel = std::make_shared<Channel>(threads(1));
    auto producer = [](ChannelPtr to) -> Task<void> {
        (void)co_await produce(to, 0, 1000);
        to->finish();
    };
    std::vector<std::uint64_t> values;
    std::vector<Task<void>> tasks;
    tasks.push_back(producer(channel));
    tasks.push_back(consume_into(channel, &values));
    sync_wait(when_all(std::move(tasks)));
    std::vector<std::uint64_t> expected(1000);
    std::iota(expected.begin(), expected.end(), std::uint64_t{0});
    EXPECT_EQ(values, expected);
}

TEST(Channel, HoldsItsCapacityInMessages) {
    auto channel = std::make_shared<Channel>(threads(1), ChannelCapacity{3});
    std::atomic<int> sent{0};
    auto producer = [&sent](ChannelPtr to) -> Task<void> {
        for (std::uint64_t i = 0; i < 5; ++i) {
            auto message = number(i);
            co_await to->send(std::move(message));
            ++sent;
        }
    };
    auto future = channel->executor()->spawn(producer(channel));
    // A round trip through the one thread: the producer has run until it waits.
    auto barrier = [](Executor& on) -> Task<void> { co_await on.schedule(); };
    sync_wait(barrier(*channel->executor()));
    EXPECT_EQ(sent, 3);
    EXPECT_EQ(channel->size(), 3U);
    EXPECT_EQ(channel->receive_blocking()->get<std::uint64_t>(), 0U);
    sync_wait(barrier(*channel->executor()));
    EXPECT_EQ(sent, 4);
    channel->shutdown();
    future.get();
}

TEST(Channel, HoldsItsCapacityInBytes) {
    auto channel = std::make_shared<Channel>(threads(1), ChannelCapacity{100, 10});
    std::atomic<int> sent{0};
    auto producer = [&sent](ChannelPtr to) -> Task<void> {
        for (std::size_t const bytes : {4U, 6U, 1U, 0U}) {
            auto message = number_of_bytes(0, bytes);
            co_await to->send(std::move(message));
            ++sent;
        }
    };
    auto future = channel->executor()->spawn(producer(channel));
    auto barrier = [](Executor& on) -> Task<void> { co_await on.schedule(); };
    sync_wait(barrier(*channel->executor()));
    EXPECT_EQ(sent, 2);
    EXPECT_EQ(channel->bytes(), 10U);
    (void)channel->receive_blocking();
    future.get();
    EXPECT_EQ(sent, 4);
    EXPECT_EQ(channel->bytes(), 7U);
}

TEST(Channel, LetsAnOversizedMessageInAlone) {
    auto channel = std::make_shared<Channel>(threads(1), ChannelCapacity{100, 10});
    EXPECT_TRUE(channel->send_blocking(number_of_bytes(1, 1000)));
    auto producer = [](ChannelPtr to) -> Task<void> {
        auto message = number_of_bytes(2, 1);
        co_await to->send(std::move(message));
        to->finish();
    };
    auto future = channel->executor()->spawn(producer(channel));
    EXPECT_EQ(channel->receive_blocking()->get<std::uint64_t>(), 1U);
    EXPECT_EQ(channel->receive_blocking()->get<std::uint64_t>(), 2U);
    EXPECT_FALSE(channel->receive_blocking().has_value());
    future.get();
}

TEST(Channel, RejectsCapacityZero) {
    EXPECT_THROW(ChannelCapacity{0}, std::invalid_argument);
}

TEST(Channel, FinishKeepsWhatIsQueued) {
    auto channel = std::make_shared<Channel>(threads(1));
    EXPECT_TRUE(channel->send_blocking(number(1)));
    channel->finish();
    EXPECT_EQ(channel->receive_blocking()->get<std::uint64_t>(), 1U);
    EXPECT_FALSE(channel->receive_blocking().has_value());
    EXPECT_FALSE(channel->receive_blocking().has_value());
}

TEST(Channel, SendAfterFinishIsAnError) {
    auto channel = std::make_shared<Channel>(threads(1));
    channel->finish();
    EXPECT_THROW((void)channel->send_blocking(number(1)), std::logic_error);
    auto producer = [](ChannelPtr to) -> Task<bool> {
        auto message = number(1);
        co_return co_await to->send(std::move(message));
    };
    EXPECT_THROW((void)sync_wait(producer(channel)), std::logic_error);
}

TEST(Channel, SendOfAnEmptyMessageIsAnError) {
    auto channel = std::make_shared<Channel>(threads(1));
    EXPECT_THROW((void)channel->send_blocking(Message{}), std::invalid_argument);
    EXPECT_THROW((void)channel->send(Message{}), std::invalid_argument);
}

TEST(Channel, ShutdownStopsTheProducer) {
    auto channel = std::make_shared<Channel>(threads(2), ChannelCapacity{2});
    auto taker = [](ChannelPtr from) -> Task<void> {
        for (int i = 0; i < 10; ++i) {
            EXPECT_TRUE((co_await from->receive()).has_value());
        }
        from->shutdown();
        EXPECT_FALSE((co_await from->receive()).has_value());
    };
    std::uint64_t sent = 0;
    auto producer = [](ChannelPtr to, std::uint64_t* count) -> Task<void> {
        *count = co_await produce(to, 0, 1'000'000);
    };
    std::vector<Task<void>> tasks;
    tasks.push_back(producer(channel, &sent));
    tasks.push_back(taker(channel));
    sync_wait(when_all(std::move(tasks)));
    EXPECT_GE(sent, 10U);
    EXPECT_LE(sent, 13U);
    EXPECT_EQ(channel->size(), 0U);
}

TEST(Channel, ShutdownDestroysWhatIsQueued) {
    auto channel = std::make_shared<Channel>(threads(1));
    auto value = std::make_shared<int>(1);
    EXPECT_TRUE(channel->send_blocking(Message{0, std::shared_ptr<int>{value}}));
    EXPECT_EQ(value.use_count(), 2);
    channel->shutdown();
    EXPECT_EQ(value.use_count(), 1);
    EXPECT_FALSE(channel->send_blocking(Message{0, std::shared_ptr<int>{value}}));
    EXPECT_EQ(value.use_count(), 1);
}

TEST(Channel, CancelReachesWaitingReceivers) {
    auto channel = std::make_shared<Channel>(threads(2));
    std::vector<std::uint64_t> first;
    std::vector<std::uint64_t> second;
    auto one = channel->executor()->spawn(consume_into(channel, &first));
    auto two = channel->executor()->spawn(consume_into(channel, &second));
    channel->cancel(failure("broken"));
    EXPECT_EQ(error_of([&] { one.get(); }), "broken");
    EXPECT_EQ(error_of([&] { two.get(); }), "broken");
}

TEST(Channel, CancelReachesWaitingSenders) {
    auto channel = std::make_shared<Channel>(threads(2), ChannelCapacity{1});
    auto one = channel->executor()->spawn(produce_all(channel, 0, 100));
    auto two = channel->executor()->spawn(produce_all(channel, 0, 100));
    channel->cancel(failure("broken"));
    EXPECT_EQ(error_of([&] { one.get(); }), "broken");
    EXPECT_EQ(error_of([&] { two.get(); }), "broken");
    EXPECT_EQ(channel->size(), 0U);
}

TEST(Channel, CancelIsNeverTakenForTheEnd) {
    auto channel = std::make_shared<Channel>(threads(1));
    EXPECT_TRUE(channel->send_blocking(number(1)));
    channel->finish();
    channel->cancel(failure("broken"));
    EXPECT_EQ(error_of([&] { (void)channel->receive_blocking(); }), "broken");
    EXPECT_EQ(error_of([&] { (void)channel->try_receive(); }), "broken");
    EXPECT_EQ(error_of([&] { (void)channel->send_blocking(number(1)); }), "broken");
    EXPECT_EQ(error_of([&] { channel->drain_blocking(); }), "broken");
}

TEST(Channel, KeepsTheFirstError) {
    auto channel = std::make_shared<Channel>(threads(1));
    channel->cancel(failure("first"));
    channel->cancel(failure("second"));
    EXPECT_EQ(error_of([&] { (void)channel->receive_blocking(); }), "first");
    EXPECT_THROW(channel->cancel(nullptr), std::invalid_argument);
}

TEST(Channel, DrainWaitsForTheConsumer) {
    auto channel = std::make_shared<Channel>(threads(1));
    std::atomic<bool> drained{false};
    auto producer = [&drained](ChannelPtr to) -> Task<void> {
        auto message = number(1);
        co_await to->send(std::move(message));
        co_await to->drain();
        drained = true;
    };
    auto future = channel->executor()->spawn(producer(channel));
    auto barrier = [](Executor& on) -> Task<void> { co_await on.schedule(); };
    sync_wait(barrier(*channel->executor()));
    EXPECT_FALSE(drained);
    EXPECT_TRUE(channel->receive_blocking().has_value());
    future.get();
    EXPECT_TRUE(drained);
    EXPECT_FALSE(channel->receive_blocking().has_value());
}

TEST(Channel, DrainEndsAtShutdown) {
    auto channel = std::make_shared<Channel>(threads(1));
    EXPECT_TRUE(channel->send_blocking(number(1)));
    std::thread drainer{[&] { channel->drain_blocking(); }};
    channel->shutdown();
    drainer.join();
}

TEST(Channel, TryReceiveDoesNotWait) {
    auto channel = std::make_shared<Channel>(threads(1));
    EXPECT_FALSE(channel->try_receive().has_value());
    EXPECT_TRUE(channel->send_blocking(number(1)));
    EXPECT_TRUE(channel->try_receive().has_value());
}

TEST(Channel, BlockingCallsOnAnExecutorThreadAreErrors) {
    auto channel = std::make_shared<Channel>(threads(1));
    auto body = [](ChannelPtr on) -> Task<void> {
        co_await on->executor()->schedule();
        (void)on->receive_blocking();
    };
    EXPECT_THROW(sync_wait(body(channel)), std::logic_error);
}

TEST(Channel, BlockingAndCoroutineSidesMix) {
    auto channel = std::make_shared<Channel>(threads(1), ChannelCapacity{2});
    std::vector<std::uint64_t> values;
    auto consumer = channel->executor()->spawn(consume_into(channel, &values));
    for (std::uint64_t i = 0; i < 10'000; ++i) {
        ASSERT_TRUE(channel->send_blocking(number(i)));
    }
    channel->finish();
    consumer.get();
    EXPECT_EQ(values.size(), 10'000U);
    EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
}

// Every value arrives exactly once, and those of one producer that one consumer sees are in order.
TEST(Channel, ManyProducersAndConsumers) {
    constexpr std::uint64_t producers = 8;
    constexpr std::uint64_t consumers = 5;
    constexpr std::uint64_t per_producer = 5'000;
    for (std::size_t const capacity : {1U, 3U, 64U}) {
        auto channel = std::make_shared<Channel>(threads(4), ChannelCapacity{capacity});
        auto sending = [](ChannelPtr to) -> Task<void> {
            std::vector<Task<void>> tasks;
            for (std::uint64_t p = 0; p < producers; ++p) {
                tasks.push_back(produce_all(to, p * per_producer, per_producer));
            }
            co_await when_all(std::move(tasks));
            to->finish();
        };
        std::vector<std::vector<std::uint64_t>> received(consumers);
        std::vector<Task<void>> tasks;
        tasks.push_back(sending(channel));
        for (auto& values : received) {
            tasks.push_back(consume_into(channel, &values));
        }
        sync_wait(when_all(std::move(tasks)));
        std::vector<int> seen(producers * per_producer, 0);
        for (auto const& values : received) {
            std::vector<std::uint64_t> last(producers, 0);
            for (auto const value : values) {
                ++seen[value];
                auto& previous = last[value / per_producer];
                EXPECT_LE(previous, value);
                previous = value;
            }
        }
        EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(seen.size()));
    }
}

TEST(Channel, ShutdownAmongManyLosesNobody) {
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
        auto channel = std::make_shared<Channel>(threads(3), ChannelCapacity{1 + seed % 4});
        std::vector<std::future<void>> futures;
        std::vector<std::vector<std::uint64_t>> received(3);
        for (std::uint64_t p = 0; p < 3; ++p) {
            futures.push_back(channel->executor()->spawn(produce_all(channel, 0, 100'000'000)));
            futures.push_back(channel->executor()->spawn(consume_into(channel, &received[p])));
        }
        for (std::uint32_t i = 0; i < seed * 10; ++i) {
            (void)channel->receive_blocking();
        }
        if (seed % 2 == 0) {
            channel->shutdown();
        } else {
            channel->cancel(failure("stop"));
        }
        for (auto& future : futures) {
            EXPECT_EQ(error_of([&] { future.get(); }), seed % 2 == 0 ? "" : "stop");
        }
    }
}

PackedData packed(BufferResource& resource, std::size_t bytes) {
    return PackedData{std::vector<std::uint8_t>{1}, resource.allocate(MemoryType::DEVICE, bytes)};
}

TEST(ChannelSpill, MovesTheLastMessagesFirst) {
    auto resource = BufferResource::make();
    auto channel = std::make_shared<Channel>(threads(1), ChannelCapacity{10}, resource);
    for (std::uint64_t i = 0; i < 4; ++i) {
        EXPECT_TRUE(channel->send_blocking(Message{i, packed(*resource, 100)}));
    }
    EXPECT_EQ(resource->spill_manager().spill(150), 200U);
    EXPECT_EQ(channel->bytes(), 400U);
    auto const lower = resource->spill_targets(MemoryType::DEVICE).front();
    EXPECT_EQ(resource->memory_used(lower), 200);
    channel->finish();
    for (std::uint64_t i = 0; i < 4; ++i) {
        auto const message = channel->receive_blocking();
        EXPECT_EQ(message->sequence(), i);
        // The first two never left.
        EXPECT_EQ(resource->memory_used(lower), i < 2 ? 200 : i == 2 ? 100 : 0);
        EXPECT_NE(message->get<PackedData>().data->mem_type(), MemoryType::DISK);
    }
    EXPECT_EQ(channel->bytes(), 0U);
}

TEST(ChannelSpill, ADestroyedChannelIsNotAsked) {
    auto resource = BufferResource::make();
    {
        auto channel = std::make_shared<Channel>(threads(1), ChannelCapacity{10}, resource);
        EXPECT_TRUE(channel->send_blocking(Message{0, packed(*resource, 100)}));
    }
    EXPECT_EQ(resource->spill_manager().spill(150), 0U);
    EXPECT_EQ(resource->memory_used(MemoryType::DEVICE), 0);
}

// Receives, sends, spills and an abrupt end at the same time.
TEST(ChannelSpill, RunsBesideReceiversAndEnds) {
    for (int round = 0; round < 20; ++round) {
        auto resource = BufferResource::make();
        auto channel = std::make_shared<Channel>(threads(2), ChannelCapacity{4}, resource);
        auto producer = [](ChannelPtr to, std::shared_ptr<BufferResource> from) -> Task<void> {
            for (std::uint64_t i = 0; i < 500; ++i) {
                Message message{i, packed(*from, 64)};
                if (!co_await to->send(std::move(message))) {
                    break;
                }
            }
            to->finish();
        };
        std::uint64_t received = 0;
        auto consumer = [round](ChannelPtr from, std::uint64_t* count) -> Task<void> {
            while (auto message = co_await from->receive()) {
                EXPECT_EQ(message->sequence(), *count);
                if (++*count == 200 && round % 2 == 1) {
                    from->shutdown();
                }
            }
        };
        std::atomic<bool> stop{false};
        std::thread spiller{[&] {
            while (!stop) {
                (void)resource->spill_manager().spill(64);
                std::this_thread::yield();
            }
        }};
        std::vector<Task<void>> tasks;
        tasks.push_back(producer(channel, resource));
        tasks.push_back(consumer(channel, &received));
        sync_wait(when_all(std::move(tasks)));
        stop = true;
        spiller.join();
        EXPECT_EQ(received, round % 2 == 1 ? 200U : 500U);
        channel.reset();
        // An abrupt end does not wait for a message that is being read back: its bytes are released when the read ends.
        auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
        while (resource->memory_used(MemoryType::DEVICE) != 0
               && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::yield();
        }
        EXPECT_EQ(resource->memory_used(MemoryType::DEVICE), 0) << "round " << round;
        EXPECT_EQ(resource->memory_used(MemoryType::HOST), 0);
    }
}

}  // namespace
}  // namespace rapidsmpf::streaming
