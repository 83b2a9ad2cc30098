#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/actors.hpp>

namespace rapidsmpf::streaming {
namespace {

constexpr std::uint64_t no_failure = ~std::uint64_t{0};

PackedData packed_number(BufferResource& resource, std::uint64_t number) {
    auto buffer = resource.allocate(MemoryType::HOST, sizeof(number));
    std::memcpy(buffer->mutable_host_bytes().data(), &number, sizeof(number));
    return PackedData{std::vector<std::uint8_t>{1}, std::move(buffer)};
}

std::uint64_t number_in(PackedData const& packed) {
    std::uint64_t number = 0;
    packed.data->synchronize();
    std::memcpy(&number, packed.data->data(), sizeof(number));
    return number;
}

Task<void> send_packed(Context context, ChannelPtr out, std::uint64_t count, std::uint64_t fail_at) {
    Message schema{0, std::string{"schema"}};
    co_await out->metadata().send(std::move(schema));
    for (std::uint64_t i = 0; i < count; ++i) {
        if (i == fail_at) {
            throw std::runtime_error{"producer failed"};
        }
        auto packed = packed_number(*context.resource(), i);
        Message message{i, std::move(packed)};
        if (!co_await out->send(std::move(message))) {
            co_return;
        }
    }
}

struct Taken {
    std::vector<std::uint64_t> numbers;
    std::string schema;
};

Task<void> take_packed(ChannelPtr in, Taken* taken, std::size_t limit) {
    if (auto schema = co_await in->metadata().receive()) {
        taken->schema = schema->release<std::string>();
    }
    while (taken->numbers.size() < limit) {
        auto message = co_await in->receive();
        if (!message) {
            co_return;
        }
        auto const packed = message->release<PackedData>();
        taken->numbers.push_back(number_in(packed));
    }
}

// Takes all of the first input, then all of the second.
Task<void> take_in_turn(ChannelPtr first, ChannelPtr second, Taken* taken) {
    co_await take_packed(std::move(first), taken, no_failure);
    co_await take_packed(std::move(second), taken, no_failure);
}

class FanoutTest : public ::testing::TestWithParam<std::size_t> {
  protected:
    std::vector<Actor> begin(
        FanoutPolicy policy, std::size_t consumers, std::uint64_t count, std::uint64_t fail_at = no_failure) {
        auto const in = context.create_channel(ChannelCapacity{2});
        for (std::size_t i = 0; i < consumers; ++i) {
            outs.push_back(context.create_channel(ChannelCapacity{1}));
        }
        std::vector<Actor> actors;
        actors.emplace_back(
            "send", send_packed(context, in, count, fail_at), std::vector<ChannelPtr>{},
            std::vector<ChannelPtr>{in});
        actors.push_back(fanout(context, in, outs, policy));
        return actors;
    }
    void run(std::vector<Actor> actors) { run_actor_network(*context.executor(), std::move(actors)); }

    std::shared_ptr<BufferResource> resource = BufferResource::make();
    Context context{config::Options{}, nullptr, resource, std::make_shared<Executor>(GetParam())};
    std::vector<ChannelPtr> outs;
};

TEST_P(FanoutTest, EachConsumerGetsEveryMessageInOrder) {
    for (auto const policy : {FanoutPolicy::bounded, FanoutPolicy::unbounded}) {
        outs.clear();
        auto actors = begin(policy, 3, 50);
        std::vector<Taken> taken(3);
        for (std::size_t i = 0; i < 3; ++i) {
            actors.emplace_back(
                "take", take_packed(outs[i], &taken[i], i == 1 ? 7 : 1000), std::vector<ChannelPtr>{outs[i]},
                std::vector<ChannelPtr>{});
        }
        run(std::move(actors));
        for (std::size_t i = 0; i < 3; ++i) {
            ASSERT_EQ(taken[i].numbers.size(), i == 1 ? 7 : 50);  // one wanted no more, the others went on
            EXPECT_EQ(taken[i].schema, "schema");
            for (std::uint64_t k = 0; k < taken[i].numbers.size(); ++k) {
                EXPECT_EQ(taken[i].numbers[k], k);
            }
        }
        for (auto const type : memory_types) {
            EXPECT_EQ(resource->memory_used(type), 0);
            EXPECT_EQ(resource->memory_reserved(type), 0);
        }
    }
}

TEST_P(FanoutTest, UnboundedConsumersMayReadInAnyOrder) {
    auto actors = begin(FanoutPolicy::unbounded, 2, 300);
    Taken taken;
    actors.emplace_back("take", take_in_turn(outs[0], outs[1], &taken), outs, std::vector<ChannelPtr>{});
    run(std::move(actors));
    ASSERT_EQ(taken.numbers.size(), 600);
    EXPECT_EQ(taken.numbers[299], 299);
    EXPECT_EQ(taken.numbers[300], 0);
}

TEST_P(FanoutTest, TheProducerStopsWhenNobodyWantsMore) {
    for (auto const policy : {FanoutPolicy::bounded, FanoutPolicy::unbounded}) {
        outs.clear();
        auto actors = begin(policy, 2, no_failure);
        std::vector<Taken> taken(2);
        for (std::size_t i = 0; i < 2; ++i) {
            actors.emplace_back(
                "take", take_packed(outs[i], &taken[i], 3), std::vector<ChannelPtr>{outs[i]},
                std::vector<ChannelPtr>{});
        }
        run(std::move(actors));
        EXPECT_EQ(taken[0].numbers, (std::vector<std::uint64_t>{0, 1, 2}));
    }
}

TEST_P(FanoutTest, AFailureLeavesNoMemoryBehind) {
    for (auto const policy : {FanoutPolicy::bounded, FanoutPolicy::unbounded}) {
        outs.clear();
        auto actors = begin(policy, 2, 100, 30);
        std::vector<Taken> taken(2);
        for (std::size_t i = 0; i < 2; ++i) {
            actors.emplace_back(
                "take", take_packed(outs[i], &taken[i], no_failure), std::vector<ChannelPtr>{outs[i]},
                std::vector<ChannelPtr>{});
        }
        EXPECT_THROW(run(std::move(actors)), std::runtime_error);
        EXPECT_EQ(resource->memory_used(MemoryType::HOST), 0);
    }
}

TEST_P(FanoutTest, MessagesThatCannotBeCopiedAreRefused) {
    EXPECT_THROW((void)fanout(context, context.create_channel(), {}), std::invalid_argument);
    auto const in = context.create_channel();
    auto const one = context.create_channel();
    auto const two = context.create_channel();
    in->set_outside_producer();
    one->set_outside_consumer();
    two->set_outside_consumer();
    in->send_blocking(Message{0, std::make_unique<int>(1)});
    std::vector<Actor> actors;
    actors.push_back(fanout(context, in, {one, two}));
    EXPECT_THROW(run(std::move(actors)), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Threads, FanoutTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace rapidsmpf::streaming
