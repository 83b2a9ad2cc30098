#include <rapidsmpf/streaming/lineariser.hpp>

#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::streaming {
namespace {

Task<void> send_numbers(ChannelPtr out, std::vector<std::uint64_t> numbers, std::size_t fail_at) {
    std::size_t sent = 0;
    for (auto const number : numbers) {
        if (sent++ == fail_at) {
            throw std::runtime_error{"producer failed"};
        }
        Message message{number, std::uint64_t{number}};
        if (!co_await out->send(std::move(message))) {
            co_return;
        }
    }
}

Task<void> take_numbers(ChannelPtr in, std::vector<std::uint64_t>* numbers, std::size_t limit) {
    while (numbers->size() < limit) {
        auto message = co_await in->receive();
        if (!message) {
            co_return;
        }
        numbers->push_back(message->sequence());
    }
}

class LineariserTest : public ::testing::TestWithParam<std::size_t> {
  protected:
    std::vector<std::uint64_t> run(
        std::vector<std::vector<std::uint64_t>> const& numbers, std::size_t limit = ~std::size_t{0},
        std::size_t fail_at = ~std::size_t{0}) {
        auto const out = context.create_channel(ChannelCapacity{1});
        Lineariser lineariser{context, out, numbers.size()};
        std::vector<Actor> actors;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            auto const& to = lineariser.producers()[i];
            actors.emplace_back(
                "send", send_numbers(to, numbers[i], i == 0 ? fail_at : ~std::size_t{0}),
                std::vector<ChannelPtr>{}, std::vector<ChannelPtr>{to});
        }
        actors.push_back(lineariser.actor());
        std::vector<std::uint64_t> taken;
        actors.emplace_back(
            "take", take_numbers(out, &taken, limit), std::vector<ChannelPtr>{out},
            std::vector<ChannelPtr>{});
        run_actor_network(*context.executor(), std::move(actors));
        return taken;
    }

    Context context{
        config::Options{}, nullptr, BufferResource::make(), std::make_shared<Executor>(GetParam())};
};

// Numbers below `count`, each with some producer; every `gap`-th is missing.
std::vector<std::vector<std::uint64_t>> deal(
    std::uint64_t seed, std::size_t producers, std::uint64_t count, std::uint64_t gap) {
    std::mt19937_64 random{seed};
    std::vector<std::vector<std::uint64_t>> numbers(producers);
    for (std::uint64_t i = 0; i < count; ++i) {
        if (gap == 0 || i % gap != 0) {
            numbers[random() % producers].push_back(i);
        }
    }
    return numbers;
}

TEST_P(LineariserTest, PutsMessagesInOrder) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        auto const gap = seed % 3;
        auto const taken = run(deal(seed, 1 + seed % 5, 200, gap == 1 ? 0 : gap));
        EXPECT_TRUE(std::is_sorted(taken.begin(), taken.end()));
        EXPECT_EQ(taken.size(), gap == 2 ? 100 : 200);
    }
}

TEST_P(LineariserTest, ProducersStopWhenTheConsumerDoes) {
    EXPECT_EQ(run(deal(1, 4, 1000, 0), 3), (std::vector<std::uint64_t>{0, 1, 2}));
}

TEST_P(LineariserTest, AFailingProducerEndsTheNetwork) {
    EXPECT_THROW(run(deal(1, 4, 1000, 0), 2000, 20), std::runtime_error);
}

TEST_P(LineariserTest, NumbersOfAProducerHaveToGrow) {
    EXPECT_THROW(run({{0, 2, 1}, {3}}), std::invalid_argument);
    EXPECT_THROW(Lineariser(context, context.create_channel(), 0), std::invalid_argument);
}

TEST_P(LineariserTest, AProducerThatIsAheadWaits) {
    auto const out = context.create_channel(ChannelCapacity{1});
    Lineariser lineariser{context, out, 2, ChannelCapacity{1}};
    auto const& ahead = lineariser.producers()[0];
    out->set_outside_consumer();
    for (auto const& producer : lineariser.producers()) {
        producer->set_outside_producer();
    }
    auto run_on = context.executor()->spawn(actor_network(*context.executor(), [&] {
        std::vector<Actor> actors;
        actors.push_back(lineariser.actor());
        return actors;
    }()));
    // One in the hand of the lineariser, one in the channel; the third must not find room.
    ahead->send_blocking(Message{1, std::uint64_t{1}});
    ahead->send_blocking(Message{2, std::uint64_t{2}});
    EXPECT_EQ(out->size(), 0);
    lineariser.producers()[1]->send_blocking(Message{0, std::uint64_t{0}});
    for (std::uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(out->receive_blocking()->sequence(), i);
        if (i == 0) {
            ahead->finish();
            lineariser.producers()[1]->finish();
        }
    }
    EXPECT_FALSE(out->receive_blocking().has_value());
    run_on.get();
}

INSTANTIATE_TEST_SUITE_P(Threads, LineariserTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace rapidsmpf::streaming
