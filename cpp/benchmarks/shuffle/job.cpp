#include "job.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/coll/allreduce.hpp>
#include <rapidsmpf/coll/barrier.hpp>

namespace rapidsmpf::bench {

namespace {

constexpr OpId barrier_op = 1;
constexpr OpId reduce_op = 2;

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::uint64_t status_field(std::string_view name) {
    std::ifstream status{"/proc/self/status"};
    for (std::string line; std::getline(status, line);) {
        if (line.rfind(name, 0) == 0) {
            return std::stoull(line.substr(name.size())) * 1024;
        }
    }
    throw std::runtime_error{"no " + std::string{name} + " in /proc/self/status"};
}

}  // namespace

void Record::field(std::string_view key, std::string const& value) {
    fields_ += (fields_.empty() ? "\"" : ", \"") + std::string{key} + "\": " + value;
}

void Record::text(std::string_view key, std::string_view value) {
    field(key, "\"" + std::string{value} + "\"");
}

void Record::number(std::string_view key, double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.9g", value);
    field(key, text.data());
}

void Record::number(std::string_view key, std::uint64_t value) {
    field(key, std::to_string(value));
}

void Record::numbers(std::string_view key, std::vector<std::uint64_t> const& values) {
    std::string list;
    for (auto const value : values) {
        list += (list.empty() ? "" : ", ") + std::to_string(value);
    }
    field(key, "[" + list + "]");
}

void Record::series(std::string const& key, Series const& series) {
    std::string wall;
    std::string cpu;
    for (auto const& run : series.runs) {
        std::array<char, 32> text{};
        std::snprintf(text.data(), text.size(), "%.6g", run.seconds);
        wall += (wall.empty() ? "" : ", ") + std::string{text.data()};
        std::snprintf(text.data(), text.size(), "%.6g", run.cpu_seconds);
        cpu += (cpu.empty() ? "" : ", ") + std::string{text.data()};
    }
    field(key + "_seconds", "[" + wall + "]");
    field(key + "_cpu_seconds", "[" + cpu + "]");
}

Job::Job(config::Options const& options, std::string const& output)
    : options_{options},
      settings_{exchange::Settings::from_options(options)},
      comm_{bootstrap::create_ucxx_comm(options)} {
    if (rank() == 0 && !output.empty()) {
        out_.open(output, std::ios::app);
        if (!out_) {
            throw std::runtime_error{"cannot write " + output};
        }
    }
}

void Job::barrier() {
    coll::barrier(comm_, barrier_op);
}

Taken Job::measure(std::function<void()> const& body) {
    barrier();
    auto const cpu = cpu_seconds();
    auto const start = std::chrono::steady_clock::now();
    body();
    double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    barrier();  // what this rank still sends is its work, too
    auto const slowest = coll::allreduce<double>(
        comm_, reduce_op, std::array{seconds}, [](double a, double b) { return a > b ? a : b; });
    auto const all =
        coll::allreduce<double>(comm_, reduce_op, std::array{cpu_seconds() - cpu}, std::plus<>());
    return {slowest.front(), all.front()};
}

std::vector<std::uint64_t> Job::of_all_ranks(std::uint64_t value) {
    std::vector<std::uint64_t> values(nranks(), 0);
    values[static_cast<std::size_t>(rank())] = value;
    return coll::allreduce<std::uint64_t>(comm_, reduce_op, values, std::plus<>());
}

void Job::expect_equal_sums(
    std::vector<std::uint64_t> const& sent, std::vector<std::uint64_t> const& received,
    std::string const& what) {
    auto const in = coll::allreduce<std::uint64_t>(comm_, reduce_op, sent, std::plus<>());
    auto const out = coll::allreduce<std::uint64_t>(comm_, reduce_op, received, std::plus<>());
    if (in != out) {
        throw std::runtime_error{what + ": what came out is not what went in"};
    }
}

void Job::write(Record const& record) {
    if (rank() != 0) {
        return;
    }
    if (out_.is_open()) {
        out_ << record.str() << std::endl;
    } else {
        std::puts(record.str().c_str());
    }
}

void Job::write(CellRecord const& cell) {
    Record record;
    record.text("case", cell.name);
    record.number("ranks", std::uint64_t{nranks()});
    record.number("chunk_bytes", std::uint64_t{cell.chunk_bytes});
    record.number("partitions_per_rank", std::uint64_t{cell.partitions_per_rank});
    record.number("bytes", std::uint64_t{cell.bytes});
    record.number("memcpy_bytes", std::uint64_t{cell.memcpy_bytes});
    for (auto const& [name, series] : cell.series) {
        record.series(name, series);
    }
    write(record);
}

Memcpy::Memcpy(std::size_t bytes) : from_(bytes / 8 + 1, 1), to_(bytes / 8 + 1, 2), bytes_{bytes} {}

void Memcpy::run() {
    std::memcpy(to_.data(), from_.data(), bytes_);
    asm volatile("" : : "r"(to_.data()) : "memory");  // the copy is wanted
}

std::uint64_t mix(std::uint64_t x) noexcept {
    x ^= x >> 30U;
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 27U;
    x *= 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}

std::uint64_t resident() {
    return status_field("VmRSS:");
}

std::uint64_t peak_resident() {
    return status_field("VmHWM:");
}

void reset_peak_resident() {
    std::ofstream{"/proc/self/clear_refs"} << "5";
}

}  // namespace rapidsmpf::bench
