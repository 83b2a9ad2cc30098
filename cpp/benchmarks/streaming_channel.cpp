// What tasks, the executor and channels cost.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <rapidsmpf/streaming/channel.hpp>
#include <rapidsmpf/streaming/executor.hpp>
#include <rapidsmpf/streaming/sync_wait.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

namespace rapidsmpf::streaming {
namespace {

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
