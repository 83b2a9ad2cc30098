#include "polars_plugin/plugin.hpp"

namespace polars_plugin {

std::string& last_error() {
    thread_local std::string message = "the plugin of cudf_polars has not failed";
    return message;
}

}  // namespace polars_plugin

extern "C" {

// Version 0.1 of the plugin interface: major in the upper half, minor in the lower.
[[gnu::visibility("default")]] std::uint32_t _polars_plugin_get_version() {
    return 1;
}

[[gnu::visibility("default")]] char const* _polars_plugin_get_last_error_message() {
    return polars_plugin::last_error().c_str();
}

}  // extern "C"
