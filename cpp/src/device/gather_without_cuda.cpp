#include <stdexcept>

#include <rapidsmpf/device/detail/gather_copy.hpp>

#ifndef RAPIDSMPF_HAVE_CUDA
namespace rapidsmpf {

void gather_copy_cuda(
    std::span<CopyPiece const> /*pieces*/, Stream /*stream*/, std::uint32_t /*most_processors*/) {
    throw std::runtime_error{"cannot copy pieces on a GPU: this build has no CUDA support"};
}

}  // namespace rapidsmpf
#endif
