#include <rapidsmpf/streaming/throttle.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/context.hpp>

namespace rapidsmpf::streaming {
namespace {

// A payload that counts how many there are.
struct Counted {
    struct Counter {
        std::atomic<int> alive{0};
        std::atomic<int> most{0};
    };
    explicit Counted(Counter& counter_) : counter{&counter_} {
        auto const now = ++counter->alive;
        auto before = counter->most.load();
        while (before < now && !counter->most.compare_exchange_weak(before, now)) {
        }
    }
    Counted(Counted&& other) noexcept : counter{std::exchange(other.counter, nullptr)} {}
    Counted& operator=(Counted&&) = delete;
    Counted(Counted const&) = delete;
    Counted& operator=(Counted const&) = delete;
    ~Counted() {
        if (counter != nullptr) {
            --counter->alive;
        }
    }
    Counter* counter;
};

constexpr std::size_t num_producers = 64;
constexpr std::uint64_t messages_each = 20;

Task<void> produce(std::shared_ptr<Throttle> throttle, Counted::Counter* counter, std::uint64_t fail_at) {
    for (std::uint64_t i = 0; i < messages_each; ++i) {
        auto ticket = co_await throttle->acquire();
        if (i == fail_at) {
            throw std::runtime_error{"producer failed"};
        }
        Counted payload{*counter};
        Message message{i, std::move(payload)};
        if (!co_await ticket.send(std::move(message))) {
            co_return;
        }
    }
}

Task<void> consume(ChannelPtr in, std::uint64_t* received, std::uint64_t limit) {
    while (*received < limit) {
        auto message = co_await in->receive();
        if (!message) {
            co_return;
        }
        ++*received;
    }
}

class ThrottleTest : public ::testing::TestWithParam<std::size_t> {
  protected:
    std::uint64_t run(std::uint64_t limit, std::uint64_t fail_at = ~std::uint64_t{0}) {
        auto const channel = context.create_channel(ChannelCapacity{1});
        auto const throttle = std::make_shared<Throttle>(channel, 4);
        std::vector<Actor> actors;
        for (std::size_t i = 0; i < num_producers; ++i) {
            auto task = produce(throttle, &counter, i == 7 ? fail_at : ~std::uint64_t{0});
            actors.emplace_back(
                "produce", std::move(task), std::vector<ChannelPtr>{}, std::vector<ChannelPtr>{channel});
        }
        std::uint64_t received = 0;
        actors.emplace_back(
            "consume", consume(channel, &received, limit), std::vector<ChannelPtr>{channel},
            std::vector<ChannelPtr>{});
        run_actor_network(*context.executor(), std::move(actors));
        return received;
    }

    Counted::Counter counter;
    Context context{
        config::Options{}, nullptr, BufferResource::make(), std::make_shared<Executor>(GetParam())};
};

TEST_P(ThrottleTest, ManyProducersMakeNoMoreThanThereAreTickets) {
    EXPECT_EQ(run(~std::uint64_t{0}), num_producers * messages_each);
    // Four tickets, one in the channel, one with the consumer.
    EXPECT_LE(counter.most.load(), 6);
    EXPECT_EQ(counter.alive.load(), 0);
}

TEST_P(ThrottleTest, ProducersWithoutTicketsEndWhenTheConsumerWantsNoMore) {
    EXPECT_EQ(run(5), 5);
    EXPECT_LE(counter.most.load(), 6);
    EXPECT_EQ(counter.alive.load(), 0);
}

TEST_P(ThrottleTest, ProducersWithoutTicketsEndWhenTheNetworkFails) {
    EXPECT_THROW(run(~std::uint64_t{0}, 3), std::runtime_error);
    EXPECT_EQ(counter.alive.load(), 0);
}

TEST_P(ThrottleTest, ATicketIsForOneMessage) {
    auto const channel = context.create_channel();
    Throttle throttle{channel, 1};
    auto use_twice = [](Throttle* on) -> Task<void> {
        auto ticket = co_await on->acquire();
        Message first{0, std::uint64_t{1}};
        Message second{1, std::uint64_t{1}};
        EXPECT_TRUE(ticket.is_wanted());
        EXPECT_TRUE(co_await ticket.send(std::move(first)));
        co_await ticket.send(std::move(second));
    };
    EXPECT_THROW(context.executor()->spawn(use_twice(&throttle)).get(), std::logic_error);
    EXPECT_THROW(Throttle(channel, 0), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThrottleTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace rapidsmpf::streaming
