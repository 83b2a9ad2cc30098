// What page-locked memory costs and how fast the copy engines are with it, by the way in which it was had: why the pool of
// PinnedMemoryResource is made of registered huge pages (cpp/src/memory/resources/cuda_pinned_pool.cpp).
//
//   nvcc -std=c++17 -O2 -arch=sm_90 -o pinned_memory benchmarks/gpu/pinned_memory.cu && ./pinned_memory
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <sys/mman.h>

namespace {

constexpr std::size_t GiB = std::size_t{1} << 30U;
constexpr std::size_t total = 4 * GiB;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check(cudaError_t status) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
        std::exit(1);
    }
}

void measure(char const* way, std::function<char*(cudaStream_t)> const& get) {
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    char* device;
    check(cudaMalloc(&device, GiB));
    auto const begin = now();
    char* const host = get(stream);
    auto const got = now();
    auto const rate = [&](std::size_t piece, bool out) {
        auto const start = now();
        for (std::size_t at = 0; at < total; at += piece) {
            check(
                out ? cudaMemcpyAsync(host + at, device, piece, cudaMemcpyDeviceToHost, stream)
                    : cudaMemcpyAsync(device, host + at, piece, cudaMemcpyHostToDevice, stream));
        }
        check(cudaStreamSynchronize(stream));
        return static_cast<double>(total) / (now() - start) / 1e9;
    };
    rate(GiB, true);
    auto const out = rate(GiB, true);
    auto const in = rate(GiB, false);
    auto const small = rate(GiB / 64, true);
    std::printf(
        "{\"way\": \"%s\", \"seconds_to_get_4_gib\": %.2f, \"device_to_host_gb_per_second\": %.1f, "
        "\"host_to_device_gb_per_second\": %.1f, \"device_to_host_in_16_mib_gb_per_second\": %.1f}\n",
        way, got - begin, out, in, small);
    check(cudaFree(device));
}

char* register_huge_pages() {
    auto* const host =
        static_cast<char*>(mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(host, total, MADV_HUGEPAGE);
    std::vector<std::thread> threads;
    constexpr std::size_t share = total / 8;
    for (std::size_t i = 0; i < 8; ++i) {
        threads.emplace_back([=] {
            for (auto at = i * share; at < (i + 1) * share; at += 4096) {
                host[at] = 0;
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    check(cudaHostRegister(host, total, cudaHostRegisterPortable));
    return host;
}

char* take_from_driver_pool(cudaStream_t stream) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeHostNuma;
    cudaMemPool_t pool;
    check(cudaMemPoolCreate(&pool, &properties));
    void* host;
    check(cudaMallocFromPoolAsync(&host, total, pool, stream));
    check(cudaStreamSynchronize(stream));
    return static_cast<char*>(host);
}

}  // namespace

int main() {
    measure("huge pages, registered", [](cudaStream_t) { return register_huge_pages(); });
    measure("cudaMallocHost", [](cudaStream_t) {
        void* host;
        check(cudaMallocHost(&host, total));
        return static_cast<char*>(host);
    });
    measure("the driver's pool of host memory", take_from_driver_pool);
    return 0;
}
