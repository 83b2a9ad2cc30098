// What a reservation costs, beside an uncontended mutex.
#include <mutex>

#include <benchmark/benchmark.h>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

namespace rapidsmpf {
namespace {

void mutex_uncontended(benchmark::State& state) {
    std::mutex mutex;
    for (auto _ : state) {
        mutex.lock();
        benchmark::ClobberMemory();
        mutex.unlock();
    }
}
BENCHMARK(mutex_uncontended);

void reserve(benchmark::State& state, BufferResource& br) {
    for (auto _ : state) {
        benchmark::DoNotOptimize(br.reserve(MemoryType::DEVICE, 1000, AllowOverbooking::no));
    }
}

void reserve_unlimited(benchmark::State& state) {
    reserve(state, *BufferResource::make());
}
BENCHMARK(reserve_unlimited);

// The limit of a CPU device is held against what is resident, measured once in a millisecond.
void reserve_measured(benchmark::State& state) {
    BufferResource::Settings settings;
    settings.limits[0] = Device::current().total_memory();
    reserve(state, *BufferResource::make(settings));
}
BENCHMARK(reserve_measured);

void spillable_buffer(benchmark::State& state) {
    auto const br = BufferResource::make();
    auto buffer = br->allocate(MemoryType::DEVICE, 1000);
    for (auto _ : state) {
        SpillableBuffer spillable{std::move(buffer)};
        benchmark::DoNotOptimize(spillable.try_pin());
        buffer = spillable.take();
    }
}
BENCHMARK(spillable_buffer);

}  // namespace
}  // namespace rapidsmpf
