// A runtime for the tests of operators, which need a GPU, and programs of few pipelines.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/compute/detail/program.hpp>
#include <rapidsmpf/compute/detail/runtime.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "compute/rows_support.hpp"

namespace rapidsmpf::testing {

// Small chunks, so that a few rows are many chunks on several threads.
class OperatorTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (Device::current().kind() != DeviceKind::cuda) {
            GTEST_SKIP() << "operators run on a GPU, and the compute device is " << Device::current().name();
        }
        compute::RuntimeSettings settings;
        settings.threads = 4;
        settings.chunk_rows = 7;
        settings.output_rows = 5;
        runtime_ = std::make_unique<compute::Runtime>(BufferResource::make(), settings);
    }

    void TearDown() override {
        if (runtime_) {
            EXPECT_EQ(runtime_->device_bytes(), 0);
        }
    }

    // Input `number`, as it is, into a sink.
    [[nodiscard]] static compute::Pipeline from_input(
        std::int32_t number, compute::Sink sink, std::vector<compute::DataType> types) {
        return {compute::FromInput{number}, {}, std::move(sink), std::move(types)};
    }
    [[nodiscard]] static compute::Pipeline from_pipeline(
        std::int32_t number, compute::Sink sink, std::vector<compute::DataType> types) {
        return {compute::FromPipeline{number}, {}, std::move(sink), std::move(types)};
    }

    [[nodiscard]] Rows run(std::vector<compute::Pipeline> pipelines, std::vector<Table> const& inputs) {
        compute::Program program;
        program.pipelines = std::move(pipelines);
        std::vector<std::shared_ptr<TableReader>> readers;
        for (auto const& table : inputs) {
            readers.push_back(reader_of(table, 3));
        }
        auto const result = runtime_->run(std::move(program), readers);
        auto rows = rows_of(*result);
        EXPECT_EQ(result->num_rows(), static_cast<std::int64_t>(rows.size()));
        return rows;
    }

    std::unique_ptr<compute::Runtime> runtime_;
};

// Numbers below `values` and nulls, one in so many; the same for the same seed.
[[nodiscard]] inline Integers some_integers(
    std::size_t count, std::int64_t values, std::int64_t null_every, std::uint64_t seed) {
    Integers cells;
    for (std::size_t i = 0; i < count; ++i) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        auto const value = static_cast<std::int64_t>(seed >> 33U);
        cells.push_back(
            null_every > 0 && value / values % null_every == 0 ? std::nullopt
                                                               : std::optional<std::int64_t>{value % values});
    }
    return cells;
}

[[nodiscard]] inline Integers row_numbers(std::size_t count) {
    Integers cells;
    for (std::size_t i = 0; i < count; ++i) {
        cells.emplace_back(static_cast<std::int64_t>(i));
    }
    return cells;
}

[[nodiscard]] inline Texts as_texts(Integers const& cells) {
    Texts texts;
    for (auto const& cell : cells) {
        texts.push_back(cell ? std::optional{"text " + std::to_string(*cell)} : std::nullopt);
    }
    return texts;
}

}  // namespace rapidsmpf::testing
