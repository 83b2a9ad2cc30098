// The memory of a GPU that other processes of this host can write to, by CUDA's handles for other processes.
#pragma once

#include <memory>
#include <string>

#include <rapidsmpf/device/detail/exported_memory.hpp>

namespace rapidsmpf::device::detail {

// `device` owns it. Makes the first region, too: whether the system allows it shows only then. Null, with the reason, when it does not.
[[nodiscard]] std::unique_ptr<ExportedMemory> make_cuda_exported_memory(
    Device& device, int ordinal, std::string& reason);

}  // namespace rapidsmpf::device::detail
