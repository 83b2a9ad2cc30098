#include "compute/short_texts.hpp"

#include <cstddef>
#include <variant>  // libcudf's headers need it first

#include <cuda_runtime_api.h>
#include <cudf/column/column_factories.hpp>
#include <cudf/strings/strings_column_view.hpp>
#include <cudf/utilities/error.hpp>
#include <rmm/device_buffer.hpp>

#include "compute/short_texts_kernels.hpp"
#include "compute/string_places.hpp"

namespace rapidsmpf::compute {

namespace {

constexpr cudf::size_type worthwhile_rows = 100'000;  // of fewer, packing costs as much as it saves

bool may_be_packed(cudf::column_view const& column) {
    // The view shares the validity bitmap of the input, which a slice would shift.
    return column.type().id() == cudf::type_id::STRING && column.size() >= worthwhile_rows
           && column.offset() == 0;
}

}  // namespace

ShortTexts::ShortTexts(cudf::table_view const& columns, Work& work) : packed_(columns.num_columns()) {
    auto const stream = work.stream();
    std::vector<cudf::column_view> views{columns.begin(), columns.end()};
    rmm::device_buffer flags;
    for (std::size_t i = 0; i < views.size(); ++i) {
        auto const& column = views[i];
        if (!may_be_packed(column)) {
            continue;
        }
        if (flags.size() == 0) {
            flags = rmm::device_buffer{views.size() * sizeof(std::uint32_t), stream, work.mr()};
            CUDF_CUDA_TRY(cudaMemsetAsync(flags.data(), 0, flags.size(), stream.get()));
        }
        cudf::strings_column_view const strings{column};
        auto const offsets = strings.offsets();
        packed_[i] = cudf::make_numeric_column(
            cudf::data_type{cudf::type_id::INT64}, column.size(), cudf::mask_state::UNALLOCATED, stream,
            work.mr());
        kernels::pack_texts(
            {.characters = strings.chars_begin(stream),
             .offsets = offsets.head(),
             .has_wide_offsets = offsets.type().id() == cudf::type_id::INT64,
             .valid = column.null_mask(),
             .rows = column.size()},
            static_cast<std::uint64_t*>(packed_[i]->mutable_view().head()),
            static_cast<std::uint32_t*>(flags.data()) + i, stream.get());
    }
    if (flags.size() != 0) {
        std::vector<std::uint32_t> is_longer(views.size());
        CUDF_CUDA_TRY(cudaMemcpyAsync(
            is_longer.data(), flags.data(), flags.size(), cudaMemcpyDeviceToHost, stream.get()));
        work.synchronize();
        for (std::size_t i = 0; i < views.size(); ++i) {
            if (is_longer[i] != 0) {
                packed_[i].reset();
            } else if (packed_[i]) {
                views[i] = cudf::column_view{
                    packed_[i]->type(), views[i].size(), packed_[i]->view().head(), views[i].null_mask(),
                    views[i].null_count()};
            }
        }
    }
    view_ = cudf::table_view{views};
}

void ShortTexts::put_strings(std::vector<std::unique_ptr<cudf::column>>& columns, Work& work) const {
    auto const stream = work.stream();
    for (std::size_t i = 0; i < packed_.size(); ++i) {
        if (!packed_[i]) {
            continue;
        }
        auto const packed = columns[i]->view();
        StringPlaces places{static_cast<std::size_t>(packed.size()), work};
        kernels::places_of_packed(
            packed.head<std::uint64_t>(), packed.nullable() ? packed.null_mask() : nullptr, packed.size(),
            places.data(), stream.get());
        columns[i] = places.strings(work);
    }
}

}  // namespace rapidsmpf::compute
