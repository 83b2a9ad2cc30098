#include "compute/current_resource.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <cuda/memory_resource>
#include <rmm/mr/per_device_resource.hpp>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/rmm_resource.hpp>

namespace rapidsmpf::compute {

namespace {

using AnyResource = cuda::mr::any_resource<cuda::mr::device_accessible>;

// What was made current on one device.
struct Installed {
    std::optional<AnyResource> before;  // the first
    std::vector<std::shared_ptr<MemoryResource>> memories;
};

struct Registry {
    Mutex mutex;
    std::map<int, Installed> devices RAPIDSMPF_GUARDED_BY(mutex);
};

Registry& registry() {
    static Registry all;
    return all;
}

}  // namespace

AnyResource CurrentResource::beneath(int device) {
    auto& all = registry();
    MutexLock const lock{all.mutex};
    if (auto const found = all.devices.find(device); found != all.devices.end()) {
        return *found->second.before;
    }
    return AnyResource{rmm::mr::get_current_device_resource_ref()};
}

CurrentResource::CurrentResource(std::shared_ptr<MemoryResource> memory, int device)
    : memory_{std::move(memory)}, device_{device} {
    auto& all = registry();
    MutexLock const lock{all.mutex};
    auto& installed = all.devices[device_];
    installed.memories.push_back(memory_);
    auto before = rmm::mr::set_current_device_resource(RmmView{memory_});
    if (installed.memories.size() == 1) {
        installed.before = std::move(before);
    }
}

CurrentResource::~CurrentResource() {
    auto& all = registry();
    MutexLock const lock{all.mutex};
    auto& installed = all.devices[device_];
    std::erase(installed.memories, memory_);
    if (AnyResource{rmm::mr::get_current_device_resource_ref()} == AnyResource{RmmView{memory_}}) {
        if (installed.memories.empty()) {
            (void)rmm::mr::set_current_device_resource(*installed.before);
        } else {
            (void)rmm::mr::set_current_device_resource(RmmView{installed.memories.back()});
        }
    }
    if (installed.memories.empty()) {
        all.devices.erase(device_);
    }
}

}  // namespace rapidsmpf::compute
