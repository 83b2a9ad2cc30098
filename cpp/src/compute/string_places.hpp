// Makes a string column of strings that are anywhere in device memory.
#pragma once

#include <cstddef>
#include <memory>

#include <cudf/column/column.hpp>
#include <rmm/device_buffer.hpp>

#include <rapidsmpf/pages/detail/number_strings.hpp>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// The address and length of each row's string, which a kernel fills in; a null address is a null.
class StringPlaces {
  public:
    StringPlaces(std::size_t rows, Work& work);
    [[nodiscard]] pages::StringPlace* data() noexcept {
        return static_cast<pages::StringPlace*>(memory_.data());
    }
    // Copies the strings into a column.
    [[nodiscard]] std::unique_ptr<cudf::column> strings(Work& work) const;

  private:
    std::size_t rows_;
    rmm::device_buffer memory_;
};

}  // namespace rapidsmpf::compute
