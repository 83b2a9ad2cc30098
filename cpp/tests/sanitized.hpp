// Whether these tests run under a sanitizer: its own memory leaves no room to measure ours, and its pace asks for less work.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RAPIDSMPF_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RAPIDSMPF_SANITIZED 1
#endif
#endif

namespace rapidsmpf {

#ifdef RAPIDSMPF_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace rapidsmpf
