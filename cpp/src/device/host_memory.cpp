#include <algorithm>
#include <cstdlib>

#include <sys/mman.h>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::device {

namespace {
// From here on a block gets whole pages of its own and asks for huge ones.
constexpr std::size_t huge_page_threshold = 4UL << 20U;
constexpr std::size_t huge_page = 2UL << 20U;
}  // namespace

void* allocate_host(std::size_t bytes) {
    auto const alignment = bytes >= huge_page_threshold ? huge_page : Device::alignment;
    auto const rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* const pointer = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
    if (pointer == nullptr) {
        throw OutOfMemory{
            "cannot allocate " + config::format_bytes(static_cast<double>(bytes)) + " of host memory"};
    }
    if (alignment == huge_page) {
        ::madvise(pointer, rounded, MADV_HUGEPAGE);  // a wish, not a need
    }
    return pointer;
}

void deallocate_host(void* pointer, std::size_t /*bytes*/) noexcept {
    std::free(pointer);
}

}  // namespace rapidsmpf::device
