// What a pipeline gives to those that come after it: rows, or a table to probe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <rapidsmpf/compute/detail/program.hpp>

#include "compute/held.hpp"
#include "compute/join_table.hpp"
#include "compute/operators.hpp"
#include "compute/parts.hpp"

namespace rapidsmpf::compute {

// One of three.
struct PipelineResult {
    std::shared_ptr<HeldRows> rows;
    std::shared_ptr<JoinTable const> join;   // of a Build
    std::shared_ptr<JoinParts const> parts;  // of a Build that does not fit the device's memory

    [[nodiscard]] std::int64_t num_rows() const {
        return join ? join->num_rows() : parts ? parts->num_rows() : rows->rows();
    }
    [[nodiscard]] std::int64_t num_bytes() const {
        return join ? join->num_bytes() : parts ? parts->num_bytes() : rows->bytes();
    }
};

// A sink whose result is there once it has finished.
class ResultSink : public ChunkSink {
  public:
    [[nodiscard]] virtual PipelineResult result() = 0;
};

// Which columns of a Build's table its probes take, and in which ways they probe it.
struct JoinUse {
    std::vector<bool> payload;  // by column; the keys need not be there
    bool matches{false};        // inner, left
    bool filters{false};        // semi, anti
    bool rows{false};           // all of them are read, by FromPipeline or FromJoin
};

// Sinks. `name` is what errors call the pipeline; `types` are those of its result.
[[nodiscard]] std::unique_ptr<ResultSink> make_build_sink(
    Build const& plan, std::vector<DataType> types, JoinUse use, std::string name, Context& context);
[[nodiscard]] std::unique_ptr<ResultSink> make_group_sink(
    Group const& plan, std::vector<DataType> types, std::string name, Context& context);
[[nodiscard]] std::unique_ptr<ResultSink> make_sort_sink(
    Sort const& plan, std::vector<DataType> types, std::string name, Context& context);
[[nodiscard]] std::unique_ptr<ResultSink> make_distinct_sink(
    Distinct const& plan, std::vector<DataType> types, std::string name, Context& context);
[[nodiscard]] std::unique_ptr<ResultSink> make_hold_sink(
    Hold const& plan, std::vector<DataType> types, std::string name, Context& context);

}  // namespace rapidsmpf::compute
