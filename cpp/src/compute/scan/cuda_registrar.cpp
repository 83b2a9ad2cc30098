#include <cuda_runtime_api.h>

#include "compute/scan/mapped_files.hpp"
#include "compute/scan/page_registrar.hpp"

namespace rapidsmpf::compute {

namespace {

class CudaRegistrar final : public PageRegistrar {
  public:
    CudaRegistrar() {
        int supported = 0;
        if (cudaGetDevice(&device_) == cudaSuccess
            && cudaDeviceGetAttribute(&supported, cudaDevAttrHostRegisterReadOnlySupported, device_)
                   == cudaSuccess) {
            supported_ = supported != 0;
        }
        cudaGetLastError();
    }

    bool add(void* address, std::size_t bytes) override {
        if (!supported_ || cudaSetDevice(device_) != cudaSuccess
            || cudaHostRegister(address, bytes, cudaHostRegisterReadOnly) != cudaSuccess) {
            cudaGetLastError();  // so that no later call reports it
            return false;
        }
        return true;
    }

    void remove(void* address, std::size_t) noexcept override {
        if (cudaHostUnregister(address) != cudaSuccess) {
            cudaGetLastError();
        }
    }

    void* allocate(std::size_t bytes) override {
        void* address = nullptr;
        if (cudaSetDevice(device_) != cudaSuccess
            || cudaHostAlloc(&address, bytes, cudaHostAllocPortable) != cudaSuccess) {
            cudaGetLastError();
            return nullptr;
        }
        return address;
    }

    void free(void* address) noexcept override {
        if (cudaFreeHost(address) != cudaSuccess) {
            cudaGetLastError();
        }
    }

  private:
    int device_{0};
    bool supported_{false};
};

}  // namespace

std::unique_ptr<PageRegistrar> make_cuda_registrar() {
    return std::make_unique<CudaRegistrar>();
}

MappedFiles::MappedFiles(ScanSettings const& settings) : MappedFiles{settings, make_cuda_registrar()} {}

}  // namespace rapidsmpf::compute
