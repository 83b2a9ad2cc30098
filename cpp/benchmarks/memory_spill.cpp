// Device memory to disk and back: bytes a second, and how much of a core that takes (cpu_time / real_time, all threads).
// The argument is the number of MiB. benchmarks/spill runs it beside dd on the same file system; the spill file lies in
// TMPDIR.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <rapidsmpf/core/crc32c.hpp>
#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/memory/disk_space.hpp>

namespace {

using namespace rapidsmpf;

// About what a chunk of a query has.
constexpr std::size_t block_size = std::size_t{32} << 20U;
// Operations in flight: the next one is queued while one is on its way.
constexpr std::size_t window = 3;

// Device memory of one block (on a CPU: plain memory).
class DeviceBlock {
  public:
    DeviceBlock()
        : bytes_{static_cast<std::byte*>(Device::current().allocate(block_size, Stream{})), Free{}} {}
    [[nodiscard]] std::span<std::byte> bytes() const { return {bytes_.get(), block_size}; }

  private:
    struct Free {
        void operator()(std::byte* pointer) const {
            Device::current().deallocate(pointer, block_size, Stream{});
        }
    };
    std::unique_ptr<std::byte, Free> bytes_;
};

std::vector<DeviceBlock> random_blocks(std::size_t count) {
    std::vector<DeviceBlock> blocks(count);
    std::mt19937_64 random{1};
    for (auto const& block : blocks) {
        for (std::size_t at = 0; at < block_size; at += 8) {
            auto const value = random();
            std::memcpy(block.bytes().data() + at, &value, 8);
        }
    }
    return blocks;
}

std::vector<DiskExtent> spill(DiskSpace& disk, std::vector<DeviceBlock> blocks) {
    std::vector<DiskExtent> extents;
    std::deque<std::pair<PendingWrite, DeviceBlock>> writing;
    auto const finish_one = [&] {
        extents.push_back(writing.front().first.take_one());
        writing.pop_front();  // and with it the memory
    };
    for (auto& block : blocks) {
        auto const bytes = block.bytes();
        writing.emplace_back(disk.start_write(std::span<std::byte const>{bytes}), std::move(block));
        if (writing.size() == window) {
            finish_one();
        }
    }
    while (!writing.empty()) {
        finish_one();
    }
    return extents;
}

std::vector<DeviceBlock> unspill(DiskSpace& disk, std::vector<DiskExtent> extents) {
    std::vector<DeviceBlock> blocks;
    std::deque<PendingRead> reading;
    for (auto& extent : extents) {
        blocks.emplace_back();
        reading.push_back(disk.start_read(extent, 0, blocks.back().bytes()));
        extent = {};
        if (reading.size() == window) {
            reading.front().get();
            reading.pop_front();
        }
    }
    for (auto const& pending : reading) {
        pending.get();
    }
    return blocks;
}

std::size_t blocks_of(benchmark::State const& state) {
    return static_cast<std::size_t>(state.range(0)) * (std::size_t{1} << 20U) / block_size;
}

void report(benchmark::State& state) {
    state.SetBytesProcessed(static_cast<std::int64_t>(blocks_of(state) * block_size));
}

std::shared_ptr<DiskSpace> make_disk() {
    return DiskSpace::from_options(config::Options{config::get_environment_variables()});
}

void device_to_disk(benchmark::State& state) {
    auto const disk = make_disk();
    for (auto _ : state) {
        state.PauseTiming();
        auto blocks = random_blocks(blocks_of(state));
        state.ResumeTiming();
        auto extents = spill(*disk, std::move(blocks));
        state.PauseTiming();
        extents.clear();
        state.ResumeTiming();
    }
    report(state);
}

void disk_to_device(benchmark::State& state) {
    auto const disk = make_disk();
    for (auto _ : state) {
        state.PauseTiming();
        auto blocks = random_blocks(blocks_of(state));
        auto const first = crc32c(std::span<std::byte const>{blocks.front().bytes()});
        auto extents = spill(*disk, std::move(blocks));
        state.ResumeTiming();
        auto back = unspill(*disk, std::move(extents));
        state.PauseTiming();
        if (crc32c(std::span<std::byte const>{back.front().bytes()}) != first) {
            throw std::runtime_error{"what was read is not what was written"};
        }
        back.clear();
        state.ResumeTiming();
    }
    report(state);
}

BENCHMARK(device_to_disk)
    ->Arg(1024)
    ->Arg(2048)
    ->Arg(4096)
    ->Iterations(1)
    ->UseRealTime()
    ->MeasureProcessCPUTime();
BENCHMARK(disk_to_device)
    ->Arg(1024)
    ->Arg(2048)
    ->Arg(4096)
    ->Iterations(1)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

}  // namespace
