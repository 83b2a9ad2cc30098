// The source that scans Parquet files.
#pragma once

#include <memory>

#include "compute/operators.hpp"
#include "compute/scan/footers.hpp"
#include "compute/scan/mapped_files.hpp"
#include "compute/scan/scan_cache.hpp"
#include "compute/scan/settings.hpp"
#include "compute/scan/slab_reader.hpp"

namespace rapidsmpf::compute {

// What the scans of an engine share. It lives longer than they.
struct Scanning {
    ScanSettings const& settings;
    MappedFiles& files;
    SlabReader& slabs;
    FooterCache& footers;
    ScanCache* cache{nullptr};  // null: nothing of what is read is kept
};

[[nodiscard]] std::unique_ptr<ChunkSource> make_parquet_source(
    ParquetScan const& scan, Scanning const& scanning);

}  // namespace rapidsmpf::compute
