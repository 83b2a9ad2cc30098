// RAPIDSMPF_ADDRESS_SANITIZER is defined where AddressSanitizer watches, whichever compiler built it in.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define RAPIDSMPF_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RAPIDSMPF_ADDRESS_SANITIZER 1
#endif
#endif
