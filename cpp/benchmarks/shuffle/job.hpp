// One rank of the benchmark: its communicator and memory, measurement in step with the other ranks, and the records
// that rank 0 writes, one JSON object a line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/exchange/settings.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf::bench {

// What one timed run took, the same on all ranks.
struct Taken {
    double seconds{0};      // from a barrier until the slowest rank was done
    double cpu_seconds{0};  // of all threads of all ranks
};

// Runs of one thing.
struct Series {
    std::vector<Taken> runs;
    void add(Taken taken) { runs.push_back(taken); }
};

// A JSON object.
class Record {
  public:
    void text(std::string_view key, std::string_view value);
    void number(std::string_view key, double value);
    void number(std::string_view key, std::uint64_t value);
    void numbers(std::string_view key, std::vector<std::uint64_t> const& values);
    // key_seconds and key_cpu_seconds.
    void series(std::string const& key, Series const& series);
    [[nodiscard]] std::string str() const { return "{" + fields_ + "}"; }

  private:
    void field(std::string_view key, std::string const& value);
    std::string fields_;
};

// What a cell of a grid measured: its place there, how many bytes were inserted, and the series by name.
struct CellRecord {
    std::string_view name;
    std::size_t chunk_bytes;
    std::size_t partitions_per_rank;
    std::size_t bytes;
    std::size_t memcpy_bytes;
    std::vector<std::pair<std::string, Series>> series;
};

class Job {
  public:
    // Joins the ranks that rrun has started. Rank 0 appends its records to the file `output`.
    Job(config::Options const& options, std::string const& output);

    [[nodiscard]] std::shared_ptr<Communicator> const& comm() const noexcept { return comm_; }
    [[nodiscard]] Rank rank() const noexcept { return comm_->rank(); }
    [[nodiscard]] std::size_t nranks() const noexcept { return static_cast<std::size_t>(comm_->nranks()); }
    [[nodiscard]] exchange::Settings const& settings() const noexcept { return settings_; }
    [[nodiscard]] config::Options const& options() const noexcept { return options_; }

    void barrier();
    [[nodiscard]] Taken measure(std::function<void()> const& body);
    // Each rank's value, by rank.
    [[nodiscard]] std::vector<std::uint64_t> of_all_ranks(std::uint64_t value);
    // Throws std::runtime_error on every rank, with `what`, when the sums over the ranks differ.
    void expect_equal_sums(
        std::vector<std::uint64_t> const& sent, std::vector<std::uint64_t> const& received,
        std::string const& what);
    void write(Record const& record);
    void write(CellRecord const& cell);

  private:
    config::Options options_;
    exchange::Settings settings_;
    std::shared_ptr<Communicator> comm_;
    std::ofstream out_;
};

// Copies `bytes` once from memory to memory, both warm and larger than the caches: what the others are measured by.
class Memcpy {
  public:
    explicit Memcpy(std::size_t bytes);
    void run();

  private:
    std::vector<std::uint64_t> from_;
    std::vector<std::uint64_t> to_;
    std::size_t bytes_;
};

[[nodiscard]] std::uint64_t mix(std::uint64_t x) noexcept;
// Resident memory of this process and its highest value since the last reset_peak(), in bytes.
[[nodiscard]] std::uint64_t resident();
[[nodiscard]] std::uint64_t peak_resident();
void reset_peak_resident();

}  // namespace rapidsmpf::bench
