#include <rapidsmpf/device/device.hpp>

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

namespace device {
#ifndef RAPIDSMPF_HAVE_CUDA
std::unique_ptr<Device> make_cuda_device(std::string& reason) {
    reason = "this build has no CUDA support";
    return nullptr;
}
int count_cuda_devices() noexcept {
    return 0;
}
#endif
}  // namespace device

namespace {

std::atomic<bool> prefers_cpu{false};

std::unique_ptr<Device> choose_device() {
    auto const* variable = std::getenv("RAPIDSMPF_DEVICE");
    std::string const wanted = variable == nullptr || *variable == '\0' ? "auto" : variable;
    RAPIDSMPF_EXPECTS(
        wanted == "auto" || wanted == "cuda" || wanted == "cpu",
        "RAPIDSMPF_DEVICE is \"" + wanted + "\": use auto, cuda or cpu", std::invalid_argument);
    if (wanted == "cuda" || (wanted == "auto" && !prefers_cpu)) {
        std::string reason;
        if (auto cuda = device::make_cuda_device(reason)) {
            return cuda;
        }
        RAPIDSMPF_EXPECTS(
            wanted == "auto", "RAPIDSMPF_DEVICE=cuda, but no GPU is usable: " + reason, std::runtime_error);
    }
    return device::make_cpu_device();
}

}  // namespace

Device& Device::current() {
    // Never destroyed: buffers of static objects may be freed after it would be.
    static Device* const device = choose_device().release();
    return *device;
}

bool Device::prefer_cpu() {
    prefers_cpu = true;
    return current().kind() == DeviceKind::cpu;
}

}  // namespace rapidsmpf
