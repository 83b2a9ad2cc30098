// Runs programs on the GPU of this process. Lives as long as an engine: it holds threads' streams, mapped files and parsed
// footers, and while there is one, RMM's current device resource is the BufferResource's, so that whatever libcudf
// allocates is counted there.
//
// No CUDA and no libcudf here. All methods are thread-safe; several programs may run at the same time, each by threads of
// its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <rapidsmpf/compute/detail/program.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/table/table.hpp>
#include <rapidsmpf/table/table_stream.hpp>

namespace rapidsmpf::compute {

class Context;

// A run ended because cancel() was called.
class Cancelled : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

struct RuntimeSettings {
    // Of each run. Each spins on a core while it waits for the GPU, so few of them leave the cores to ScanSettings::read_threads.
    std::size_t threads{5};
    std::size_t chunk_rows{16'000'000};  // of what is read again from an earlier pipeline or joined in blocks
    std::size_t output_rows{4'000'000};  // of a table that Result::next() gives
    // How Parquet files are scanned (src/compute/scan/settings.hpp says what they do); nothing: the default there.
    std::optional<std::size_t> pass_rows;
    std::optional<std::size_t> pass_bytes;
    std::optional<std::size_t> edge_rows;
    std::optional<std::size_t> passes_in_flight;
    std::optional<std::size_t> read_threads;
    std::optional<std::size_t> slab_bytes;
    std::optional<std::size_t> registered_limit;
    std::optional<bool> own_decoder;
    std::optional<bool> map_files;
    bool read_while_registering{true};
    // A scan starts to read as soon as the one before has been read, before its pipeline runs, while half of the memory is free.
    bool scan_ahead{true};
    // Threads that decode the first chunks of such scans.
    std::size_t threads_ahead{2};
    // Columns of few distinct strings are filtered, grouped and joined by codes: those of scans and of keys in chunks of so many rows, and
    // those of small build sides.
    bool string_codes{true};
    std::size_t coded_rows{100'000};
    // What scans have read stays in device memory that nothing else needs, for later scans of the same columns: compressed column
    // chunks, which are decoded again, or decoded columns.
    bool keep_compressed{false};
    bool keep_decoded{false};
};

// What one pipeline did.
struct PipelineStatistics {
    double seconds{0};          // from the first chunk to the sink's end
    std::int64_t rows_in{0};    // given by the source
    std::int64_t rows_sunk{0};  // that reached the sink
    std::int64_t rows_out{0};   // of the sink's result
    std::int64_t bytes_out{0};  // on the device
    std::int64_t chunks{0};     // given by the source
    double source_seconds{0};   // in the source, the steps and the sink, summed over all threads
    double step_seconds{0};
    double sink_seconds{0};
    std::string source;  // "parquet", "input", "pipeline 2", "join"
    std::string sink;    // "build", "group", ...
};

// The rows of a program's last pipeline, in its order. They stay on the device until next() copies them to the host.
// Not thread-safe.
class Result {
  public:
    ~Result();
    Result(Result const&) = delete;
    Result& operator=(Result const&) = delete;

    // Columns are called "0", "1", ...
    [[nodiscard]] std::shared_ptr<Schema const> const& schema() const noexcept;
    // The next rows, in page-locked host memory where there is some; nothing at the end. What has been given is freed on
    // the device.
    [[nodiscard]] std::optional<Table> next();
    // Frees what has not been given.
    void close() noexcept;

    [[nodiscard]] std::int64_t num_rows() const noexcept;   // of all, given or not
    [[nodiscard]] std::int64_t byte_size() const noexcept;  // on the device, of all
    [[nodiscard]] std::span<PipelineStatistics const> pipelines() const noexcept;

  private:
    friend class Runtime;
    struct State;
    explicit Result(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

class Runtime {
  public:
    // Throws std::runtime_error if the compute device of this process is not a GPU, std::invalid_argument for settings
    // that cannot be.
    explicit Runtime(std::shared_ptr<BufferResource> resource, RuntimeSettings settings = {});
    // Waits for runs to end; what they gave keeps what it needs.
    ~Runtime();
    Runtime(Runtime const&) = delete;
    Runtime& operator=(Runtime const&) = delete;

    // Runs the program to its end. `inputs` are what FromInput names; each is read once, in one thread at a time, and closed.
    // `poll`, if there is one, is called once a second in this thread while others work; what it throws ends the run.
    // Throws the first error of any thread; Cancelled after cancel(); OutOfMemory that names the pipeline.
    [[nodiscard]] std::shared_ptr<Result> run(
        Program program, std::vector<std::shared_ptr<TableReader>> inputs = {},
        std::function<void()> poll = {});

    // Ends all present runs, each thread within one chunk.
    void cancel() noexcept;

    // Bytes of device memory that operators hold now, and the most that they have held.
    [[nodiscard]] std::int64_t device_bytes() const noexcept;
    [[nodiscard]] std::int64_t device_peak_bytes() const noexcept;

    // Page-locked bytes of mapped files now; releases those that no run uses, and returns how many these were.
    [[nodiscard]] std::size_t registered_bytes() const;
    std::size_t release_unused();
    // Bytes of device memory that keep what scans have read.
    [[nodiscard]] std::size_t cached_bytes() const;

  private:
    std::shared_ptr<Context> context_;
    struct Runs;
    std::unique_ptr<Runs> runs_;
};

}  // namespace rapidsmpf::compute
