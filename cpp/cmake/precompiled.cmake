# Precompiled headers for builds that compile everything once, as CI does: half of a file's time goes into the standard
# library's headers and GoogleTest's. Off by default: sources must include what they use.
option(RAPIDSMPF_PRECOMPILE "Precompile the standard library's headers (and GoogleTest's for tests)" OFF)
set(RAPIDSMPF_PRECOMPILED_HEADERS
    <algorithm>
    <array>
    <atomic>
    <chrono>
    <condition_variable>
    <cstdint>
    <cstring>
    <deque>
    <functional>
    <map>
    <memory>
    <mutex>
    <optional>
    <set>
    <span>
    <sstream>
    <string>
    <string_view>
    <thread>
    <tuple>
    <unordered_map>
    <utility>
    <variant>
    <vector>)

# rapidsmpf_precompile(<target> [<headers beside the standard library's>...])
function(rapidsmpf_precompile target)
  if(NOT RAPIDSMPF_PRECOMPILE)
    return()
  endif()
  set(headers)
  foreach(header IN LISTS RAPIDSMPF_PRECOMPILED_HEADERS ARGN)
    # A header's name in angle brackets would end the generator expression.
    string(REPLACE ">" "$<ANGLE-R>" header "${header}")
    list(APPEND headers "$<$<COMPILE_LANGUAGE:CXX>:${header}>")
  endforeach()
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()
