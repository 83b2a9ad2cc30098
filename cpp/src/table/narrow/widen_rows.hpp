// Concatenates narrow tables into one whose columns have their own types.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::detail {

// `wide`: the wide_schema() of each of the tables, which are in host memory and may be narrow or not, each in its own way. Each is
// there, and dropped when its rows have been copied. Throws ReservationError if there is no memory.
[[nodiscard]] Table widen_and_concat(
    std::shared_ptr<Schema const> wide, std::vector<std::optional<Table>> tables, BufferResource& br,
    AllowOverbooking allow);

}  // namespace rapidsmpf::detail
