#include <rapidsmpf/topology/detail/nvml.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>

#include <dlfcn.h>

namespace rapidsmpf::topology {

namespace {

struct CloseLibrary {
    void operator()(void* library) const noexcept { ::dlclose(library); }
};

// NVML's own types, by their published layout.
using Device = struct nvmlDevice_st*;
struct PciInfo {
    std::array<char, 16> legacy_bus_id;
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned pci_device_id;
    unsigned pci_subsystem_id;
    std::array<char, 32> bus_id;
};
constexpr int success = 0;

template <typename Function>
Function* symbol(void* library, char const* name) {
    return reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace

std::string sysfs_bus_id(std::string const& bus_id) {
    auto text = bus_id;
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    auto const colon = text.find(':');
    constexpr std::size_t domain_digits = 4;
    if (colon != std::string::npos && colon > domain_digits
        && text.find_first_not_of('0') >= colon - domain_digits) {
        text.erase(0, colon - domain_digits);
    }
    return text;
}

std::vector<GpuName> gpus_of_nvml() {
    std::unique_ptr<void, CloseLibrary> const library{::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!library) {
        return {};
    }
    auto* const init = symbol<int()>(library.get(), "nvmlInit_v2");
    auto* const shutdown = symbol<int()>(library.get(), "nvmlShutdown");
    auto* const count = symbol<int(unsigned*)>(library.get(), "nvmlDeviceGetCount_v2");
    auto* const handle = symbol<int(unsigned, Device*)>(library.get(), "nvmlDeviceGetHandleByIndex_v2");
    auto* const name = symbol<int(Device, char*, unsigned)>(library.get(), "nvmlDeviceGetName");
    auto* const uuid = symbol<int(Device, char*, unsigned)>(library.get(), "nvmlDeviceGetUUID");
    auto* const pci = symbol<int(Device, PciInfo*)>(library.get(), "nvmlDeviceGetPciInfo_v3");
    if (!init || !shutdown || !count || !handle || !name || !uuid || !pci || init() != success) {
        return {};
    }
    std::vector<GpuName> gpus;
    unsigned number = 0;
    if (count(&number) == success) {
        for (unsigned index = 0; index < number; ++index) {
            Device device = nullptr;
            std::array<char, 96> name_text{};
            std::array<char, 96> uuid_text{};
            PciInfo info{};
            if (handle(index, &device) != success || pci(device, &info) != success) {
                // Keeps its number: the others' must not move.
                gpus.emplace_back();
                continue;
            }
            name(device, name_text.data(), name_text.size());
            uuid(device, uuid_text.data(), uuid_text.size());
            gpus.push_back(GpuName{name_text.data(), uuid_text.data(), sysfs_bus_id(info.bus_id.data())});
        }
    }
    shutdown();
    return gpus;
}

}  // namespace rapidsmpf::topology
