#include <rapidsmpf/memory/available_memory.hpp>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/memory_type.hpp>

namespace rapidsmpf {

namespace {

constexpr auto unlimited = std::numeric_limits<std::int64_t>::max();

}  // namespace

LimitAvailableMemory::LimitAvailableMemory(std::shared_ptr<RmmResourceAdaptor const> mr, std::int64_t limit)
    : mr_{std::move(mr)}, limit_{limit} {
    RAPIDSMPF_EXPECTS(
        mr_ != nullptr, "a limit on available memory needs a resource adaptor that counts",
        std::invalid_argument);
}

AvailableMemoryMap available_memory_from_options(
    std::shared_ptr<RmmResourceAdaptor const> mr, config::Options options) {
    auto& device = Device::current();
    auto const limit = options.get<std::int64_t>("spill_device_limit", [&](std::string const& text) {
        return config::is_disabled(text)
                   ? unlimited
                   : config::parse_bytes_or_percent(text.empty() ? "80%" : text, device.total_memory());
    });
    AvailableMemoryMap map;
    if (limit == unlimited) {
        return map;
    }
    auto& entry = map[static_cast<std::size_t>(MemoryType::DEVICE)];
    LimitAvailableMemory by_adaptor{std::move(mr), limit};
    if (device.kind() == DeviceKind::cpu) {
        entry = [by_adaptor = std::move(by_adaptor), &device] {
            return std::min(by_adaptor(), by_adaptor.limit() - device.used_memory());
        };
    } else {
        entry = std::move(by_adaptor);
    }
    return map;
}

}  // namespace rapidsmpf
