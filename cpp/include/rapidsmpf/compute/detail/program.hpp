// What a query, or a part of one, does on a GPU: a program, which is data.
//
// A program is a list of pipelines. A pipeline pulls chunks of rows from its source, takes each through its steps and gives
// it to its sink; the sink's result is what later pipelines read or probe. The result of the last pipeline is that of the
// program. The writer of a program (cudf_polars.execute.gpu) knows what the query means; the operators that run it know
// libcudf only: each call has libcudf's own semantics, never those of Polars.
//
// Columns have places, not names. No CUDA and no libcudf here: programs are made and checked without either.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::compute {

// A type of libcudf: the number of its cudf::type_id, and for decimals cudf's scale (-2: cents).
struct DataType {
    std::int32_t id{0};
    std::int32_t scale{0};
    friend bool operator==(DataType const&, DataType const&) noexcept = default;
};

// What a call takes besides columns: a number, a text.
using Option = std::variant<std::int64_t, double, std::string>;

// A node of the program's expressions, which are one array: what a call's `args` name comes before it.
struct Expression {
    enum class Kind : std::uint8_t { column, constant, call };
    Kind kind{Kind::column};
    std::int32_t index{0};  // column: its place in the chunk; constant: its place in Program::constants
    std::string op;         // call: the primitive (src/compute/functions.hpp has them all)
    std::vector<std::int32_t> args;  // call
    DataType type;                   // of the result
    std::vector<Option> options;     // call
};

// ---- Sources

struct ParquetFile {
    std::string path;
    std::vector<std::int32_t> row_groups;  // which, in order
};

// Rows of Parquet files, file by file. Gives `columns` in this order with these types; a column that a file has in another
// type is cast if that loses nothing, else it is an error.
struct ParquetScan {
    std::vector<ParquetFile> files;
    std::vector<std::string> columns;
    std::vector<DataType> types;
};

// Rows that come from outside: the program's input of this number.
struct FromInput {
    std::int32_t input{0};
};

// What the sink of an earlier pipeline gave.
struct FromPipeline {
    std::int32_t pipeline{0};
};

enum class JoinKind : std::uint8_t { inner, left, semi, anti, full, cross };

// Both sides whole: for joins that need all of both at once (full, cross). Gives left's columns, then right's.
struct FromJoin {
    JoinKind kind{JoinKind::cross};
    std::int32_t left{0};  // pipelines
    std::int32_t right{0};
    std::vector<std::int32_t> left_keys;  // columns
    std::vector<std::int32_t> right_keys;
    bool nulls_equal{false};
};

using Source = std::variant<ParquetScan, FromInput, FromPipeline, FromJoin>;

// ---- Steps: a chunk in, a chunk out

// Keeps the rows where the expression is true; null is not.
struct Filter {
    std::int32_t mask{0};
};

// New columns in place of the old ones. Constants fill the chunk's length.
struct Project {
    std::vector<std::int32_t> columns;
};

// Joins each chunk with what a Build sink has. inner, left: the chunk's columns, then the build's `payload`;
// semi, anti: the chunk's columns. Rows come in any order.
struct Probe {
    std::int32_t build{0};  // the pipeline that built
    JoinKind kind{JoinKind::inner};
    std::vector<std::int32_t> keys;     // of the chunk, as many as the build has, of the same types
    std::vector<std::int32_t> payload;  // columns of the build
};

using Step = std::variant<Filter, Project, Probe>;

// ---- Sinks

// A hash table over the key columns; all columns are kept for Probe::payload.
struct Build {
    std::vector<std::int32_t> keys;
    bool nulls_equal{false};
};

enum class AggregateKind : std::uint8_t {
    sum,
    min,
    max,
    count_valid,
    count_all,
    mean,
    nunique,
    nunique_valid,
    var,
    std,
    median,
    quantile,
    first,
    last,
    any,
    product
};

struct Aggregate {
    AggregateKind kind{AggregateKind::sum};
    std::int32_t column{0};  // count_all: any
    DataType type;           // what the result is cast to
    std::vector<Option>
        options;  // var, std: ddof; quantile: q, interpolation (name as in cudf::interpolation)
};

// Groups by key columns (nulls are a group; NaNs, and zeros of both signs, too) and aggregates: the keys, then the
// aggregates. Without keys: one row, whatever there is. Groups come in any order, unless `in_order`: by their first rows.
// Sums, minima and so on of no valid value are null, counts 0, as libcudf has it.
struct Group {
    std::vector<std::int32_t> keys;
    std::vector<Aggregate> aggregates;
    bool in_order{false};
};

struct SortKey {
    std::int32_t column{0};
    bool descending{false};
    bool nulls_first{true};  // where the nulls come in the result, whatever the direction
};

struct RowRange {
    std::int64_t offset{0};  // from the end when negative
    std::optional<std::int64_t> length;
};

// All rows sorted (stable: by their place in the source where keys are equal), then a range of them.
struct Sort {
    std::vector<SortKey> keys;
    bool stable{false};
    std::optional<RowRange> range;
};

enum class Keep : std::uint8_t { any, first, last, none };

struct Distinct {
    std::vector<std::int32_t> keys;
    Keep keep{Keep::any};
    bool in_order{false};
};

// All rows; `in_order`: in the order of the source. A range needs an order.
struct Hold {
    bool in_order{false};
    std::optional<RowRange> range;
};

using Sink = std::variant<Build, Group, Sort, Distinct, Hold>;

// ----

struct Pipeline {
    Source source;
    std::vector<Step> steps;
    Sink sink;
    std::vector<DataType> types;  // of the sink's result
};

struct Program {
    std::vector<Expression> expressions;
    std::vector<Table>
        constants;  // one column each, host memory; one row: a scalar; more: what `contains` looks into
    std::vector<Pipeline> pipelines;

    // Throws std::invalid_argument, naming pipeline and step, if a number names nothing, an argument does not come before
    // its call, or types that must be equal are not.
    void check() const;
};

}  // namespace rapidsmpf::compute
