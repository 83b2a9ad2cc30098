// Programs for the operators over libcudf, made from Python part by part.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/interrupt.hpp>

#include <rapidsmpf/compute/detail/footer_summary.hpp>
#include <rapidsmpf/compute/detail/program.hpp>
#include <rapidsmpf/compute/detail/runtime.hpp>
#include <rapidsmpf/table/table_stream.hpp>

namespace rapidsmpf::python {

using Numbers = std::vector<std::int32_t>;

// Each add_...() and each step belongs to the pipeline that end_pipeline() closes next.
class ProgramBuilder {
  public:
    // ---- Expressions; each returns its number
    std::int32_t column(std::int32_t index, std::int32_t id, std::int32_t scale) {
        return add({.kind = compute::Expression::Kind::column, .index = index, .type = {id, scale}});
    }
    std::int32_t constant(std::int32_t index, std::int32_t id, std::int32_t scale) {
        return add({.kind = compute::Expression::Kind::constant, .index = index, .type = {id, scale}});
    }
    std::int32_t call(std::string op, Numbers args, std::int32_t id, std::int32_t scale) {
        return add(
            {.kind = compute::Expression::Kind::call,
             .op = std::move(op),
             .args = std::move(args),
             .type = {id, scale},
             .options = take_options()});
    }
    // What the next call or aggregate takes.
    void option(std::int64_t value) { options_.emplace_back(value); }
    void option(double value) { options_.emplace_back(value); }
    void option(std::string value) { options_.emplace_back(std::move(value)); }

    // A constant of the program: the one column of the next table of a stream.
    void add_constant(ArrowStreamOwner stream) {
        TableReader reader{std::move(stream)};
        auto table = reader.next();
        if (!table || table->num_columns() != 1) {
            throw std::invalid_argument("a constant is a table of one column");
        }
        program_.constants.push_back(std::move(*table));
    }

    // ---- Sources
    void scan_file(std::string path, Numbers row_groups) {
        files_.push_back({std::move(path), std::move(row_groups)});
    }
    void scan_column(std::string name, std::int32_t id, std::int32_t scale) {
        columns_.push_back(std::move(name));
        types_.push_back({id, scale});
    }
    void from_scan() {
        source_ = compute::ParquetScan{
            std::exchange(files_, {}), std::exchange(columns_, {}), std::exchange(types_, {})};
    }
    void from_input(std::int32_t input) { source_ = compute::FromInput{input}; }
    void from_pipeline(std::int32_t pipeline) { source_ = compute::FromPipeline{pipeline}; }
    void from_join(
        std::string const& kind, std::int32_t left, std::int32_t right, Numbers left_keys, Numbers right_keys,
        bool nulls_equal) {
        source_ = compute::FromJoin{join_kind(kind),       left,       right, std::move(left_keys),
                                    std::move(right_keys), nulls_equal};
    }

    // ---- Steps
    void filter(std::int32_t mask) { steps_.emplace_back(compute::Filter{mask}); }
    void project(Numbers columns) { steps_.emplace_back(compute::Project{std::move(columns)}); }
    void probe(std::int32_t build, std::string const& kind, Numbers keys, Numbers payload) {
        steps_.emplace_back(compute::Probe{build, join_kind(kind), std::move(keys), std::move(payload)});
    }

    // ---- Sinks
    void aggregate(std::string const& kind, std::int32_t column, std::int32_t id, std::int32_t scale) {
        aggregates_.push_back({aggregate_kind(kind), column, {id, scale}, take_options()});
    }
    void sort_key(std::int32_t column, bool descending, bool nulls_first) {
        sort_keys_.push_back({column, descending, nulls_first});
    }
    void range(std::int64_t offset) { range_ = compute::RowRange{offset, std::nullopt}; }
    void range(std::int64_t offset, std::int64_t length) { range_ = compute::RowRange{offset, length}; }
    void build(Numbers keys, bool nulls_equal) { sink_ = compute::Build{std::move(keys), nulls_equal}; }
    void group(Numbers keys, bool in_order) {
        sink_ = compute::Group{std::move(keys), std::exchange(aggregates_, {}), in_order};
    }
    void sort(bool stable) {
        sink_ = compute::Sort{std::exchange(sort_keys_, {}), stable, std::exchange(range_, std::nullopt)};
    }
    void distinct(Numbers keys, std::string const& keep, bool in_order) {
        sink_ = compute::Distinct{std::move(keys), keep_kind(keep), in_order};
    }
    void hold(bool in_order) { sink_ = compute::Hold{in_order, std::exchange(range_, std::nullopt)}; }

    void result_type(std::int32_t id, std::int32_t scale) { results_.push_back({id, scale}); }
    void end_pipeline() {
        if (!source_ || !sink_) {
            throw std::invalid_argument("a pipeline has a source and a sink");
        }
        program_.pipelines.push_back(
            {std::move(*source_), std::exchange(steps_, {}), std::move(*sink_), std::exchange(results_, {})});
        source_.reset();
        sink_.reset();
    }

    // The program, once.
    [[nodiscard]] compute::Program finish() {
        program_.check();
        return std::move(program_);
    }

  private:
    std::int32_t add(compute::Expression expression) {
        program_.expressions.push_back(std::move(expression));
        return static_cast<std::int32_t>(program_.expressions.size() - 1);
    }
    std::vector<compute::Option> take_options() { return std::exchange(options_, {}); }

    template <typename Kind>
    static Kind named(
        std::string const& name, std::initializer_list<std::pair<char const*, Kind>> kinds,
        char const* what) {
        for (auto const& [text, kind] : kinds) {
            if (name == text) {
                return kind;
            }
        }
        throw std::invalid_argument(std::string{"there is no "} + what + " '" + name + "'");
    }
    static compute::JoinKind join_kind(std::string const& name) {
        using enum compute::JoinKind;
        return named<compute::JoinKind>(
            name,
            {{"inner", inner},
             {"left", left},
             {"semi", semi},
             {"anti", anti},
             {"full", full},
             {"cross", cross}},
            "join");
    }
    static compute::Keep keep_kind(std::string const& name) {
        using enum compute::Keep;
        return named<compute::Keep>(
            name, {{"any", any}, {"first", first}, {"last", last}, {"none", none}}, "way to keep rows");
    }
    static compute::AggregateKind aggregate_kind(std::string const& name) {
        using enum compute::AggregateKind;
        return named<compute::AggregateKind>(
            name,
            {{"sum", sum},
             {"min", min},
             {"max", max},
             {"count_valid", count_valid},
             {"count_all", count_all},
             {"mean", mean},
             {"nunique", nunique},
             {"nunique_valid", nunique_valid},
             {"var", var},
             {"std", std},
             {"median", median},
             {"quantile", quantile},
             {"first", first},
             {"last", last},
             {"any", any},
             {"product", product}},
            "aggregate");
    }

    compute::Program program_;
    std::optional<compute::Source> source_;
    std::vector<compute::Step> steps_;
    std::optional<compute::Sink> sink_;
    std::vector<compute::DataType> results_;
    std::vector<compute::Option> options_;
    std::vector<compute::ParquetFile> files_;
    std::vector<std::string> columns_;
    std::vector<compute::DataType> types_;
    std::vector<compute::Aggregate> aggregates_;
    std::vector<compute::SortKey> sort_keys_;
    std::optional<compute::RowRange> range_;
};

// What a program reads from outside.
class ProgramInputs {
  public:
    void add(ArrowStreamOwner stream) {
        readers_.push_back(std::make_shared<TableReader>(std::move(stream)));
    }
    [[nodiscard]] std::vector<std::shared_ptr<TableReader>> take() { return std::exchange(readers_, {}); }

  private:
    std::vector<std::shared_ptr<TableReader>> readers_;
};

// Runs a program to its end; the caller does not hold the GIL. Ctrl-C ends it within a chunk.
[[nodiscard]] inline std::shared_ptr<compute::Result> run_program(
    compute::Runtime& runtime, ProgramBuilder& builder, ProgramInputs& inputs) {
    return runtime.run(builder.finish(), inputs.take(), [] {
        if (auto const error = detail::raised_by_signal()) {
            throw PythonError{*error};
        }
    });
}

// The rows of a result, as they are copied to the host; the stream keeps the result.
[[nodiscard]] inline ArrowStreamOwner result_stream(std::shared_ptr<compute::Result> result) {
    ArrowStreamOwner stream;
    auto schema = result->schema();
    export_table_stream(
        std::move(schema), [result = std::move(result)] { return result->next(); }, stream.out());
    return stream;
}

[[nodiscard]] inline std::size_t number_of_pipelines(compute::Result const& result) {
    return result.pipelines().size();
}
[[nodiscard]] inline compute::PipelineStatistics pipeline_statistics(
    compute::Result const& result, std::size_t index) {
    return result.pipelines()[index];
}

}  // namespace rapidsmpf::python
