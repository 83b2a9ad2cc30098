// What the links between the GPUs of a host carry when all send to all: the bound of a shuffle, by how it is done.
//
//   nvcc -std=c++17 -O2 -arch=sm_90 -o links links.cu && ./links [MB to each peer = 800]
//
// Each GPU writes so much to each of its peers. Ways: copy engines on a stream for each peer; on one stream, beginning with
// the next GPU; in slices of 16 MiB in turns; kernels on some multiprocessors for each peer. Prints a JSON object for each:
// GB/s out of a GPU, median of seven.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime.h>

namespace {

void check(cudaError_t status, char const* what) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
        std::exit(1);
    }
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

struct Gpu {
    char* source{nullptr};              // for all peers, one after the other
    std::vector<char*> landing;         // from each peer
    std::vector<cudaStream_t> streams;  // to each peer
};

class Host {
  public:
    explicit Host(std::size_t bytes) : bytes_{bytes} {
        int count{0};
        check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
        gpus_.resize(static_cast<std::size_t>(count));
        for (int g = 0; g < count; ++g) {
            check(cudaSetDevice(g), "cudaSetDevice");
            for (int other = 0; other < count; ++other) {
                if (other != g) {
                    check(cudaDeviceEnablePeerAccess(other, 0), "cudaDeviceEnablePeerAccess");
                }
            }
            auto& gpu = gpus_[static_cast<std::size_t>(g)];
            check(cudaMalloc(&gpu.source, bytes * gpus_.size()), "cudaMalloc");
            gpu.landing.resize(gpus_.size());
            gpu.streams.resize(gpus_.size());
            for (auto& landing : gpu.landing) {
                check(cudaMalloc(&landing, bytes), "cudaMalloc");
            }
            for (auto& stream : gpu.streams) {
                check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
            }
        }
    }

    [[nodiscard]] std::size_t size() const { return gpus_.size(); }

    // copy(from, to, source, destination, stream of the source for this peer)
    using Copy = std::function<void(char*, char const*, std::size_t, cudaStream_t)>;

    // `enqueue` of one GPU: calls send(peer, offset, bytes, which stream) as it likes.
    using Send = std::function<void(std::size_t, std::size_t, std::size_t, std::size_t)>;
    void measure(
        std::string const& way, Copy const& copy,
        std::function<void(std::size_t, Send const&)> const& enqueue) {
        std::vector<double> rates;
        for (int round = 0; round < 9; ++round) {
            auto const begin = std::chrono::steady_clock::now();
            for (std::size_t g = 0; g < size(); ++g) {
                check(cudaSetDevice(static_cast<int>(g)), "cudaSetDevice");
                enqueue(g, [&](std::size_t peer, std::size_t offset, std::size_t bytes, std::size_t stream) {
                    copy(
                        gpus_[peer].landing[g] + offset, gpus_[g].source + peer * bytes_ + offset, bytes,
                        gpus_[g].streams[stream]);
                });
            }
            for (std::size_t g = 0; g < size(); ++g) {
                check(cudaSetDevice(static_cast<int>(g)), "cudaSetDevice");
                check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            }
            std::chrono::duration<double> const taken = std::chrono::steady_clock::now() - begin;
            if (round >= 2) {
                rates.push_back(static_cast<double>(bytes_ * (size() - 1)) / taken.count() / 1e9);
            }
        }
        std::sort(rates.begin(), rates.end());
        std::printf(
            "{\"way\": \"%s\", \"gpus\": %zu, \"bytes_to_each_peer\": %zu, \"gb_per_second_out\": %.1f}\n",
            way.c_str(), size(), bytes_, rates[rates.size() / 2]);
    }

  private:
    std::size_t bytes_;
    std::vector<Gpu> gpus_;
};

}  // namespace

int main(int argc, char** argv) {
    std::size_t const bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 800ULL) * 1'000'000 / 16 * 16;
    Host host{bytes};
    auto const n = host.size();
    auto const engine = [](char* to, char const* from, std::size_t size, cudaStream_t stream) {
        check(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    };
    auto const by_kernel = [](unsigned blocks) {
        return [blocks](char* to, char const* from, std::size_t size, cudaStream_t stream) {
            copy_kernel<<<blocks, 1024, 0, stream>>>(
                reinterpret_cast<uint4 const*>(from), reinterpret_cast<uint4*>(to), size / 16);
            check(cudaGetLastError(), "copy_kernel");
        };
    };
    auto const to_each = [&](std::size_t g, Host::Send const& send) {
        for (std::size_t i = 1; i < n; ++i) {
            send((g + i) % n, 0, bytes, (g + i) % n);
        }
    };
    host.measure("copy engines, a stream for each peer", engine, to_each);
    host.measure(
        "copy engines, one stream, the next GPU first", engine, [&](std::size_t g, Host::Send const& send) {
            for (std::size_t i = 1; i < n; ++i) {
                send((g + i) % n, 0, bytes, g);
            }
        });
    host.measure("copy engines, one stream, GPU 0 first", engine, [&](std::size_t g, Host::Send const& send) {
        for (std::size_t peer = 0; peer < n; ++peer) {
            if (peer != g) {
                send(peer, 0, bytes, g);
            }
        }
    });
    constexpr std::size_t slice = std::size_t{16} << 20U;
    host.measure(
        "copy engines, slices in turns on one stream", engine, [&](std::size_t g, Host::Send const& send) {
            for (std::size_t offset = 0; offset < bytes; offset += slice) {
                for (std::size_t i = 1; i < n; ++i) {
                    send((g + i) % n, offset, std::min(slice, bytes - offset), g);
                }
            }
        });
    for (unsigned const blocks : {8U, 16U, 32U, 44U}) {
        host.measure(
            "kernels of " + std::to_string(blocks) + " blocks, one for each peer", by_kernel(blocks),
            to_each);
    }
    return 0;
}
