// More data than a GPU's limit allows, spilled and brought back: device to page-locked memory and to disk, alone and beside
// kernels. Prints one JSON object. benchmarks/gpu/session.sh runs it beside dd on the same file system.
//
//   bench_gpu_spill [total GB = 40] [limit GB = 10] [chunk MiB = 128] [disk GB = 8]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <rmm/cuda_stream.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/detail/tier_copier.hpp>
#include <rapidsmpf/memory/pinned_memory_resource.hpp>
#include <rapidsmpf/memory/rmm_resource.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

namespace {

using namespace rapidsmpf;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A kernel that moves memory inside the GPU all the time, on a stream of its own.
class Beside {
  public:
    explicit Beside(BufferResource& br) : device_{br.device()} {
        from_ = br.allocate(MemoryType::DEVICE, bytes);
        to_ = br.allocate(MemoryType::DEVICE, bytes);
    }
    // Bytes a second (read and written) while `body` runs.
    template <typename Body>
    double rate_during(Body&& body) {
        std::atomic<bool> stop{false};
        double rate = 0;
        std::thread runner{[&] {
            std::vector<CopyPiece> const pieces{{from_->data(), const_cast<std::byte*>(to_->data()), bytes}};
            device_.gather_copy(pieces, stream_);
            device_.synchronize(stream_);
            // There is always a next batch behind the one that runs: what counts is the kernel, not how soon a thread
            // comes to start it.
            std::uint64_t moved = 0;
            std::deque<std::unique_ptr<Event>> running;
            auto const begin = Clock::now();
            while (!stop) {
                for (int i = 0; i < 8; ++i) {
                    device_.gather_copy(pieces, stream_);
                    moved += 2 * bytes;
                }
                running.push_back(device_.make_event());
                running.back()->record(stream_);
                if (running.size() == 3) {
                    running.front()->synchronize();
                    running.pop_front();
                }
            }
            device_.synchronize(stream_);
            rate = static_cast<double>(moved) / seconds_since(begin);
        }};
        body();
        stop = true;
        runner.join();
        return rate;
    }

  private:
    static constexpr std::size_t bytes = std::size_t{1} << 30U;
    Device& device_;
    std::unique_ptr<Buffer> from_;
    std::unique_ptr<Buffer> to_;
    rmm::cuda_stream own_stream_;
    Stream stream_{own_stream_.value()};
};

struct Round {
    double out{0};   // bytes a second, device to page-locked
    double back{0};  // and back
};

// A chunk whose bytes say which it is.
std::unique_ptr<Buffer> make_chunk(
    BufferResource& br, Buffer const& pattern, std::size_t size, std::uint64_t number) {
    auto memory = br.reserve_device_memory_and_spill(size, AllowOverbooking::no);
    auto chunk = br.allocate(size, memory, br.next_stream());
    chunk->write([&](std::byte* to, Stream stream) {
        br.device().copy(to, pattern.data() + (number % 64) * 4096, size, stream);
    });
    return chunk;
}

void check_chunk(BufferResource& br, Buffer const& chunk, Buffer const& pattern, std::uint64_t number) {
    std::vector<std::byte> got(1 << 16);
    std::vector<std::byte> want(got.size());
    auto& device = br.device();
    for (std::size_t const at : {std::size_t{0}, chunk.size() - got.size()}) {
        device.copy(got.data(), chunk.data() + at, got.size(), chunk.stream());
        device.copy(want.data(), pattern.data() + (number % 64) * 4096 + at, want.size(), chunk.stream());
        device.synchronize(chunk.stream());
        if (got != want) {
            throw std::runtime_error{"chunk " + std::to_string(number) + " came back changed"};
        }
    }
}

Round run(
    BufferResource& br, Buffer const& pattern, std::size_t total, std::size_t limit, std::size_t chunk) {
    std::vector<std::unique_ptr<SpillableBuffer>> chunks;
    auto const count = total / chunk;
    Round round;
    auto begin = Clock::now();
    for (std::uint64_t i = 0; i < count; ++i) {
        chunks.push_back(std::make_unique<SpillableBuffer>(make_chunk(br, pattern, chunk, i), i));
    }
    round.out = static_cast<double>(total - limit) / seconds_since(begin);
    // Back in order: a few on their way at a time, each gone once it has been looked at.
    struct Coming {
        std::uint64_t number;
        std::unique_ptr<Buffer> from;
        std::unique_ptr<Buffer> on_device;
    };
    std::deque<Coming> coming;
    std::size_t brought = 0;
    auto const finish = [&] {
        auto& next = coming.front();
        next.on_device->synchronize();
        next.from.reset();
        if (next.number % 16 == 0) {
            check_chunk(br, *next.on_device, pattern, next.number);
        }
        coming.pop_front();
    };
    // What is still on the device goes first, so that there is room for the rest.
    std::vector<std::pair<std::uint64_t, std::unique_ptr<Buffer>>> below;
    for (std::uint64_t i = 0; i < count; ++i) {
        auto buffer = std::exchange(chunks[i], nullptr)->take();
        if (buffer->mem_type() != MemoryType::DEVICE) {
            below.emplace_back(i, std::move(buffer));
        }
    }
    begin = Clock::now();
    for (auto& [number, buffer] : below) {
        if (coming.size() == 8) {
            finish();
        }
        auto memory = br.reserve_device_memory_and_spill(buffer->size(), AllowOverbooking::no);
        brought += buffer->size();
        auto copied = br.copier().start_copy(*buffer, 0, buffer->size(), memory);
        coming.push_back({number, std::move(buffer), std::move(copied)});
    }
    while (!coming.empty()) {
        finish();
    }
    round.back = static_cast<double>(brought) / seconds_since(begin);
    return round;
}

// Device memory straight to disk and back.
Round run_disk(BufferResource& br, Buffer const& pattern, std::size_t total, std::size_t chunk) {
    std::vector<std::unique_ptr<Buffer>> chunks;
    std::vector<Buffer const*> sources;
    for (std::uint64_t i = 0; i < total / chunk; ++i) {
        chunks.push_back(make_chunk(br, pattern, chunk, i));
        sources.push_back(chunks.back().get());
    }
    Round round;
    auto begin = Clock::now();
    auto on_disk = br.copier().write_to_disk(sources);
    round.out = static_cast<double>(total) / seconds_since(begin);
    chunks.clear();
    begin = Clock::now();
    for (std::uint64_t i = 0; i < on_disk.size(); ++i) {
        auto memory = br.reserve(MemoryType::DEVICE, chunk, AllowOverbooking::yes).first;
        auto const back = br.move(std::move(on_disk[i]), memory);
        back->synchronize();
        check_chunk(br, *back, pattern, i);
    }
    round.back = static_cast<double>(total) / seconds_since(begin);
    return round;
}

std::size_t argument(int argc, char** argv, int index, std::size_t fallback) {
    return argc > index ? std::strtoull(argv[index], nullptr, 10) : fallback;
}

void number(std::string& out, char const* key, double value) {
    out += (out.empty() ? "" : ", ") + std::string{"\""} + key + "\": " + std::to_string(value);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        constexpr std::size_t GB = 1'000'000'000;
        auto const chunk = argument(argc, argv, 3, 128) << 20U;
        auto const total = argument(argc, argv, 1, 40) * GB / chunk * chunk;
        auto const limit = argument(argc, argv, 2, 10) * GB;
        auto const disk_bytes = argument(argc, argv, 4, 8) * GB / chunk * chunk;
        if (Device::current().kind() != DeviceKind::cuda) {
            throw std::runtime_error{"this is for GPUs, and here is none"};
        }
        rmm::mr::pool_memory_resource pool{
            rmm::mr::get_current_device_resource_ref(), (limit * 2 + 8 * GB) / 256 * 256};
        BufferResource::Settings settings;
        settings.device_mr = std::make_shared<RmmResource>(pool);
        settings.limits[static_cast<std::size_t>(MemoryType::DEVICE)] = static_cast<std::int64_t>(limit);
        settings.pinned_mr = PinnedMemoryResource::make({.numa_node = {}, .initial_pool_size = total});
        auto const br = BufferResource::make(std::move(settings));
        BufferResource::Settings unlimited;
        unlimited.device_mr = std::make_shared<RmmResource>(pool);
        unlimited.pinned_mr = br->pinned_mr();
        auto const free = BufferResource::make(std::move(unlimited));

        auto const pattern = free->allocate(MemoryType::DEVICE, chunk + 64 * 4096);
        std::vector<std::uint64_t> noise(pattern->size() / 8);
        std::uint64_t x = 1;
        for (auto& word : noise) {
            x = x * 6364136223846793005ULL + 1442695040888963407ULL;
            word = x ^ (x >> 29U);
        }
        pattern->write([&](std::byte* to, Stream stream) {
            free->device().copy(to, noise.data(), pattern->size(), stream);
            free->device().synchronize(stream);
        });

        std::string out;
        Beside beside{*free};
        auto const first = run(*br, *pattern, total, limit, chunk);  // the pool is being locked meanwhile
        std::vector<double> outs;
        std::vector<double> backs;
        for (int i = 0; i < 3; ++i) {
            auto const round = run(*br, *pattern, total, limit, chunk);
            outs.push_back(round.out);
            backs.push_back(round.back);
        }
        std::sort(outs.begin(), outs.end());
        std::sort(backs.begin(), backs.end());
        // Alone before and after: a GPU that has just woken is slower.
        auto const rate_alone = [&] {
            return beside.rate_during([] { std::this_thread::sleep_for(std::chrono::seconds{1}); });
        };
        (void)rate_alone();
        Round busy;
        auto const before = rate_alone();
        auto const disturbed = beside.rate_during([&] { busy = run(*br, *pattern, total, limit, chunk); });
        auto const alone = (before + rate_alone()) / 2;
        auto const disk = run_disk(*free, *pattern, disk_bytes, chunk);
        number(out, "total_bytes", static_cast<double>(total));
        number(out, "limit_bytes", static_cast<double>(limit));
        number(out, "chunk_bytes", static_cast<double>(chunk));
        number(out, "first_spill_bytes_per_second", first.out);
        number(out, "spill_bytes_per_second", outs[1]);
        number(out, "unspill_bytes_per_second", backs[1]);
        number(out, "spill_beside_kernels_bytes_per_second", busy.out);
        number(out, "unspill_beside_kernels_bytes_per_second", busy.back);
        number(out, "kernel_alone_bytes_per_second", alone);
        number(out, "kernel_beside_bytes_per_second", disturbed);
        number(out, "disk_write_bytes_per_second", disk.out);
        number(out, "disk_read_bytes_per_second", disk.back);
        std::cout << "{\"case\": \"gpu_spill\", \"device\": \"" << free->device().name() << "\", " << out
                  << "}" << std::endl;
        return 0;
    } catch (std::exception const& error) {
        std::cerr << "bench_gpu_spill: " << error.what() << std::endl;
        return 1;
    }
}
