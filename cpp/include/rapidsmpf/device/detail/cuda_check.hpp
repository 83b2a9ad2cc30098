// For the files that call CUDA, whose names say so: its errors as exceptions, and the device of a thread.
#pragma once

#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::device::detail {

// Whether the process cannot use its GPU any more: every later call fails the same way.
[[nodiscard]] inline bool is_sticky(cudaError_t status) noexcept {
    switch (status) {
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
        case cudaErrorAssert:
        case cudaErrorECCUncorrectable:
        case cudaErrorNvlinkUncorrectable:
        case cudaErrorContained:
        case cudaErrorExternalDevice:
            return true;
        default:
            return false;
    }
}

// Throws DeviceLostError, OutOfMemory or std::runtime_error for an error.
inline void check_cuda(cudaError_t status, char const* what) {
    if (status == cudaSuccess) [[likely]] {
        return;
    }
    auto const text = std::string{what} + ": " + cudaGetErrorString(status);
    if (is_sticky(status)) {
        throw DeviceLostError{
            "the GPU cannot be used by this process any more, a kernel or a copy before this has failed: "
            + text};
    }
    (void)cudaGetLastError();  // it is no reason for later calls to fail
    if (status == cudaErrorMemoryAllocation) {
        throw OutOfMemory{text};
    }
    throw std::runtime_error{text};
}

inline cudaStream_t native(Stream stream) noexcept {
    return static_cast<cudaStream_t>(stream.handle());
}

// While it lives the calling thread uses the given GPU: each thread begins with the first one.
class OnDevice {
  public:
    explicit OnDevice(int ordinal) {
        check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
        if (before_ != ordinal) {
            check_cuda(cudaSetDevice(ordinal), "cudaSetDevice");
            changed_ = true;
        }
    }
    OnDevice(OnDevice const&) = delete;
    OnDevice& operator=(OnDevice const&) = delete;
    ~OnDevice() {
        if (changed_) {
            (void)cudaSetDevice(before_);
        }
    }

  private:
    int before_{0};
    bool changed_{false};
};

}  // namespace rapidsmpf::device::detail
