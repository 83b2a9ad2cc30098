#include <rapidsmpf/memory/pinned_memory_resource.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/detail/host_memory.hpp>

#include "memory/resources/pinned_pool.hpp"

namespace rapidsmpf {

namespace memory {
#ifndef RAPIDSMPF_HAVE_CUDA
std::shared_ptr<PinnedMemoryResource> make_pinned_pool(
    PinnedMemoryResource::Properties const& /*properties*/, std::string& reason) {
    reason = "this build has no CUDA support";
    return nullptr;
}
#endif
}  // namespace memory

namespace {

void check_sizes(PinnedMemoryResource::Properties const& properties) {
    RAPIDSMPF_EXPECTS(
        properties.max_pool_size == 0 || properties.initial_pool_size <= properties.max_pool_size,
        "pinned memory: the initial pool size of " + config::format_bytes(properties.initial_pool_size)
            + " exceeds the maximal one of " + config::format_bytes(properties.max_pool_size),
        std::invalid_argument);
}

std::int64_t host_memory() {
    return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

std::shared_ptr<PinnedMemoryResource> PinnedMemoryResource::make(Properties const& properties) {
    check_sizes(properties);
    std::string reason;
    auto pool = memory::make_pinned_pool(properties, reason);
    RAPIDSMPF_EXPECTS(
        pool != nullptr,
        "there is no page-locked host memory: " + reason
            + "; leave pinned memory off (pinned_memory=false, pinned_mr=None) on this machine",
        std::runtime_error);
    return pool;
}

std::shared_ptr<PinnedMemoryResource> PinnedMemoryResource::make_if_available(Properties const& properties) {
    check_sizes(properties);
    std::string reason;
    return memory::make_pinned_pool(properties, reason);
}

PinnedMemoryResource::Properties PinnedMemoryResource::properties_from_options(config::Options options) {
    Properties properties;
    properties.initial_pool_size =
        static_cast<std::size_t>(config::get_share(options, "pinned_initial_pool_size", host_memory));
    properties.max_pool_size = static_cast<std::size_t>(
        config::get_optional_share(options, "pinned_max_pool_size", host_memory).value_or(0));
    return properties;
}

std::shared_ptr<PinnedMemoryResource> PinnedMemoryResource::from_options(config::Options options) {
    return config::get_bool(options, "pinned_memory") ? make_if_available(properties_from_options(options))
                                                      : nullptr;
}

bool PinnedMemoryResource::is_available() {
    std::string reason;
    return memory::make_pinned_pool(Properties{}, reason) != nullptr;
}

}  // namespace rapidsmpf
