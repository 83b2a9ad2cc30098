#include <rapidsmpf/memory/available_memory.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/detail/host_memory.hpp>
#include <rapidsmpf/device/detail/shared_memory.hpp>
#include <rapidsmpf/memory/memory_type.hpp>

namespace rapidsmpf {

LimitAvailableMemory::LimitAvailableMemory(std::shared_ptr<RmmResourceAdaptor const> mr, std::int64_t limit)
    : mr_{std::move(mr)}, limit_{limit} {
    RAPIDSMPF_EXPECTS(
        mr_ != nullptr, "a limit on available memory needs a resource adaptor that counts",
        std::invalid_argument);
}

std::int64_t device_memory_from_options(config::Options options, Device& device) {
    auto const limit = config::get_optional_bytes(options, "memory_limit");
    return limit && device.kind() == DeviceKind::cpu ? *limit : device.total_memory();
}

std::int64_t LimitAvailableMemory::operator()() const noexcept {
    return limit_ - mr_->current_allocated() - static_cast<std::int64_t>(device::SharedMemory::used());
}

AvailableMemoryMap available_memory_from_options(
    std::shared_ptr<RmmResourceAdaptor const> mr, config::Options options) {
    auto& device = Device::current();
    auto const total = device_memory_from_options(options, device);
    auto const limit = config::get_optional_share(options, "spill_device_limit", [&] { return total; });
    AvailableMemoryMap map;
    if (!limit) {
        return map;
    }
    auto& entry = map[static_cast<std::size_t>(MemoryType::DEVICE)];
    LimitAvailableMemory by_adaptor{std::move(mr), *limit};
    if (device.kind() == DeviceKind::cpu) {
        entry = [by_adaptor = std::move(by_adaptor), &device] {
            auto const use = device::measure_host_memory(device);
            device::trim_host_memory_above(by_adaptor.limit(), use);
            return std::min(by_adaptor(), by_adaptor.limit() - use.in_use());
        };
    } else {
        entry = std::move(by_adaptor);
    }
    return map;
}

}  // namespace rapidsmpf
