#include <rapidsmpf/streaming/network.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/memory_wait.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

#include "streaming/activity.hpp"
#include "streaming/tables.hpp"

namespace rapidsmpf::streaming {
namespace {

using testing::count_rows;
using testing::make_table;

std::size_t count(std::string const& text, std::string const& what) {
    std::size_t found = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
        ++found;
    }
    return found;
}

Task<void> send_tables(ChannelPtr out, std::uint64_t number, std::int64_t rows) {
    for (std::uint64_t i = 0; i < number; ++i) {
        Message message{i, make_table(count_rows(0, rows))};
        if (!co_await out->send(std::move(message))) {
            co_return;
        }
    }
}

Task<void> receive_all(ChannelPtr in) {
    while (auto message = co_await in->receive()) {
    }
}

// Receives by two tasks that run beside each other.
Task<void> receive_twofold(ChannelPtr in) {
    std::vector<Task<void>> parts;
    parts.push_back(receive_all(in));
    parts.push_back(receive_all(in));
    co_await when_all(std::move(parts));
}

class NetworkTest : public ::testing::Test {
  protected:
    Context context{config::Options{}, nullptr, BufferResource::make(), std::make_shared<Executor>(2)};
    ChannelPtr channel = context.create_channel(ChannelCapacity{1});

    // What is said of the networks that run, once it has `what` in it.
    std::string described(std::string const& what) {
        auto const end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
        for (;;) {
            auto text = describe_networks(*context.executor());
            if (text.find(what) != std::string::npos || std::chrono::steady_clock::now() > end) {
                return text;
            }
            std::this_thread::yield();
        }
    }
};

TEST_F(NetworkTest, SaysWhatActorsTookAndGaveAndWaitFor) {
    channel->set_outside_consumer();
    std::vector<Actor> actors;
    actors.emplace_back("scan", send_tables(channel, 3, 5), std::vector<ChannelPtr>{}, std::vector{channel});
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    (void)channel->receive_blocking();
    // The second is in the channel, the third waits.
    auto const waits =
        std::string{"'scan' waits for room in channel 0: took 0 messages of 0 rows and 0 bytes, gave 2"};
    EXPECT_NE(described(waits).find(waits + " messages of 10 rows"), std::string::npos)
        << describe_networks(*context.executor());
    auto const text = described("waits for room");
    EXPECT_NE(text.find("from 'scan' to outside: 1 messages of "), std::string::npos) << text;
    EXPECT_NE(text.find("2 of 10 rows and "), std::string::npos) << text;
    while (channel->receive_blocking()) {
    }
    network.get();
}

TEST_F(NetworkTest, ActorsOfOneActivityAreShownAsOne) {
    auto const other = context.create_channel();
    auto const activity = make_activity();
    channel->set_outside_producer();
    other->set_outside_consumer();
    std::vector<Actor> actors;
    actors.emplace_back(
        "both", receive_all(channel), std::vector{channel}, std::vector<ChannelPtr>{}, Actor::OnCancel{},
        activity);
    actors.emplace_back(
        "part", send_tables(other, 1, 1), std::vector<ChannelPtr>{}, std::vector{other}, Actor::OnCancel{},
        activity);
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    auto const text =
        described("'both' waits for input from channel 0: took 0 messages of 0 rows and 0 bytes, gave 1");
    EXPECT_NE(
        text.find("network of 1 actors\n  actor 0 'both' waits for input from channel 0"), std::string::npos)
        << text;
    EXPECT_NE(text.find("gave 1 messages of 1 rows"), std::string::npos) << text;
    EXPECT_EQ(text.find("'part'"), std::string::npos) << text;
    channel->finish();
    network.get();
}

TEST_F(NetworkTest, TheTimeOfAnActivityEndsWithTheLastOfItsActors) {
    auto const other = context.create_channel();
    auto const activity = make_activity();
    auto const trace = std::make_shared<NetworkTrace>();
    channel->set_outside_producer();
    other->set_outside_consumer();
    std::vector<Actor> actors;
    actors.emplace_back(
        "both", send_tables(other, 0, 1), std::vector<ChannelPtr>{}, std::vector{other}, Actor::OnCancel{},
        activity);
    actors.emplace_back(
        "part", receive_all(channel), std::vector{channel}, std::vector<ChannelPtr>{}, Actor::OnCancel{},
        activity);
    auto network = context.executor()->spawn(
        actor_network(*context.executor(), std::move(actors), CancellationSource(), trace));
    EXPECT_FALSE(other->receive_blocking());  // the first has ended
    EXPECT_EQ(trace->num_events(), 0U);
    channel->finish();
    network.get();
    EXPECT_EQ(count(trace->json(), "\"name\":\"both\",\"ts\""), 1U) << trace->json();
}

// Runs a network in the task of an actor.
Task<void> run_inner(std::shared_ptr<Executor> executor, ChannelPtr out) {
    std::vector<Actor> actors;
    actors.emplace_back("inner", send_tables(out, 3, 5), std::vector<ChannelPtr>{}, std::vector{out});
    co_await actor_network(*executor, std::move(actors));
}

TEST_F(NetworkTest, ActorsOfANetworkWithinAnActorHaveTheirOwnAccounts) {
    channel->set_outside_consumer();
    std::vector<Actor> actors;
    actors.emplace_back(
        "outer", run_inner(context.executor(), channel), std::vector<ChannelPtr>{},
        std::vector<ChannelPtr>{});
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    auto const waits =
        std::string{"'inner' waits for room in channel 0: took 0 messages of 0 rows and 0 bytes, gave 1"};
    auto const text = described(waits);
    EXPECT_NE(text.find(waits), std::string::npos) << text;
    while (channel->receive_blocking()) {
    }
    network.get();
}

TEST_F(NetworkTest, AnOperationThatIsPutBackIsNotCounted) {
    auto const activity = make_activity();
    Channel::CallbackOperation operation = Channel::CallbackOperation::receive(*channel);
    operation.set_activity(activity.get());
    Message message{0, make_table(count_rows(0, 5))};
    EXPECT_TRUE(channel->send_blocking(std::move(message)));
    EXPECT_FALSE(operation.start([](void*) noexcept {}, nullptr));
    EXPECT_EQ(channel->share_of(activity->id()).received_rows, 5U);
    operation.put_back();
    auto const share = channel->share_of(activity->id());
    EXPECT_EQ(share.received, 0U);
    EXPECT_EQ(share.received_rows, 0U);
    EXPECT_EQ(share.received_bytes, 0U);
    EXPECT_EQ(channel->size(), 1U);
}

TEST(WaitSum, OfMoreWaitsThanTheirStartTimesCanBeAdded) {
    constexpr std::int64_t begun = std::int64_t{1} << 62;
    WaitSum sum;
    for (int i = 0; i < 5; ++i) {
        sum.begin(begun);
    }
    EXPECT_EQ(sum.until(begun + 2), 10);
    sum.end(begun, begun + 3);
    EXPECT_EQ(sum.until(begun + 4), 19);
    EXPECT_TRUE(sum.any());
}

TEST_F(NetworkTest, WaitsForMemoryAreTold) {
    BufferResource::Settings settings;
    settings.limits[static_cast<std::size_t>(MemoryType::HOST)] = 1000;
    settings.reserve_timeout = std::chrono::hours{1};
    Context const small{
        config::Options{}, nullptr, BufferResource::make(std::move(settings)), context.executor()};
    auto held = small.resource()->reserve(MemoryType::HOST, 1000, AllowOverbooking::no).first;
    auto hungry = [](Context on) -> Task<void> { (void)co_await reserve_memory(on, 500, MemoryType::HOST); };
    std::vector<Actor> actors;
    actors.emplace_back("hungry", hungry(small), std::vector<ChannelPtr>{}, std::vector<ChannelPtr>{});
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    auto const text = described("'hungry' waits for memory");
    EXPECT_NE(text.find("'hungry' waits for memory"), std::string::npos) << text;
    held.clear();
    network.get();
}

TEST_F(NetworkTest, ATraceHasATrackForEachActorAndASliceForEachMessage) {
    auto const trace = std::make_shared<NetworkTrace>();
    std::vector<Actor> actors;
    actors.emplace_back(
        "scan \"it\"", send_tables(channel, 7, 5), std::vector<ChannelPtr>{}, std::vector{channel});
    actors.emplace_back("sink", receive_all(channel), std::vector{channel}, std::vector<ChannelPtr>{});
    run_actor_network(*context.executor(), std::move(actors), CancellationSource(), trace);
    auto const text = trace->json();
    EXPECT_EQ(count(text, "\"thread_name\""), 2U) << text;
    EXPECT_EQ(count(text, "\"args\":{\"name\":\"scan \\\"it\\\"\"}"), 1U) << text;
    EXPECT_EQ(count(text, "\"name\":\"message "), 14U) << text;
    EXPECT_EQ(count(text, "\"name\":\"message 6\""), 2U) << text;
    EXPECT_EQ(count(text, "\"rows\":5,"), 14U) << text;
    EXPECT_EQ(trace->num_dropped(), 0U);
}

TEST_F(NetworkTest, PartsThatRunBesideEachOtherHaveTheirOwnTracks) {
    auto const trace = std::make_shared<NetworkTrace>();
    std::vector<Actor> actors;
    actors.emplace_back("scan", send_tables(channel, 50, 1), std::vector<ChannelPtr>{}, std::vector{channel});
    actors.emplace_back("sink", receive_twofold(channel), std::vector{channel}, std::vector<ChannelPtr>{});
    run_actor_network(*context.executor(), std::move(actors), CancellationSource(), trace);
    auto const text = trace->json();
    EXPECT_EQ(count(text, "\"name\":\"sink (part 2)\""), 1U) << text;
    EXPECT_EQ(count(text, "\"name\":\"message "), 100U) << text;
}

TEST(NetworkTrace, NamesThatAreNotUtf8AreWrittenAsJson) {
    NetworkTrace trace;
    trace.name_actor(1, "a\xff\xc3\xa9\xe2\x82\x01");
    NetworkTrace::Event event;
    event.actor = 1;
    event.begin = 1;
    event.end = 2;
    trace.add(event);
    auto const text = trace.json();
    EXPECT_EQ(count(text, "\"a\\ufffd\xc3\xa9\\ufffd\\ufffd\\u0001\""), 2U) << text;
}

TEST(NetworkTrace, ChannelsOfSeveralNetworksKeepTheirNumbers) {
    auto const executor = std::make_shared<Executor>(1);
    NetworkTrace trace;
    std::set<std::uint64_t> ids;
    for (std::uint64_t number = 0; number < 3; ++number) {
        Channel const made{executor};  // most likely where the last one was
        ids.insert(made.id());
        trace.number_channel(made.id(), number);
        NetworkTrace::Event event;
        event.what = NetworkTrace::What::receive;
        event.actor = 1;
        event.channel = made.id();
        event.begin = static_cast<std::int64_t>(10 * number) + 1;
        event.end = event.begin + 5;
        trace.add(event);
    }
    EXPECT_EQ(ids.size(), 3U);
    for (std::size_t number = 0; number < 3; ++number) {
        EXPECT_EQ(count(trace.json(), "{\"channel\":" + std::to_string(number) + "}"), 1U) << trace.json();
    }
}

TEST_F(NetworkTest, EventsWithoutRoomAreCounted) {
    auto const trace = std::make_shared<NetworkTrace>(4);
    std::vector<Actor> actors;
    actors.emplace_back("scan", send_tables(channel, 50, 1), std::vector<ChannelPtr>{}, std::vector{channel});
    actors.emplace_back("sink", receive_all(channel), std::vector{channel}, std::vector<ChannelPtr>{});
    run_actor_network(*context.executor(), std::move(actors), CancellationSource(), trace);
    EXPECT_EQ(trace->num_events(), 4U);
    EXPECT_GT(trace->num_dropped(), 0U);
    EXPECT_NE(
        trace->json().find("\"dropped_events\":" + std::to_string(trace->num_dropped())), std::string::npos);
}

}  // namespace
}  // namespace rapidsmpf::streaming
