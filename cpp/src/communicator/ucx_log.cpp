#include "communicator/ucx_log.hpp"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <mutex>
#include <string_view>

#include <ucs/debug/log_def.h>

namespace rapidsmpf::detail {

namespace {

std::atomic<int>& teardowns() {
    static std::atomic<int> count{0};
    return count;
}

bool is_segment_of_dead_peer(std::string_view source, std::string_view format) {
    if (source.ends_with("mm_sysv.c") && format.starts_with("shmat(")) {
        return errno == EINVAL || errno == EIDRM;
    }
    return source.ends_with("mm_posix.c") && format.starts_with("%s(file_name=") && errno == ENOENT;
}

ucs_log_func_rc_t filter(
    char const* file, unsigned /*line*/, char const* /*function*/, ucs_log_level_t level,
    ucs_log_component_config_t const* /*component*/, char const* format, va_list /*arguments*/) {
    std::string_view const source{file};
    if (level == UCS_LOG_LEVEL_FATAL && source.ends_with("cma_ep.c")) {
        return UCS_LOG_FUNC_RC_STOP;
    }
    if (level == UCS_LOG_LEVEL_ERROR && is_segment_of_dead_peer(source, format)) {
        return UCS_LOG_FUNC_RC_STOP;
    }
    if (teardowns().load(std::memory_order_relaxed) > 0) {
        bool const of_leaks = source.ends_with("mpool.c") || source.ends_with("rcache.c");
        bool const of_lost_memory =
            source.ends_with("mm_sysv.c") || source.ends_with("mm_posix.c") || source.ends_with("mm_ep.c");
        if ((level == UCS_LOG_LEVEL_WARN && of_leaks) || (level == UCS_LOG_LEVEL_ERROR && of_lost_memory)) {
            return UCS_LOG_FUNC_RC_STOP;
        }
    }
    return UCS_LOG_FUNC_RC_CONTINUE;
}

}  // namespace

void survive_dead_peers() {
    static std::once_flag once;
    std::call_once(once, [] { ucs_log_push_handler(filter); });
}

QuietUcxTeardown::QuietUcxTeardown() {
    teardowns().fetch_add(1, std::memory_order_relaxed);
}

QuietUcxTeardown::~QuietUcxTeardown() {
    teardowns().fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace rapidsmpf::detail
