#include <stdexcept>

#include <rapidsmpf/table/hash_cuda.hpp>

#ifndef RAPIDSMPF_HAVE_CUDA
namespace rapidsmpf {

void hash_rows_cuda(
    std::span<DeviceKeyColumn const> /*columns*/, std::int64_t /*num_rows*/, std::uint64_t* /*hashes*/,
    std::uint64_t /*seed*/, Stream /*stream*/) {
    throw std::runtime_error{"cannot hash rows on a GPU: this build has no CUDA support"};
}

}  // namespace rapidsmpf
#endif
