// Page-locked memory of the host: where PINNED_HOST buffers come from. Needs a GPU.
//
// The GPU copies from and to it without the CPU. Locking pages is slow (16 GB take seconds), so blocks come
// from a pool that keeps its memory, and whose first part is locked in the background. A block can be used
// by the host and by any stream as soon as it is allocated; one that is released while its stream still
// works on it returns to the pool when that work is done, without a wait.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/memory/memory_resource.hpp>

namespace rapidsmpf {

class PinnedMemoryResource : public MemoryResource {
  public:
    struct Properties {
        // The node of the host's memory; none: that of the CPU that the calling thread runs on.
        std::optional<int> numa_node;
        // Bytes that are locked in the background from the start.
        std::size_t initial_pool_size{0};
        // Bytes that the pool may grow to; 0: as many as there are.
        std::size_t max_pool_size{0};
    };

    // Throws std::runtime_error, with the reason, where there is no page-locked memory to be had, and
    // std::invalid_argument when the initial size exceeds the maximal one.
    [[nodiscard]] static std::shared_ptr<PinnedMemoryResource> make(Properties const& properties);
    [[nodiscard]] static std::shared_ptr<PinnedMemoryResource> make() { return make(Properties{}); }
    // Null where make() would throw for lack of it.
    [[nodiscard]] static std::shared_ptr<PinnedMemoryResource> make_if_available(
        Properties const& properties);
    // As the options say: null unless pinned_memory is on and there is such memory; pinned_initial_pool_size
    // and pinned_max_pool_size, as bytes or as a share of the host's memory.
    [[nodiscard]] static std::shared_ptr<PinnedMemoryResource> from_options(config::Options options);
    [[nodiscard]] static Properties properties_from_options(config::Options options);
    // Whether make() can succeed.
    [[nodiscard]] static bool is_available();

    [[nodiscard]] bool is_host_accessible() const noexcept final { return true; }
    [[nodiscard]] bool is_device_accessible() const noexcept final { return true; }
    [[nodiscard]] Properties const& properties() const noexcept { return properties_; }

  protected:
    explicit PinnedMemoryResource(Properties const& properties) : properties_{properties} {}

  private:
    Properties properties_;
};

}  // namespace rapidsmpf
