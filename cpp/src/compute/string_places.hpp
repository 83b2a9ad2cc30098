// Columns of strings that are somewhere in the device's memory.
#pragma once

#include <cstddef>
#include <memory>

#include <cudf/column/column.hpp>
#include <rmm/device_buffer.hpp>

#include <rapidsmpf/pages/detail/number_strings.hpp>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// Where the string of each row is; no string is a null.
class StringPlaces {
  public:
    StringPlaces(std::size_t rows, Work& work);
    [[nodiscard]] pages::StringPlace* data() noexcept {
        return static_cast<pages::StringPlace*>(memory_.data());
    }
    // A column with a copy of the strings.
    [[nodiscard]] std::unique_ptr<cudf::column> strings(Work& work) const;

  private:
    std::size_t rows_;
    rmm::device_buffer memory_;
};

}  // namespace rapidsmpf::compute
