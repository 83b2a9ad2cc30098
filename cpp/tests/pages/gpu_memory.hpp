// Memory of a GPU for tests.
#pragma once

#include <cstddef>

#ifdef RAPIDSMPF_HAVE_CUDA
#include <stdexcept>

#include <cuda_runtime_api.h>

namespace rapidsmpf::pages {

inline bool has_gpu() {
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

inline void check(cudaError_t status) {
    if (status != cudaSuccess) {
        throw std::runtime_error{cudaGetErrorString(status)};
    }
}

// Memory of the current device, freed with this object.
class There {
  public:
    explicit There(std::size_t bytes) { check(cudaMalloc(&data_, bytes + 1)); }
    There(void const* from, std::size_t bytes) : There{bytes} {
        check(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice));
    }
    There(There const&) = delete;
    There& operator=(There const&) = delete;
    ~There() { cudaFree(data_); }
    [[nodiscard]] void* data() const { return data_; }
    void read(void* to, std::size_t bytes) const {
        check(cudaMemcpy(to, data_, bytes, cudaMemcpyDeviceToHost));
    }

  private:
    void* data_{nullptr};
};

}  // namespace rapidsmpf::pages
#endif
