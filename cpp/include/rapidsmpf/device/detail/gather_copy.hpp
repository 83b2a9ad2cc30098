// Many copies by one kernel of the GPU.
//
// A copy of its own costs microseconds to launch and cannot fill the memory system when it is short. This moves
// thousands of pieces of any size and alignment at the speed of one large copy. Sources and destinations are
// memory that the current GPU can address: its own, a peer's that has been mapped, page-locked host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf {

// Enqueues the copies on `stream`; the list may go when the call returns, the memory must stay until the work is
// done. Pieces must not overlap, neither among each other's destinations nor a destination with a source. Throws
// std::runtime_error when the launch fails or this build has no CUDA support. `most_processors` as in
// Device::gather_copy().
void gather_copy_cuda(std::span<CopyPiece const> pieces, Stream stream, std::uint32_t most_processors = 0);

}  // namespace rapidsmpf
