// The state of a Result.
#pragma once

#include <memory>
#include <vector>

#include <rapidsmpf/compute/detail/runtime.hpp>

#include "compute/context.hpp"
#include "compute/held.hpp"
#include "compute/operators.hpp"

namespace rapidsmpf::compute {

struct Result::State {
    State(std::shared_ptr<Context> shared, std::shared_ptr<HeldRows> given, std::span<DataType const> types);
    ~State();

    [[nodiscard]] std::optional<Table> next();
    void close() noexcept;

    std::shared_ptr<Context> context;  // goes last
    Context::Streams streams;
    Work work;
    std::shared_ptr<HeldRows> rows;
    std::shared_ptr<Schema const> schema;
    std::vector<PipelineStatistics> pipelines;
    std::int64_t num_rows{0};
    std::int64_t num_bytes{0};
    std::size_t table{0};        // the next
    std::int64_t given_rows{0};  // of it
};

}  // namespace rapidsmpf::compute
