// The speed of the checksum, in cache and out of it.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include <rapidsmpf/core/detail/checksum.hpp>

namespace {

using Bytes = std::vector<std::byte>;

void instruction(benchmark::State& state) {
    Bytes const bytes(static_cast<std::size_t>(state.range(0)), std::byte{5});
    for (auto _ : state) {
        benchmark::DoNotOptimize(rapidsmpf::crc32c(bytes));
    }
    state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(instruction)->Arg(4 << 10)->Arg(256 << 10)->Arg(256 << 20);

void portable(benchmark::State& state) {
    Bytes const bytes(static_cast<std::size_t>(state.range(0)), std::byte{5});
    for (auto _ : state) {
        benchmark::DoNotOptimize(rapidsmpf::detail::crc32c_portable(bytes, 0));
    }
    state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(portable)->Arg(256 << 10);

}  // namespace
