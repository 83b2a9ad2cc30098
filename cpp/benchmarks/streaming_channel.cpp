// What tasks, the executor and channels cost.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/channel.hpp>
#include <rapidsmpf/streaming/executor.hpp>
#include <rapidsmpf/streaming/sync_wait.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

namespace rapidsmpf::streaming {
namespace {

// What the processor takes for an atomic addition that no other thread contends for: costs of hops are told beside it, for both
// go up and down with its clock.
void atomic_increment(benchmark::State& state) {
    std::atomic<std::uint64_t> count{0};
    for (auto _ : state) {
        count.fetch_add(1, std::memory_order_acq_rel);
    }
}
BENCHMARK(atomic_increment);

Task<std::uint64_t> give(std::uint64_t value) {
    co_return value;
}

// Awaiting a task that ends at once: a frame made, run and freed.
void task_await(benchmark::State& state) {
    auto run = [](benchmark::State& on) -> Task<void> {
        std::uint64_t sum = 0;
        for (auto _ : on) {
            sum += co_await give(1);
        }
        benchmark::DoNotOptimize(sum);
    };
    sync_wait(run(state));
}
BENCHMARK(task_await);

// Going to the end of the executor's queue and coming back.
void task_switch(benchmark::State& state) {
    Executor executor{1};
    auto run = [](Executor& on, benchmark::State& loop) -> Task<void> {
        co_await on.schedule();
        for (auto _ : loop) {
            co_await on.schedule();
        }
    };
    sync_wait(run(executor, state));
}
BENCHMARK(task_switch)->UseRealTime();

void message_make(benchmark::State& state) {
    std::uint64_t sequence = 0;
    for (auto _ : state) {
        Message message{sequence++, std::uint64_t{1}};
        benchmark::DoNotOptimize(message);
    }
}
BENCHMARK(message_make);

// One send and one receive that never wait, of the same message again and again.
void channel_uncontended(benchmark::State& state) {
    auto channel = std::make_shared<Channel>(std::make_shared<Executor>(1));
    auto run = [](ChannelPtr on, benchmark::State& loop) -> Task<void> {
        Message message{0, std::uint64_t{1}};
        for (auto _ : loop) {
            co_await on->send(std::move(message));
            message = std::move(*co_await on->receive());
        }
    };
    sync_wait(run(channel, state));
}
BENCHMARK(channel_uncontended);

// One message from a producer to a consumer that share a thread: send, switch, receive.
void channel_handover(benchmark::State& state) {
    auto const capacity = static_cast<std::size_t>(state.range(0));
    auto executor = std::make_shared<Executor>(1);
    auto channel = std::make_shared<Channel>(executor, ChannelCapacity{capacity});
    auto produce = [](ChannelPtr to, benchmark::State& loop) -> Task<void> {
        co_await to->executor()->schedule();
        for (auto _ : loop) {
            Message message{0, std::uint64_t{1}};
            co_await to->send(std::move(message));
        }
        to->finish();
    };
    auto consume = [](ChannelPtr from) -> Task<void> {
        co_await from->executor()->schedule();
        while (auto message = co_await from->receive()) {
            benchmark::DoNotOptimize(message);
        }
    };
    std::vector<Task<void>> tasks;
    tasks.push_back(consume(channel));
    tasks.push_back(produce(channel, state));
    sync_wait(when_all(std::move(tasks)));
}
BENCHMARK(channel_handover)->Arg(1)->Arg(4)->Arg(64)->UseRealTime();

// A chain of ten actors and the hops of a message through it: `hop` is the time of one. Arguments: threads, nanoseconds that
// each actor computes for a message.
void actor_chain(benchmark::State& state) {
    constexpr std::size_t num_actors = 10;
    auto const executor = std::make_shared<Executor>(static_cast<std::size_t>(state.range(0)));
    std::chrono::nanoseconds const work{state.range(1)};
    std::uint64_t const messages = work.count() == 0 ? 1'000'000 : 5'000;
    auto compute = [](std::chrono::nanoseconds time) {
        if (time.count() == 0) {
            return;  // reading the clock takes a third of a hop
        }
        auto const end = std::chrono::steady_clock::now() + time;
        while (std::chrono::steady_clock::now() < end) {
        }
    };
    auto produce = [](ChannelPtr to, std::uint64_t count) -> Task<void> {
        for (std::uint64_t i = 0; i < count; ++i) {
            Message message{i, std::uint64_t{i}};
            co_await to->send(std::move(message));
        }
    };
    auto pass_on = [&compute, work](ChannelPtr from, ChannelPtr to) -> Task<void> {
        while (auto message = co_await from->receive()) {
            compute(work);
            co_await to->send(std::move(*message));
        }
    };
    auto consume = [](ChannelPtr from) -> Task<void> {
        while (auto message = co_await from->receive()) {
            benchmark::DoNotOptimize(message);
        }
    };
    for (auto _ : state) {
        std::vector<ChannelPtr> channels;
        for (std::size_t i = 0; i + 1 < num_actors; ++i) {
            channels.push_back(std::make_shared<Channel>(executor));
        }
        std::vector<Actor> actors;
        actors.emplace_back(
            "produce", produce(channels.front(), messages), std::vector<ChannelPtr>{},
            std::vector{channels.front()});
        for (std::size_t i = 0; i + 1 < channels.size(); ++i) {
            actors.emplace_back(
                "pass_on", pass_on(channels[i], channels[i + 1]), std::vector{channels[i]},
                std::vector{channels[i + 1]});
        }
        actors.emplace_back(
            "consume", consume(channels.back()), std::vector{channels.back()}, std::vector<ChannelPtr>{});
        run_actor_network(*executor, std::move(actors));
    }
    auto const hops =
        static_cast<double>(messages * (num_actors - 1)) * static_cast<double>(state.iterations());
    state.counters["hop"] =
        benchmark::Counter(hops, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(actor_chain)
    ->ArgsProduct({{1, 2}, {0}})
    ->ArgsProduct({{1, 2, 4, 8}, {10'000}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// A call where blocking is allowed, and back.
void blocking_call(benchmark::State& state) {
    Executor executor{1};
    auto run = [](Executor& on, benchmark::State& loop) -> Task<void> {
        co_await on.schedule();
        for (auto _ : loop) {
            auto call = [] {};
            co_await on.run_blocking(std::move(call));
        }
    };
    sync_wait(run(executor, state));
}
BENCHMARK(blocking_call)->UseRealTime();

}  // namespace
}  // namespace rapidsmpf::streaming
