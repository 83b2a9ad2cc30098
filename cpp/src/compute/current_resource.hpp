// The memory that libcudf takes when it is not told where: RMM's current resource of a device.
#pragma once

#include <memory>

#include <cuda/memory_resource>

#include <rapidsmpf/memory/memory_resource.hpp>

namespace rapidsmpf::compute {

// Makes `memory` the current resource of a device as long as this lives. Of several, the newest counts, whichever goes
// first; after the last, what was there before the first is back. What other code has made current meanwhile stays.
// Any number of threads may make and destroy them; the thread is on `device`.
class CurrentResource {
  public:
    CurrentResource(std::shared_ptr<MemoryResource> memory, int device);
    CurrentResource(CurrentResource const&) = delete;
    CurrentResource& operator=(CurrentResource const&) = delete;
    ~CurrentResource();
    // What is current on a device but for those that were made so by this class.
    [[nodiscard]] static cuda::mr::any_resource<cuda::mr::device_accessible> beneath(int device);

  private:
    std::shared_ptr<MemoryResource> memory_;
    int device_;
};

}  // namespace rapidsmpf::compute
