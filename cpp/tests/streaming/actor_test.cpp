#include <rapidsmpf/streaming/actor.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/memory_wait.hpp>
#include <rapidsmpf/streaming/network.hpp>
#include <rapidsmpf/streaming/sync_wait.hpp>
#include <rapidsmpf/streaming/synchronisation.hpp>
#include <rapidsmpf/streaming/throttle.hpp>

namespace rapidsmpf::streaming {
namespace {

constexpr std::uint64_t never = ~std::uint64_t{0};

class ActorNetworkTest : public ::testing::TestWithParam<std::size_t> {
  protected:
    Context context{
        config::Options{}, nullptr, BufferResource::make(), std::make_shared<Executor>(GetParam())};

    void run(std::vector<Actor> actors) { run_actor_network(*context.executor(), std::move(actors)); }
    std::string error_of(std::vector<Actor> actors) {
        try {
            run(std::move(actors));
        } catch (std::exception const& error) {
            return error.what();
        }
        return "";
    }
};

Task<void> source(
    ChannelPtr out, std::uint64_t count, std::uint64_t fail_at, std::atomic<std::uint64_t>* sent) {
    for (std::uint64_t i = 0; i < count; ++i) {
        if (i == fail_at) {
            throw std::runtime_error{"source failed"};
        }
        Message message{i, std::uint64_t{i}};
        if (!co_await out->send(std::move(message))) {
            co_return;
        }
        ++*sent;
    }
    if (fail_at == count) {
        throw std::runtime_error{"source failed"};
    }
}

// Doubles numbers.
Task<void> transform(ChannelPtr in, ChannelPtr out, std::uint64_t fail_at) {
    std::uint64_t seen = 0;
    while (auto message = co_await in->receive()) {
        if (seen++ == fail_at) {
            throw std::runtime_error{"transform failed"};
        }
        auto const sequence = message->sequence();
        Message doubled{sequence, message->release<std::uint64_t>() * 2};
        if (!co_await out->send(std::move(doubled))) {
            co_return;
        }
    }
}

// Sums up to `limit` numbers.
Task<void> sink(ChannelPtr in, std::uint64_t limit, std::uint64_t fail_at, std::atomic<std::uint64_t>* sum) {
    for (std::uint64_t seen = 0; seen < limit; ++seen) {
        if (seen == fail_at) {
            throw std::runtime_error{"sink failed"};
        }
        auto message = co_await in->receive();
        if (!message) {
            co_return;
        }
        *sum += message->release<std::uint64_t>();
    }
}

TEST_P(ActorNetworkTest, RunsAPipeline) {
    auto a = context.create_channel();
    auto b = context.create_channel();
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> sum{0};
    std::vector<Actor> actors;
    actors.emplace_back("sink", sink(b, never, never, &sum), std::vector{b}, std::vector<ChannelPtr>{});
    actors.emplace_back("transform", transform(a, b, never), std::vector{a}, std::vector{b});
    actors.emplace_back("source", source(a, 1000, never, &sent), std::vector<ChannelPtr>{}, std::vector{a});
    run(std::move(actors));
    EXPECT_EQ(sum, 999'000U);
}

TEST_P(ActorNetworkTest, RunsNothing) {
    run({});
}

TEST_P(ActorNetworkTest, EndsAChannelWithItsLastProducer) {
    auto a = context.create_channel(ChannelCapacity{1});
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> sum{0};
    std::vector<Actor> actors;
    for (std::uint64_t count : {0U, 10U, 1000U}) {
        actors.emplace_back(
            "source", source(a, count, never, &sent), std::vector<ChannelPtr>{}, std::vector{a});
    }
    for (int i = 0; i < 4; ++i) {
        actors.emplace_back("sink", sink(a, never, never, &sum), std::vector{a}, std::vector<ChannelPtr>{});
    }
    run(std::move(actors));
    EXPECT_EQ(sent, 1010U);
    EXPECT_EQ(sum, 45U + 499'500U);
}

TEST_P(ActorNetworkTest, AConsumerThatHasEnoughStopsTheSource) {
    auto a = context.create_channel(ChannelCapacity{2});
    auto b = context.create_channel(ChannelCapacity{2});
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> sum{0};
    std::vector<Actor> actors;
    actors.emplace_back(
        "source", source(a, 1'000'000'000, never, &sent), std::vector<ChannelPtr>{}, std::vector{a});
    actors.emplace_back("transform", transform(a, b, never), std::vector{a}, std::vector{b});
    actors.emplace_back("sink", sink(b, 10, never, &sum), std::vector{b}, std::vector<ChannelPtr>{});
    run(std::move(actors));
    EXPECT_EQ(sum, 90U);
    EXPECT_LE(sent, 30U);
}

TEST_P(ActorNetworkTest, ThrowsTheFirstErrorWhereverItHappens) {
    struct Case {
        std::string expected;
        std::uint64_t source_fails;
        std::uint64_t transform_fails;
        std::uint64_t sink_fails;
    };
    std::vector<Case> cases;
    for (std::uint64_t at : {0U, 1U, 5U, 100U}) {
        cases.push_back({"source failed", at, never, never});
        cases.push_back({"sink failed", never, never, at});
    }
    for (std::uint64_t at : {0U, 1U, 5U, 99U}) {
        cases.push_back({"transform failed", never, at, never});
    }
    for (auto const& [expected, source_fails, transform_fails, sink_fails] : cases) {
        auto a = context.create_channel(ChannelCapacity{2});
        auto b = context.create_channel(ChannelCapacity{2});
        std::atomic<std::uint64_t> sent{0};
        std::atomic<std::uint64_t> sum{0};
        std::vector<Actor> actors;
        actors.emplace_back(
            "source", source(a, 100, source_fails, &sent), std::vector<ChannelPtr>{}, std::vector{a});
        actors.emplace_back("transform", transform(a, b, transform_fails), std::vector{a}, std::vector{b});
        actors.emplace_back(
            "sink", sink(b, never, sink_fails, &sum), std::vector{b}, std::vector<ChannelPtr>{});
        EXPECT_EQ(error_of(std::move(actors)), expected) << source_fails << transform_fails << sink_fails;
        EXPECT_EQ(a->size() + b->size(), 0U);
    }
}

TEST_P(ActorNetworkTest, AnErrorReachesActorsWithoutACommonChannel) {
    auto a = context.create_channel();
    auto b = context.create_channel();
    std::atomic<std::uint64_t> sum{0};
    auto fail = []() -> Task<void> {
        throw std::runtime_error{"elsewhere"};
        co_return;
    };
    std::vector<Actor> actors;
    // No producer ever sends to these two.
    a->set_outside_producer();
    b->set_outside_producer();
    actors.emplace_back("one", sink(a, never, never, &sum), std::vector{a}, std::vector<ChannelPtr>{});
    actors.emplace_back("two", sink(b, never, never, &sum), std::vector{b}, std::vector<ChannelPtr>{});
    actors.emplace_back("fail", fail(), std::vector<ChannelPtr>{}, std::vector<ChannelPtr>{});
    EXPECT_EQ(error_of(std::move(actors)), "elsewhere");
}

TEST_P(ActorNetworkTest, AnErrorEndsBlockingWaitsThroughOnCancel) {
    std::latch cancelled{1};
    auto blocked = [&cancelled](std::shared_ptr<Executor> executor) -> Task<void> {
        auto call = [&cancelled] { cancelled.wait(); };
        co_await executor->run_blocking(std::move(call));
        throw std::runtime_error{"a consequence"};
    };
    auto fail = []() -> Task<void> {
        throw std::runtime_error{"the cause"};
        co_return;
    };
    std::vector<Actor> actors;
    actors.emplace_back(
        "blocked", blocked(context.executor()), std::vector<ChannelPtr>{}, std::vector<ChannelPtr>{},
        [&cancelled](std::exception_ptr) { cancelled.count_down(); });
    actors.emplace_back("fail", fail(), std::vector<ChannelPtr>{}, std::vector<ChannelPtr>{});
    EXPECT_EQ(error_of(std::move(actors)), "the cause");
}

TEST_P(ActorNetworkTest, LeaksNothingAfterAnError) {
    auto witness = std::make_shared<int>(1);
    auto a = context.create_channel(ChannelCapacity{3});
    auto holder = [](ChannelPtr out, std::shared_ptr<int> held) -> Task<void> {
        for (;;) {
            Message message{0, std::shared_ptr<int>{held}};
            co_await out->send(std::move(message));
        }
    };
    auto fail = [](ChannelPtr in) -> Task<void> {
        for (int i = 0; i < 10; ++i) {
            (void)co_await in->receive();
        }
        throw std::runtime_error{"enough"};
    };
    std::vector<Actor> actors;
    actors.emplace_back("one", holder(a, witness), std::vector<ChannelPtr>{}, std::vector{a});
    actors.emplace_back("two", holder(a, witness), std::vector<ChannelPtr>{}, std::vector{a});
    actors.emplace_back("fail", fail(a), std::vector{a}, std::vector<ChannelPtr>{});
    EXPECT_EQ(error_of(std::move(actors)), "enough");
    EXPECT_EQ(witness.use_count(), 1);
    EXPECT_EQ(a.use_count(), 1);
}

TEST_P(ActorNetworkTest, RefusesToBlockAnExecutorThread) {
    auto body = [](Executor& executor) -> Task<void> {
        co_await executor.schedule();
        run_actor_network(executor, {});
    };
    EXPECT_THROW(sync_wait(body(*context.executor())), std::logic_error);
}

TEST_P(ActorNetworkTest, NetworksNest) {
    auto inner = [](Executor& executor, ChannelPtr a, std::atomic<std::uint64_t>* sent,
                    std::atomic<std::uint64_t>* sum) -> Task<void> {
        std::vector<Actor> actors;
        actors.emplace_back("source", source(a, 10, never, sent), std::vector<ChannelPtr>{}, std::vector{a});
        actors.emplace_back("sink", sink(a, never, never, sum), std::vector{a}, std::vector<ChannelPtr>{});
        co_await actor_network(executor, std::move(actors));
    };
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> sum{0};
    auto a = context.create_channel();
    std::vector<Actor> actors;
    actors.emplace_back(
        "outer", inner(*context.executor(), a, &sent, &sum), std::vector<ChannelPtr>{},
        std::vector<ChannelPtr>{});
    run(std::move(actors));
    EXPECT_EQ(sum, 45U);
}

TEST_P(ActorNetworkTest, TalksToTheOutside) {
    auto in = context.create_channel(ChannelCapacity{2});
    auto out = context.create_channel(ChannelCapacity{2});
    in->set_outside_producer();
    out->set_outside_consumer();
    std::vector<Actor> actors;
    actors.emplace_back("transform", transform(in, out, never), std::vector{in}, std::vector{out});
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    for (std::uint64_t i = 0; i < 100; ++i) {
        ASSERT_TRUE(in->send_blocking(Message{i, std::uint64_t{i}}));
        ASSERT_EQ(out->receive_blocking()->get<std::uint64_t>(), 2 * i);
    }
    in->finish();
    EXPECT_FALSE(out->receive_blocking().has_value());
    network.get();
}

TEST_P(ActorNetworkTest, AChannelWithOneEndIsRefused) {
    std::atomic<std::uint64_t> count{0};
    auto const a = context.create_channel();
    std::vector<Actor> actors;
    actors.emplace_back("lonely", source(a, 10, never, &count), std::vector<ChannelPtr>{}, std::vector{a});
    EXPECT_EQ(
        error_of(std::move(actors)),
        "no actor receives from the channel that 'lonely' sends to: add one, or say set_outside_consumer()");
    std::vector<Actor> others;
    auto const b = context.create_channel();
    others.emplace_back("hungry", sink(b, never, never, &count), std::vector{b}, std::vector<ChannelPtr>{});
    EXPECT_EQ(
        error_of(std::move(others)),
        "no actor sends to the channel that 'hungry' receives from: add one, or say set_outside_producer()");
    EXPECT_EQ(count, 0U);
    // Who waits outside hears of it.
    EXPECT_THROW((void)b->receive_blocking(), std::invalid_argument);
}

TEST_P(ActorNetworkTest, ActorsThatAllWaitForEachOtherAreToldSo) {
    auto const a = context.create_channel(ChannelCapacity{1});
    auto const b = context.create_channel(ChannelCapacity{1});
    auto echo = [](ChannelPtr in, ChannelPtr out) -> Task<void> {
        while (auto message = co_await in->receive()) {
            co_await out->send(std::move(*message));
        }
    };
    std::vector<Actor> actors;
    actors.emplace_back("chicken", echo(a, b), std::vector{a}, std::vector{b});
    actors.emplace_back("egg", echo(b, a), std::vector{b}, std::vector{a});
    auto const text = error_of(std::move(actors));
    EXPECT_NE(text.find("'chicken' waits for input from channel"), std::string::npos) << text;
    EXPECT_NE(text.find("'egg' waits for input from channel"), std::string::npos) << text;
}

// Every way in which actors of the library's own waits can come to a standstill together.
TEST_P(ActorNetworkTest, WaitsForTicketsLocksAndEventsAreWaits) {
    auto const executor = context.executor();
    struct Case {
        std::string name;
        std::function<Task<void>()> wait;
        std::string text;
    };
    auto const semaphore = std::make_shared<AsyncSemaphore>(executor, 1);
    auto const permit = semaphore->try_acquire();
    auto const mutex = std::make_shared<AsyncMutex>(executor);
    auto const guard = mutex->try_lock();
    auto const event = std::make_shared<AsyncEvent>(executor);
    auto const full = context.create_channel(ChannelCapacity{1});
    auto const throttle = std::make_shared<Throttle>(full, 1);
    auto hold = [](std::shared_ptr<Throttle> from) -> Task<void> {
        auto ticket = co_await from->acquire();
        auto const other = co_await from->acquire();  // it has the only one
    };
    auto on_semaphore = [](std::shared_ptr<AsyncSemaphore> on) -> Task<void> {
        auto const held = co_await on->acquire();
    };
    auto on_mutex = [](std::shared_ptr<AsyncMutex> on) -> Task<void> {
        auto const held = co_await on->lock();
    };
    auto on_event = [](std::shared_ptr<AsyncEvent> on) -> Task<void> { co_await on->wait(); };
    std::vector<Case> const cases{
        {"permit", [&] { return on_semaphore(semaphore); }, "waits for a semaphore"},
        {"mutex", [&] { return on_mutex(mutex); }, "waits for a mutex"},
        {"event", [&] { return on_event(event); }, "waits for an event"},
        {"ticket", [&] { return hold(throttle); }, "waits for a ticket"},
    };
    for (auto const& each : cases) {
        SCOPED_TRACE(each.name);
        auto const channel = context.create_channel();
        std::atomic<std::uint64_t> sum{0};
        std::vector<Actor> actors;
        actors.emplace_back("waiter", each.wait(), std::vector<ChannelPtr>{}, std::vector{channel});
        actors.emplace_back(
            "sink", sink(channel, never, never, &sum), std::vector{channel}, std::vector<ChannelPtr>{});
        auto const text = error_of(std::move(actors));
        EXPECT_NE(text.find("'waiter' " + each.text), std::string::npos) << text;
        EXPECT_NE(text.find("'sink' waits for input from channel"), std::string::npos) << text;
    }
}

TEST_P(ActorNetworkTest, AFailureEndsWaitsForLocksEventsMemoryAndTime) {
    auto const executor = context.executor();
    auto const event = std::make_shared<AsyncEvent>(executor);
    auto const mutex = std::make_shared<AsyncMutex>(executor);
    auto const guard = mutex->try_lock();
    std::atomic<int> ended{0};
    auto on_event = [](std::shared_ptr<AsyncEvent> on, std::atomic<int>* count) -> Task<void> {
        try {
            co_await on->wait();
        } catch (std::domain_error const&) {
            ++*count;
        }
        // Nor do later waits wait.
        co_await on->wait();
    };
    auto on_mutex = [](std::shared_ptr<AsyncMutex> on) -> Task<void> {
        auto const held = co_await on->lock();
    };
    auto on_time = [](std::shared_ptr<Executor> on) -> Task<void> {
        std::chrono::hours const long_time{1};
        co_await sleep_for(std::move(on), long_time);
    };
    auto on_memory = [](Context of) -> Task<void> {
        (void)co_await reserve_memory(of, 500, MemoryType::HOST);
    };
    BufferResource::Settings settings;
    settings.limits[static_cast<std::size_t>(MemoryType::HOST)] = 1000;
    settings.reserve_timeout = std::chrono::hours{1};
    Context const small{config::Options{}, nullptr, BufferResource::make(std::move(settings)), executor};
    auto const held = small.resource()->reserve(MemoryType::HOST, 1000, AllowOverbooking::no).first;
    auto fail_later = [](std::shared_ptr<Executor> on) -> Task<void> {
        std::chrono::milliseconds const pause{20};
        co_await sleep_for(std::move(on), pause);
        throw std::domain_error{"injected"};
    };
    std::vector<Actor> actors;
    auto const add = [&actors](std::string const& name, Task<void> task) {
        actors.emplace_back(name, std::move(task), std::vector<ChannelPtr>{}, std::vector<ChannelPtr>{});
    };
    add("event", on_event(event, &ended));
    add("mutex", on_mutex(mutex));
    add("time", on_time(executor));
    add("memory", on_memory(small));
    add("fails", fail_later(executor));
    EXPECT_EQ(error_of(std::move(actors)), "injected");
    EXPECT_EQ(ended, 1);
}

TEST_P(ActorNetworkTest, ANetworkThatWaitsForTheClockIsNotAtAStandstill) {
    auto const a = context.create_channel();
    std::atomic<std::uint64_t> sum{0};
    auto slow = [](std::shared_ptr<Executor> executor, ChannelPtr out) -> Task<void> {
        std::chrono::milliseconds const pause{20};
        co_await sleep_for(executor, pause);
        Message message{0, std::uint64_t{1}};
        co_await out->send(std::move(message));
    };
    std::vector<Actor> actors;
    actors.emplace_back("slow", slow(context.executor(), a), std::vector<ChannelPtr>{}, std::vector{a});
    actors.emplace_back("sink", sink(a, never, never, &sum), std::vector{a}, std::vector<ChannelPtr>{});
    EXPECT_EQ(error_of(std::move(actors)), "");
    EXPECT_EQ(sum, 1U);
}

TEST_P(ActorNetworkTest, CanBeLookedAtWhileItRuns) {
    auto const in = context.create_channel(ChannelCapacity{2});
    auto const out = context.create_channel(ChannelCapacity{2});
    in->set_outside_producer();
    out->set_outside_consumer();
    std::vector<Actor> actors;
    actors.emplace_back("transform", transform(in, out, never), std::vector{in}, std::vector{out});
    EXPECT_EQ(describe_networks(*context.executor()), "");
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    in->send_blocking(Message{0, std::uint64_t{1}});
    (void)out->receive_blocking();
    auto const text = describe_networks(*context.executor());
    EXPECT_NE(text.find("actor 0 'transform'"), std::string::npos) << text;
    EXPECT_NE(text.find("1 of 0 rows and 0 bytes were sent"), std::string::npos) << text;
    EXPECT_NE(text.find("took 1 messages of 0 rows and 0 bytes, gave 1 messages"), std::string::npos) << text;
    EXPECT_NE(text.find(" for memory, "), std::string::npos) << text;
    auto const dot = describe_networks(*context.executor(), NetworkFormat::dot);
    EXPECT_EQ(dot.rfind("digraph network_0 {", 0), 0U);
    EXPECT_NE(dot.find("n0_c0 -> n0_a0"), dot.find("n0_a0 -> n0_c0")) << dot;
    in->finish();
    network.get();
    EXPECT_EQ(describe_networks(*context.executor()), "");
}

TEST_P(ActorNetworkTest, CallbacksOfItsTokensComeBeforeTheEndOfItsChannels) {
    auto const in = context.create_channel();
    in->set_outside_producer();
    CancellationSource cancellation;
    std::atomic<std::uint64_t> sum{0};
    std::vector<Actor> actors;
    actors.emplace_back("sink", sink(in, never, never, &sum), std::vector{in}, std::vector<ChannelPtr>{});
    auto network =
        context.executor()->spawn(actor_network(*context.executor(), std::move(actors), cancellation));
    while (describe_networks(*context.executor()).find("waits for input") == std::string::npos) {
        std::this_thread::yield();
    }
    // As a collective that an actor registers while it runs.
    bool was_closed = true;
    auto const registration =
        cancellation.token().on_cancel([&](std::exception_ptr) { was_closed = in->is_closed(); });
    EXPECT_TRUE(cancellation.cancel(std::make_exception_ptr(std::domain_error{"enough"})));
    EXPECT_FALSE(was_closed);
    EXPECT_TRUE(in->is_closed());
    EXPECT_THROW(network.get(), std::domain_error);
}

TEST_P(ActorNetworkTest, AnActorThatEndsWithAnotherErrorDuringACancellationDoesNotHideIt) {
    CancellationSource cancellation;
    auto const in = context.create_channel();
    in->set_outside_producer();
    auto other_error = [](std::shared_ptr<Executor> executor, CancellationToken token) -> Task<void> {
        std::chrono::hours const long_time{1};
        try {
            co_await sleep_for(std::move(executor), long_time, std::move(token));
        } catch (std::domain_error const&) {
            throw std::runtime_error{"asleep"};
        }
    };
    std::atomic<std::uint64_t> sum{0};
    std::vector<Actor> actors;
    actors.emplace_back(
        "sleeper", other_error(context.executor(), cancellation.token()), std::vector<ChannelPtr>{},
        std::vector<ChannelPtr>{});
    actors.emplace_back("sink", sink(in, never, never, &sum), std::vector{in}, std::vector<ChannelPtr>{});
    auto network =
        context.executor()->spawn(actor_network(*context.executor(), std::move(actors), cancellation));
    while (describe_networks(*context.executor()).find("waits for input") == std::string::npos) {
        std::this_thread::yield();
    }
    (void)cancellation.cancel(std::make_exception_ptr(std::domain_error{"enough"}));
    EXPECT_THROW(network.get(), std::domain_error);
    EXPECT_TRUE(in->is_closed());
}

TEST_P(ActorNetworkTest, WhatOnCancelOwnsIsReleasedInTheEnd) {
    auto owned = std::make_shared<int>(0);
    std::weak_ptr<int> const watched = owned;
    auto const in = context.create_channel();
    in->set_outside_producer();
    std::atomic<std::uint64_t> sum{0};
    std::vector<Actor> actors;
    actors.emplace_back(
        "sink", sink(in, never, never, &sum), std::vector{in}, std::vector<ChannelPtr>{},
        [owned = std::move(owned)](std::exception_ptr) {});
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    auto described = context.executor()->networks();  // as a thread that describes them
    while (described.empty()) {
        std::this_thread::yield();
        described = context.executor()->networks();
    }
    in->finish();
    network.get();
    EXPECT_TRUE(watched.expired());
}

TEST_P(ActorNetworkTest, CanBeCancelledFromOutside) {
    auto const a = context.create_channel(ChannelCapacity{2});
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> sum{0};
    CancellationSource cancellation;
    auto const heard = cancellation.token();
    std::vector<Actor> actors;
    actors.emplace_back(
        "source", source(a, 1'000'000'000, never, &sent), std::vector<ChannelPtr>{}, std::vector{a});
    actors.emplace_back("sink", sink(a, never, never, &sum), std::vector{a}, std::vector<ChannelPtr>{});
    auto network =
        context.executor()->spawn(actor_network(*context.executor(), std::move(actors), cancellation));
    while (sent < 10) {
        std::this_thread::yield();
    }
    EXPECT_TRUE(cancellation.cancel(std::make_exception_ptr(std::domain_error{"enough"})));
    EXPECT_THROW(network.get(), std::domain_error);
    EXPECT_TRUE(heard.is_cancelled());
    EXPECT_EQ(a->size(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Threads, ActorNetworkTest, ::testing::Values(1, 4));

TEST(Actor, NeedsATaskAndChannels) {
    auto body = []() -> Task<void> { co_return; };
    EXPECT_THROW((Actor{"a", Task<void>{}, {}, {}}), std::invalid_argument);
    EXPECT_THROW((Actor{"a", body(), {nullptr}, {}}), std::invalid_argument);
}

}  // namespace
}  // namespace rapidsmpf::streaming
