// From the type that a column has in a file to the type that a scan gives.
#pragma once

#include <string>

#include <cudf/types.hpp>

#include <rapidsmpf/compute/detail/program.hpp>

namespace rapidsmpf::compute {

// Whether each value of `from` is one of `to`, so that a cast loses nothing. Times of a coarser unit count as values of a finer
// one, though years far from ours are not.
[[nodiscard]] bool holds_all_values(cudf::data_type from, cudf::data_type to) noexcept;

[[nodiscard]] cudf::data_type cudf_type(DataType const& type);

// "INT64", "DECIMAL64 with 2 decimal places".
[[nodiscard]] std::string type_name(cudf::data_type type);

}  // namespace rapidsmpf::compute
