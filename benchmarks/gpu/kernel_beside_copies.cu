// What a kernel that is bound by the GPU's memory keeps of its speed while copy engines move page-locked memory: the bound
// of any spilling beside it.
//
//   nvcc -std=c++17 -O2 -arch=sm_90 -o beside kernel_beside_copies.cu && ./beside
//
// The kernel copies 1 GiB inside the GPU, again and again; beside it chunks of 128 MiB go to the host, come from it, both, or
// are made by copies inside the GPU as often as a link of 55 GB/s takes one away. Prints a JSON object for each: TB/s of the
// kernel (read and written), GB/s beside it, the share of its undisturbed speed.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t work = std::size_t{1} << 30U;
constexpr std::size_t chunk = std::size_t{128} << 20U;
constexpr int chunks = 8;

void check(cudaError_t status, char const* what) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
        std::exit(1);
    }
}

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

__global__ void copy_kernel(uint4 const* from, uint4* to, std::size_t count) {
    auto const stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (auto i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += 4 * stride) {
        uint4 words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            words[j] = i + j * stride < count ? from[i + j * stride] : uint4{};
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (i + j * stride < count) {
                to[i + j * stride] = words[j];
            }
        }
    }
}

// Work that is enqueued on a stream, three batches ahead, until `stop`; bytes a second.
double keep_busy(
    std::atomic<bool> const& stop, std::size_t bytes, std::function<void(cudaStream_t)> const& enqueue) {
    cudaStream_t stream{};
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    std::deque<cudaEvent_t> running;
    std::size_t moved = 0;
    auto const begin = Clock::now();
    auto const finish = [&] {
        check(cudaEventSynchronize(running.front()), "cudaEventSynchronize");
        check(cudaEventDestroy(running.front()), "cudaEventDestroy");
        running.pop_front();
        moved += bytes;
    };
    while (!stop) {
        enqueue(stream);
        cudaEvent_t event{};
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
        check(cudaEventRecord(event, stream), "cudaEventRecord");
        running.push_back(event);
        if (running.size() == 3) {
            finish();
        }
    }
    while (!running.empty()) {
        finish();
    }
    return static_cast<double>(moved) / seconds_since(begin);
}

}  // namespace

int main() {
    char* from{};
    char* to{};
    char* device{};
    char* made{};
    char* host{};
    check(cudaMalloc(&from, work), "cudaMalloc");
    check(cudaMalloc(&to, work), "cudaMalloc");
    check(cudaMalloc(&device, chunks * chunk), "cudaMalloc");
    check(cudaMalloc(&made, chunks * chunk), "cudaMalloc");
    check(cudaMallocHost(&host, 2 * chunks * chunk), "cudaMallocHost");
    int processors{};
    check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
    auto const kernel = [&](cudaStream_t stream) {
        for (int i = 0; i < 8; ++i) {
            copy_kernel<<<processors * 4, 512, 0, stream>>>(
                reinterpret_cast<uint4 const*>(from), reinterpret_cast<uint4*>(to), work / 16);
        }
        check(cudaGetLastError(), "copy_kernel");
    };
    int turn = 0;
    auto const copy = [](char* target, char const* source, cudaStream_t stream) {
        check(cudaMemcpyAsync(target, source, chunk, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    };
    auto const out = [&](cudaStream_t stream) {
        auto const at = (turn++ % chunks) * chunk;
        copy(host + at, device + at, stream);
    };
    int other_turn = 0;
    auto const in = [&](cudaStream_t stream) {
        auto const at = (other_turn++ % chunks) * chunk;
        copy(made + at, host + (chunks * chunk) + at, stream);
    };
    // As a link of 55 GB/s takes them away.
    int made_turn = 0;
    auto next = Clock::now();
    auto const inside = [&](cudaStream_t stream) {
        next += std::chrono::microseconds{chunk / 55'000};
        std::this_thread::sleep_until(next);
        auto const at = (made_turn++ % chunks) * chunk;
        copy(made + at, device + at, stream);
    };
    using Work = std::function<void(cudaStream_t)>;
    double alone = 0;
    auto const measure = [&](char const* name, std::vector<Work> const& beside) {
        std::atomic<bool> stop{false};
        double rate = 0;
        std::vector<double> rates(beside.size());
        std::vector<std::thread> threads;
        next = Clock::now();
        threads.emplace_back([&] { rate = keep_busy(stop, 8 * 2 * work, kernel); });
        for (std::size_t i = 0; i < beside.size(); ++i) {
            threads.emplace_back([&, i] { rates[i] = keep_busy(stop, chunk, beside[i]); });
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{1500});
        stop = true;
        for (auto& thread : threads) {
            thread.join();
        }
        double sum = 0;
        for (auto const one : rates) {
            sum += one;
        }
        alone = alone == 0 ? rate : alone;
        std::printf(
            "{\"beside\": \"%s\", \"kernel_tb_per_second\": %.3f, \"beside_gb_per_second\": %.1f, \"share\": "
            "%.3f}\n",
            name, rate / 1e12, sum / 1e9, rate / alone);
    };
    measure("nothing", {});
    measure("to the host", {out});
    measure("from the host", {in});
    measure("to and from the host", {out, in});
    measure("copies inside the GPU at 55 GB/s", {inside});
    measure("to the host, and copies inside the GPU at 55 GB/s", {out, inside});
    return 0;
}
