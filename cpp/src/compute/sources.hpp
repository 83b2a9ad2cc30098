// Sources of rows that earlier pipelines gave, and of the program's inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <rapidsmpf/compute/detail/program.hpp>
#include <rapidsmpf/table/table_stream.hpp>

#include "compute/operators.hpp"
#include "compute/sinks.hpp"

namespace rapidsmpf::compute {

// Whether a result is read for the last time, so that its rows need not be copied and go as they are read.
enum class LastUse : bool { no, yes };

struct JoinSide {
    PipelineResult result;
    LastUse last{LastUse::no};
};

// Chunks of about so many rows.
[[nodiscard]] std::unique_ptr<ChunkSource> make_held_source(
    PipelineResult result, LastUse last, std::size_t chunk_rows);

// Throws std::invalid_argument for another kind than full and cross. `name` is what errors call the pipeline.
[[nodiscard]] std::unique_ptr<ChunkSource> make_join_source(
    FromJoin const& plan, JoinSide left, JoinSide right, std::size_t chunk_rows, std::string name);

// Tables in host memory, copied to the device. Strings come as strings, also where they are views or dictionary encoded.
[[nodiscard]] std::unique_ptr<ChunkSource> make_input_source(
    std::shared_ptr<TableReader> input, std::size_t chunk_rows);

}  // namespace rapidsmpf::compute
