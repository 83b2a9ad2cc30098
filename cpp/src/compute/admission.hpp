// A source that lets a thread begin with a chunk when there is memory for it.
#pragma once

#include <cstdint>
#include <memory>

#include "compute/device_memory.hpp"
#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// What a thread does with a chunk of `source` is one ChunkMemory, from before it is there until the thread asks for the next
// one or end_chunk() is called. `first_guess`: bytes that a chunk may take while none has been seen.
[[nodiscard]] std::unique_ptr<ChunkSource> admit(
    std::unique_ptr<ChunkSource> source, DeviceMemory& memory, std::int64_t first_guess);

// The calling thread is done with its chunk, if it has one.
void end_chunk() noexcept;

}  // namespace rapidsmpf::compute
