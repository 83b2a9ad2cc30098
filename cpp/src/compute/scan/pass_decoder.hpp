// Decodes the column chunks of a pass, which are on the device: by the room `pages`, and what is left by libcudf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cudf/column/column.hpp>

#include "compute/operators.hpp"
#include "compute/scan/footers.hpp"
#include "compute/scan/numbered_strings.hpp"
#include "compute/scan/plain_chunks.hpp"
#include "compute/scan/settings.hpp"

namespace rapidsmpf::compute {

using Footers = std::vector<std::shared_ptr<Footer const>>;

// Columns of the files of a scan.
struct ScanColumns {
    std::vector<std::string> names;
    std::vector<ColumnSelection> selections;  // of each file
};

// Throws std::runtime_error that names the file and the column which it does not have.
[[nodiscard]] ScanColumns scan_columns(Footers const& footers, std::vector<std::string> names);

// Row groups of a pass that are in one file.
struct PassPart {
    std::size_t file{0};
    std::vector<std::int32_t> row_groups;
};

// The column chunks of a pass in the order of libcudf's reader: calls take(file, column's number, chunk).
template <typename Take>
void each_chunk(
    Footers const& footers, ScanColumns const& columns, std::span<PassPart const> parts, Take&& take) {
    for (auto const& part : parts) {
        auto const& selection = columns.selections[part.file];
        for (auto const number : part.row_groups) {
            for (std::size_t i = 0; i < selection.leaves.size(); ++i) {
                take(
                    part.file, selection.leaf_columns[i],
                    footers[part.file]->chunk(static_cast<std::size_t>(number), selection.leaves[i]));
            }
        }
    }
}

struct DecodedColumns {
    std::vector<std::unique_ptr<cudf::column>> columns;
    Coding coding;
};

// Decodes columns of a pass with so many rows, with libcudf's types. `chunks` are in the order of each_chunk(). `codes_for` says which
// columns of strings are to be coded.
// Throws std::runtime_error that says what is wrong with them.
[[nodiscard]] DecodedColumns decode_columns(
    Footers const& footers, ScanColumns const& columns, std::span<PassPart const> parts, std::int64_t rows,
    std::vector<DeviceChunk> chunks, ScanSettings const& settings, NumberedStrings::CodesFor const& codes_for,
    Work& work);

}  // namespace rapidsmpf::compute
