#include "compute/string_places.hpp"

#include <variant>  // libcudf's headers need it first

#include <cudf/column/column_factories.hpp>

namespace rapidsmpf::compute {

StringPlaces::StringPlaces(std::size_t rows, Work& work)
    : rows_{rows}, memory_{rows * sizeof(pages::StringPlace), work.stream(), work.mr()} {}

std::unique_ptr<cudf::column> StringPlaces::strings(Work& work) const {
    // libcudf's pair of a string's address and its length.
    using Pair = cuda::std::pair<char const*, cudf::size_type>;
    static_assert(sizeof(Pair) == sizeof(pages::StringPlace) && alignof(Pair) == alignof(pages::StringPlace));
    static_assert(offsetof(Pair, second) == offsetof(pages::StringPlace, bytes));
    return cudf::make_strings_column(
        cudf::device_span<Pair const>{static_cast<Pair const*>(memory_.data()), rows_}, work.stream(),
        work.mr());
}

}  // namespace rapidsmpf::compute
