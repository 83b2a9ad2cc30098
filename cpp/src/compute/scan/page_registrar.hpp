// What mapped files need of CUDA: pages that its copy engines may read. Behind an interface, so that the tables of ranges are
// tested without a driver.
#pragma once

#include <cstddef>
#include <memory>

namespace rapidsmpf::compute {

// Thread-safe.
class PageRegistrar {
  public:
    virtual ~PageRegistrar() = default;
    // Makes whole pages of a mapping readable by copy engines. False if that is refused: the pages are not there, or may not
    // be locked. Never overlaps a range that is registered.
    [[nodiscard]] virtual bool add(void* address, std::size_t bytes) = 0;
    // Takes back what add() was called with; no copy reads it any more.
    virtual void remove(void* address, std::size_t bytes) noexcept = 0;

    // Page-locked memory; nullptr if there is none.
    [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
    virtual void free(void* address) noexcept = 0;
};

// CUDA's, for the device that is current now.
[[nodiscard]] std::unique_ptr<PageRegistrar> make_cuda_registrar();

}  // namespace rapidsmpf::compute
