// The source that scans Parquet files.
#pragma once

#include <memory>

#include "compute/operators.hpp"
#include "compute/scan/footers.hpp"
#include "compute/scan/mapped_files.hpp"
#include "compute/scan/settings.hpp"

namespace rapidsmpf::compute {

// `files` and `footers` live longer than the source.
[[nodiscard]] std::unique_ptr<ChunkSource> make_parquet_source(
    ParquetScan const& scan, ScanSettings const& settings, MappedFiles& files, FooterCache& footers);

}  // namespace rapidsmpf::compute
