// What an update of a statistic costs, beside an uncontended mutex.
#include <mutex>

#include <benchmark/benchmark.h>

#include <rapidsmpf/core/statistics.hpp>

namespace rapidsmpf {
namespace {

// Shared by the threads of a run, as the statistics of a process are.
Statistics& enabled_statistics() {
    static Statistics statistics;
    return statistics;
}

void mutex_uncontended(benchmark::State& state) {
    std::mutex mutex;
    for (auto _ : state) {
        mutex.lock();
        benchmark::ClobberMemory();
        mutex.unlock();
    }
}
BENCHMARK(mutex_uncontended);

void add_disabled(benchmark::State& state) {
    Statistics statistics{Statistics::Enabled::no};
    for (auto _ : state) {
        statistics.add(statistic::id("shuffle-payload-send"), 1);
        benchmark::ClobberMemory();
    }
}
BENCHMARK(add_disabled);

void add_enabled(benchmark::State& state) {
    auto& statistics = enabled_statistics();
    for (auto _ : state) {
        statistics.add(statistic::id("shuffle-payload-send"), 1);
    }
}
BENCHMARK(add_enabled)->Threads(1)->Threads(2)->UseRealTime();

void add_by_name(benchmark::State& state) {
    auto& statistics = enabled_statistics();
    for (auto _ : state) {
        statistics.add("shuffle-payload-send", 1);
    }
}
BENCHMARK(add_by_name);

void timer_disabled(benchmark::State& state) {
    Statistics statistics{Statistics::Enabled::no};
    for (auto _ : state) {
        ScopedTimer const timer{statistics, statistic::id("event-loop-total")};
        benchmark::ClobberMemory();
    }
}
BENCHMARK(timer_disabled);

// Two reads of the clock and an update.
void timer_enabled(benchmark::State& state) {
    auto& statistics = enabled_statistics();
    for (auto _ : state) {
        ScopedTimer const timer{statistics, statistic::id("event-loop-total")};
        benchmark::ClobberMemory();
    }
}
BENCHMARK(timer_enabled);

void snapshot(benchmark::State& state) {
    auto& statistics = enabled_statistics();
    for (auto _ : state) {
        auto const values = statistics.snapshot();
        benchmark::DoNotOptimize(values.entries().size());
    }
}
BENCHMARK(snapshot);

}  // namespace
}  // namespace rapidsmpf
