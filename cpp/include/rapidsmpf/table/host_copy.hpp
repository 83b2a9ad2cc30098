// Copies a table from a GPU to host memory.
#pragma once

#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf {

// The same rows in host memory that belongs to the result; waits for the GPU. What is in host memory already is shared.
// Throws OutOfMemory.
[[nodiscard]] Table copy_to_host(Table const& table);

}  // namespace rapidsmpf
