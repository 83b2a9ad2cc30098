// Events between tables of ours and of others on a GPU.
#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/detail/cuda_check.hpp>

#include "table/gpu/device_table.hpp"

namespace rapidsmpf::detail {

namespace {

using device::detail::check_cuda;

struct OwnedEvent {
    OwnedEvent() = default;
    ~OwnedEvent() {
        if (event != nullptr) {
            cudaEventDestroy(event);
        }
    }
    OwnedEvent(OwnedEvent const&) = delete;
    OwnedEvent& operator=(OwnedEvent const&) = delete;

    cudaEvent_t event{nullptr};
};

}  // namespace

void wait_for_producer(ArrowDeviceArray const& array, Stream stream) {
    int ordinal{0};
    check_cuda(cudaGetDevice(&ordinal), "cudaGetDevice");
    RAPIDSMPF_EXPECTS(
        array.device_type == ARROW_DEVICE_CUDA_HOST || array.device_id == ordinal,
        "the Arrow array is on GPU " + std::to_string(array.device_id) + ", but this process works on GPU "
            + std::to_string(ordinal),
        std::invalid_argument);
    if (array.sync_event != nullptr) {
        check_cuda(
            cudaStreamWaitEvent(
                static_cast<cudaStream_t>(stream.handle()), *static_cast<cudaEvent_t*>(array.sync_event), 0),
            "cudaStreamWaitEvent");
    }
}

std::pair<std::shared_ptr<void>, std::int64_t> mark_for_consumer(Stream stream) {
    int ordinal{0};
    check_cuda(cudaGetDevice(&ordinal), "cudaGetDevice");
    auto owned = std::make_shared<OwnedEvent>();
    check_cuda(cudaEventCreateWithFlags(&owned->event, cudaEventDisableTiming), "cudaEventCreate");
    check_cuda(cudaEventRecord(owned->event, static_cast<cudaStream_t>(stream.handle())), "cudaEventRecord");
    auto* const event = &owned->event;
    return {std::shared_ptr<void>{std::move(owned), event}, ordinal};
}

}  // namespace rapidsmpf::detail
