// How Parquet files are scanned: sizes and limits, which the options of an engine set.
#pragma once

#include <cstddef>

namespace rapidsmpf::compute {

struct ScanSettings {
    std::size_t pass_rows{8'000'000};  // rows that one pass decodes, at most (but one row group at least)
    std::size_t pass_bytes{std::size_t{512} << 20};  // bytes of their pages when decompressed, at most
    std::size_t passes_in_flight{8};  // passes that are copied ahead of the threads that decode
    std::size_t bytes_in_flight{std::size_t{4} << 30};  // their compressed bytes
    std::size_t registered_limit{
        std::size_t{256} << 30};                   // bytes of mapped files that stay registered with CUDA
    std::size_t small_file{std::size_t{4} << 20};  // files below that are read, not mapped
    std::size_t register_threads{4};               // threads that register ahead of copying
    bool map_files{true};                          // off: all files are read through pinned slabs
};

}  // namespace rapidsmpf::compute
