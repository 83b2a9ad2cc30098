// How Parquet files are scanned: sizes and limits, which the options of an engine set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>

namespace rapidsmpf::compute {

struct ScanSettings {
    // A pass, which is what one thread decodes at a time: rows, and bytes of decoded columns, at most (one row group at
    // least). Fewer and larger passes keep a GPU busier: at SF100, passes of 2 M rows take twice as long as those of 8 M, and
    // those of 32 M a little less.
    std::size_t pass_rows{32'000'000};
    std::size_t pass_bytes{std::size_t{2} << 30};
    // Snappy pages are decompressed, and flat columns of fixed-width values and of strings decoded, by the room `pages`; libcudf
    // decodes what is left. Else libcudf does all.
    bool own_decoder{true};
    // Columns of few distinct strings are given as codes by passes of at least so many rows; 0: by all, however many strings they have.
    std::size_t coded_rows{100'000};
    // Rows of the first pass and of the last (with_small_edges()); 0: like the others.
    std::size_t edge_rows{4'000'000};
    // Passes that are copied to the device ahead of the threads that decode, and their compressed bytes at most.
    std::size_t passes_in_flight{8};
    std::size_t bytes_in_flight{std::size_t{4} << 30};

    // Files are mapped and the ranges that are needed are registered with CUDA, so that the GPU's copy engines read them
    // without a copy by the CPU. Bytes that stay registered at most (0: four fifths of the machine's memory); threads that
    // register; the most that one call registers; gaps up to which neighbouring ranges are registered in one call.
    bool map_files{true};
    // What is not registered yet when its copy is due is read through slabs, and registered behind that for later reads:
    // the first read then costs little more than the next.
    bool read_while_registering{false};
    std::size_t registered_limit{0};
    std::size_t register_threads{4};
    std::size_t register_bytes{std::size_t{64} << 20};
    std::size_t register_gap{std::size_t{256} << 10};

    // What is not mapped (network file systems, where registering is refused) is read into page-locked slabs; passes of
    // no more bytes than small_read into pageable memory, which takes less time than to prepare anything.
    // read_threads: five eighths of the cores. Decoding threads spin while they wait for the GPU, and more readers compete with them.
    std::size_t read_threads{
        std::clamp<std::size_t>(std::size_t{5} * std::thread::hardware_concurrency() / 8, 4, 16)};
    std::size_t slab_bytes{std::size_t{2} << 20};
    std::size_t small_read{std::size_t{256} << 10};
};

}  // namespace rapidsmpf::compute
