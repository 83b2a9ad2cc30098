// Launching kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include <rapidsmpf/device/detail/cuda_check.hpp>

namespace rapidsmpf::detail {

using device::detail::check_cuda;
using device::detail::native;

// Kernels with more than 48 KiB of shared memory have to be allowed to.
template <typename Kernel>
void allow_shared(Kernel kernel, std::size_t bytes) {
    if (bytes > 48U * 1024U) {
        check_cuda(
            cudaFuncSetAttribute(
                kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
            "setting a kernel's shared memory");
    }
}

inline std::uint32_t num_multiprocessors() {
    int ordinal{0};
    int count{0};
    check_cuda(cudaGetDevice(&ordinal), "cudaGetDevice");
    check_cuda(
        cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, ordinal), "cudaDeviceGetAttribute");
    return static_cast<std::uint32_t>(count);
}

// Blocks for work that threads take in strides.
inline std::uint32_t blocks_for(std::uint64_t items, std::uint32_t threads) {
    auto const needed = (items + threads - 1) / threads;
    constexpr std::uint64_t most = 1U << 16U;
    return static_cast<std::uint32_t>(needed < most ? needed : most);
}

}  // namespace rapidsmpf::detail
