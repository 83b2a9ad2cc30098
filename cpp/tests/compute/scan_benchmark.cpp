// How fast Parquet files are scanned on a GPU: the first time, with registering, and again.
//
//   compute_scan FILES COLUMNS [--threads 16] [--rows 8000000] [--bytes 512] [--in-flight 8] [--repeat 5] [--mode scan|copy|register]
//     [--register-threads 4] [--register-mib 64] [--gap-kib 256] [--no-map] [--read-threads 8] [--slab-kib 4096] [--pool-gib 16]
//     [--pinned-below BYTES] [--kernel-copy-below BYTES] [--pinned-pool-mib N] [--whole-pages]
//
// FILES, COLUMNS: joined by commas; no columns: rows are counted. `copy` leaves decoding out; `register` only registers.
// Prints one line of JSON; GB_per_s counts compressed bytes of the columns.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>  // libcudf's headers need it first
#include <vector>

#include <cuda_runtime_api.h>
#include <cudf/utilities/error.hpp>
#include <cudf/utilities/pinned_memory.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include "compute/scan/parquet_source.hpp"
#include "compute/scan/passes.hpp"
#include "compute/scan/read_ahead.hpp"

namespace {

using namespace rapidsmpf::compute;
namespace pq = cudf::io::parquet;
using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
}

std::vector<std::string> split(std::string const& text) {
    std::vector<std::string> parts;
    std::stringstream stream{text};
    for (std::string part; std::getline(stream, part, ',');) {
        parts.push_back(part);
    }
    return parts;
}

// The type that libcudf gives such a column of itself.
DataType natural_type(pq::SchemaElement const& element) {
    using cudf::type_id;
    auto const type = [](type_id id, std::int32_t scale = 0) {
        return DataType{static_cast<std::int32_t>(id), scale};
    };
    auto const is = [&](pq::LogicalType::Type logical) {
        return element.logical_type.has_value() && element.logical_type->type == logical;
    };
    switch (element.type) {
        case pq::Type::BOOLEAN:
            return type(type_id::BOOL8);
        case pq::Type::INT32:
            return is(pq::LogicalType::DECIMAL) ? type(type_id::DECIMAL32, -element.logical_type->scale())
                   : is(pq::LogicalType::DATE)  ? type(type_id::TIMESTAMP_DAYS)
                                                : type(type_id::INT32);
        case pq::Type::INT64:
            return is(pq::LogicalType::DECIMAL) ? type(type_id::DECIMAL64, -element.logical_type->scale())
                                                : type(type_id::INT64);
        case pq::Type::FLOAT:
            return type(type_id::FLOAT32);
        case pq::Type::DOUBLE:
            return type(type_id::FLOAT64);
        case pq::Type::BYTE_ARRAY:
            return type(type_id::STRING);
        default:
            throw std::runtime_error{"no columns of this type here: " + element.name};
    }
}

struct Options {
    ScanSettings settings;
    std::vector<std::string> files;
    std::vector<std::string> columns;
    std::string mode{"scan"};
    int threads{16};
    int repeat{5};
    std::size_t pool{std::size_t{16} << 30};
};

Options parse(int argc, char** argv) {
    if (argc < 3) {
        throw std::invalid_argument{"compute_scan FILES COLUMNS [options]"};
    }
    Options options;
    options.files = split(argv[1]);
    options.columns = split(argv[2]);
    for (int i = 3; i < argc; ++i) {
        std::string const name{argv[i]};
        if (name == "--no-map") {
            options.settings.map_files = false;
            continue;
        }
        if (name == "--whole-pages") {
            options.settings.own_decoder = false;
            continue;
        }
        if (++i == argc) {
            throw std::invalid_argument{name + " needs a value"};
        }
        auto const number = static_cast<std::size_t>(std::strtoull(argv[i], nullptr, 10));
        if (name == "--mode") {
            options.mode = argv[i];
        } else if (name == "--threads") {
            options.threads = static_cast<int>(number);
        } else if (name == "--repeat") {
            options.repeat = static_cast<int>(number);
        } else if (name == "--rows") {
            options.settings.pass_rows = number;
        } else if (name == "--bytes") {
            options.settings.pass_bytes = number << 20;
        } else if (name == "--in-flight") {
            options.settings.passes_in_flight = number;
        } else if (name == "--register-threads") {
            options.settings.register_threads = number;
        } else if (name == "--register-mib") {
            options.settings.register_bytes = number << 20;
        } else if (name == "--read-threads") {
            options.settings.read_threads = number;
        } else if (name == "--slab-kib") {
            options.settings.slab_bytes = number << 10;
        } else if (name == "--gap-kib") {
            options.settings.register_gap = number << 10;
        } else if (name == "--pool-gib") {
            options.pool = number << 30;
        } else if (name == "--pinned-below") {
            cudf::set_allocate_host_as_pinned_threshold(number);
        } else if (name == "--kernel-copy-below") {
            cudf::set_kernel_pinned_copy_threshold(number);
        } else if (name == "--pinned-pool-mib") {
            cudf::config_default_pinned_memory_resource({.pool_size = number << 20});
        } else {
            throw std::invalid_argument{"unknown option " + name};
        }
    }
    return options;
}

// A stream for each thread. They stay: what a scan has allocated is released on them when it is gone.
std::vector<cudaStream_t> const& streams_for(int threads) {
    static std::vector<cudaStream_t> streams;
    while (streams.size() < static_cast<std::size_t>(threads)) {
        CUDF_CUDA_TRY(cudaStreamCreateWithFlags(&streams.emplace_back(), cudaStreamNonBlocking));
    }
    return streams;
}

// Runs `take(stream)` by several threads, each on a stream of its own, until it says false.
template <typename Take>
void in_threads(int threads, Take&& take) {
    auto const& streams = streams_for(threads);
    std::mutex mutex;
    std::exception_ptr error;
    {
        std::vector<std::jthread> workers;
        for (int t = 0; t < threads; ++t) {
            workers.emplace_back([&, stream = streams[static_cast<std::size_t>(t)]] {
                try {
                    CUDF_CUDA_TRY(cudaSetDevice(0));
                    while (take(stream)) {
                    }
                } catch (...) {
                    std::lock_guard const lock{mutex};
                    error = std::current_exception();
                }
            });
        }
    }
    if (error) {
        std::rethrow_exception(error);
    }
}

// One scan; gives the rows.
std::size_t scan(
    Options const& options, ParquetScan const& what, MappedFiles& files, SlabReader& slabs,
    FooterCache& footers) {
    auto const source = make_parquet_source(what, Scanning{options.settings, files, slabs, footers});
    std::atomic<std::size_t> rows{0};
    // The source never looks at the context of its work, nor do coded columns.
    alignas(std::max_align_t) static std::byte nothing[16];
    auto& context = reinterpret_cast<Context&>(nothing);
    in_threads(options.threads, [&](cudaStream_t stream) {
        Work work{context, stream};
        auto const chunk = source->next(work);
        if (!chunk) {
            return false;
        }
        rows += static_cast<std::size_t>(chunk->rows->num_rows());
        CUDF_CUDA_TRY(cudaStreamSynchronize(stream));
        return true;
    });
    source->close();
    return rows;
}

// The bytes of one scan, without decoding; gives the rows.
std::size_t copy(Options const& options, MappedFiles& files, SlabReader& slabs, FooterCache& footers) {
    auto const read = footers.get(options.files);
    std::vector<InputFile> inputs;
    std::vector<ColumnSelection> selections;
    std::vector<RowGroupSize> row_groups;
    for (std::size_t file = 0; file < read.size(); ++file) {
        inputs.push_back(InputFile{read[file]->path, read[file]->version});
        selections.push_back(select_columns(*read[file], options.columns));
        auto const& rows = read[file]->row_groups.rows;
        for (std::size_t group = 0; group < rows.size(); ++group) {
            row_groups.push_back(RowGroupSize{file, static_cast<std::int32_t>(group), rows[group], 1, 0});
        }
    }
    auto const passes = make_passes(row_groups, options.settings.pass_rows, options.settings.pass_bytes);
    auto const layout = [&](std::size_t pass) {
        std::vector<ChunkRange> chunks;
        for (auto i = passes[pass].begin; i < passes[pass].end; ++i) {
            auto const& group = row_groups[i];
            for (auto const leaf : selections[group.file].leaves) {
                auto const& chunk = read[group.file]->chunk(static_cast<std::size_t>(group.row_group), leaf);
                chunks.push_back(
                    {group.file, static_cast<std::uint64_t>(chunk.offset()),
                     static_cast<std::size_t>(chunk.compressed_bytes)});
            }
        }
        return lay_out(chunks);
    };
    std::size_t rows = 0;
    for (auto const& pass : passes) {
        rows += static_cast<std::size_t>(pass.rows);
    }
    if (options.mode == "register") {
        DataFile const file{options.files.at(0)};
        std::vector<MappedFiles::Lease> leases;
        for (std::size_t pass = 0; pass < passes.size(); ++pass) {
            std::vector<FileRange> ranges;
            for (auto const& extent : layout(pass).extents) {
                ranges.push_back({extent.offset, extent.bytes});
            }
            auto lease = files.prepare(file, ranges);
            if (!lease) {
                throw std::runtime_error{"the file cannot be registered"};
            }
            leases.push_back(std::move(*lease));
        }
        for (auto& lease : leases) {
            if (!lease.wait()) {
                throw std::runtime_error{"the file cannot be registered"};
            }
        }
        return rows;
    }
    ReadAhead reading{inputs, passes.size(), layout, options.settings, files, slabs};
    in_threads(options.threads, [&](cudaStream_t stream) {
        auto const loaded = reading.take(cuda::stream_ref{stream});
        CUDF_CUDA_TRY(cudaStreamSynchronize(stream));
        return loaded.has_value();
    });
    reading.close();
    return rows;
}

int run(int argc, char** argv) {
    auto const options = parse(argc, argv);
    CUDF_CUDA_TRY(cudaSetDevice(0));
    rmm::mr::cuda_async_memory_resource pool{options.pool};
    rmm::mr::set_current_device_resource(pool);

    FooterCache footers;
    auto since = Clock::now();
    auto const read = footers.get(options.files);
    auto const footer_ms = seconds(since) * 1e3;
    ParquetScan what;
    what.columns = options.columns;
    for (auto const& path : options.files) {
        what.files.push_back(ParquetFile{path, {}});
    }
    std::size_t bytes = 0;
    for (auto const& footer : read) {
        auto const selection = select_columns(*footer, options.columns);
        if (what.types.empty()) {
            for (auto const place : selection.leaf_places) {
                what.types.push_back(natural_type(selection.schema[place]));
            }
        }
        for (std::size_t group = 0; group < footer->row_groups.rows.size(); ++group) {
            for (auto const leaf : selection.leaves) {
                bytes += static_cast<std::size_t>(footer->chunk(group, leaf).compressed_bytes);
            }
        }
    }

    MappedFiles files{options.settings};
    SlabReader slabs{0, options.settings, files};
    std::vector<double> times;
    std::size_t rows = 0;
    for (int i = 0; i < options.repeat; ++i) {
        since = Clock::now();
        rows = options.mode == "scan" ? scan(options, what, files, slabs, footers)
                                      : copy(options, files, slabs, footers);
        CUDF_CUDA_TRY(cudaDeviceSynchronize());
        times.push_back(seconds(since));
    }
    auto again = std::vector<double>(times.begin() + (times.size() > 1 ? 1 : 0), times.end());
    std::ranges::sort(again);
    auto const speed = [&](double time) { return static_cast<double>(bytes) / time / 1e9; };
    std::printf(
        "{\"mode\": \"%s\", \"columns\": \"%s\", \"threads\": %d, \"pass_rows\": %zu, \"in_flight\": %zu, "
        "\"register_threads\": %zu, \"gap_kib\": %zu, \"mapped\": %s, \"rows\": %zu, \"bytes\": %zu, "
        "\"footer_ms\": %.1f, "
        "\"registered_bytes\": %zu, \"first_seconds\": %.4f, \"first_GB_per_s\": %.2f, \"best_seconds\": "
        "%.4f, "
        "\"best_GB_per_s\": %.2f, \"median_GB_per_s\": %.2f}\n",
        options.mode.c_str(), argv[2], options.threads, options.settings.pass_rows,
        options.settings.passes_in_flight, options.settings.register_threads,
        options.settings.register_gap >> 10, options.settings.map_files ? "true" : "false", rows, bytes,
        footer_ms, files.registered_bytes(), times.front(), speed(times.front()), again.front(),
        speed(again.front()), speed(again[again.size() / 2]));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
