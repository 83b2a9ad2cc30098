// Device memory to disk and back, as a BufferResource does it: bytes a second, and how much of a core that takes
// (cpu_time / real_time, over all threads). The argument is the number of MiB. benchmarks/spill runs it beside dd on
// the same file system; options are read from RAPIDSMPF_SPILL_DIRECTORY and its kind.
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/detail/tier_copier.hpp>

namespace {

using namespace rapidsmpf;
using Buffers = std::vector<std::unique_ptr<Buffer>>;

// About what a chunk of a query has.
constexpr std::size_t block_size = std::size_t{32} << 20U;
// Written in one go, as the spill thread does; and read ahead.
constexpr std::size_t batch = 8;

Buffers random_buffers(BufferResource& br, std::size_t count) {
    Buffers buffers;
    std::mt19937_64 random{1};
    for (std::size_t i = 0; i < count; ++i) {
        buffers.push_back(br.allocate(MemoryType::DEVICE, block_size));
        auto const bytes = buffers.back()->mutable_host_bytes();
        for (std::size_t at = 0; at < block_size; at += 8) {
            auto const value = random();
            std::memcpy(bytes.data() + at, &value, 8);
        }
    }
    return buffers;
}

Buffers spill(BufferResource& br, Buffers buffers) {
    Buffers on_disk;
    for (std::size_t begin = 0; begin < buffers.size(); begin += batch) {
        auto const end = std::min(begin + batch, buffers.size());
        std::vector<Buffer const*> victims;
        for (std::size_t i = begin; i < end; ++i) {
            victims.push_back(buffers[i].get());
        }
        for (auto& written : br.copier().write_to_disk(victims)) {
            on_disk.push_back(std::move(written));
        }
        for (std::size_t i = begin; i < end; ++i) {
            buffers[i].reset();
        }
    }
    return on_disk;
}

Buffers unspill(BufferResource& br, Buffers on_disk) {
    std::mutex mutex;
    std::condition_variable changed;
    Buffers back(on_disk.size());
    std::vector<bool> done(on_disk.size());
    std::exception_ptr error;
    for (std::size_t i = 0; i < on_disk.size() + batch; ++i) {
        if (i >= batch) {
            std::unique_lock lock{mutex};
            changed.wait(lock, [&] { return done[i - batch]; });
            if (error) {
                std::rethrow_exception(error);
            }
            on_disk[i - batch].reset();
        }
        if (i < on_disk.size()) {
            auto const& buffer = *on_disk[i];
            auto memory = br.reserve(br.type_to_read_into(), buffer.size(), AllowOverbooking::yes).first;
            auto const take = [&, i](std::unique_ptr<Buffer> read, std::exception_ptr failure) {
                std::lock_guard lock{mutex};
                back[i] = std::move(read);
                done[i] = true;
                error = failure ? failure : error;
                changed.notify_one();
            };
            std::vector<detail::TierCopier::ReadBack> wanted;
            wanted.push_back({&buffer, std::move(memory), take});
            br.copier().read_back(std::move(wanted));
        }
    }
    return back;
}

std::size_t blocks_of(benchmark::State const& state) {
    return static_cast<std::size_t>(state.range(0)) * (std::size_t{1} << 20U) / block_size;
}

void report(benchmark::State& state) {
    state.SetBytesProcessed(static_cast<std::int64_t>(blocks_of(state) * block_size));
}

std::shared_ptr<BufferResource> make_resource() {
    return BufferResource::from_options(config::Options{config::get_environment_variables()});
}

void device_to_disk(benchmark::State& state) {
    auto const br = make_resource();
    for (auto _ : state) {
        state.PauseTiming();
        auto buffers = random_buffers(*br, blocks_of(state));
        state.ResumeTiming();
        auto on_disk = spill(*br, std::move(buffers));
        state.PauseTiming();
        on_disk.clear();
        state.ResumeTiming();
    }
    report(state);
}

void disk_to_device(benchmark::State& state) {
    auto const br = make_resource();
    for (auto _ : state) {
        state.PauseTiming();
        auto buffers = random_buffers(*br, blocks_of(state));
        auto const expected = crc32c(buffers.back()->host_bytes());
        auto on_disk = spill(*br, std::move(buffers));
        state.ResumeTiming();
        auto back = unspill(*br, std::move(on_disk));
        state.PauseTiming();
        if (crc32c(back.back()->host_bytes()) != expected) {
            throw std::runtime_error{"what was read is not what was written"};
        }
        back.clear();
        state.ResumeTiming();
    }
    report(state);
}

// One round is a process: the driver takes turns with dd.
void settings(benchmark::internal::Benchmark* benchmark) {
    benchmark->Arg(1024)->Arg(2048)->Arg(4096)->Iterations(1)->UseRealTime()->MeasureProcessCPUTime();
}
BENCHMARK(device_to_disk)->Apply(settings);
BENCHMARK(disk_to_device)->Apply(settings);

}  // namespace
