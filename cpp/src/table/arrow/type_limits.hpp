// What all that read types of columns have in common.
#pragma once

#include <string>

namespace rapidsmpf::detail {

// Deeper types than this are refused: every visit of a type is recursive.
inline constexpr int most_type_levels = 100;

// A column in an error.
[[nodiscard]] inline std::string column_name(std::string const& name) {
    return "column '" + name + "'";
}

}  // namespace rapidsmpf::detail
