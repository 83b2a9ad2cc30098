// Rows of programs under test: tables from cells, cells of tables, and programs from a few pipelines.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rapidsmpf/compute/detail/program.hpp>
#include <rapidsmpf/compute/detail/runtime.hpp>
#include <rapidsmpf/table/table.hpp>
#include <rapidsmpf/table/table_stream.hpp>

namespace rapidsmpf::testing {

using Integers = std::vector<std::optional<std::int64_t>>;
using Reals = std::vector<std::optional<double>>;
using Texts = std::vector<std::optional<std::string>>;
using Rows = std::vector<std::vector<std::string>>;

// Columns side by side, all of one length.
class TableBuilder {
  public:
    TableBuilder& add(Integers const& cells);
    TableBuilder& add(Reals const& cells);
    // format: u, U, vu (of at most twelve bytes each), or a dictionary of them: dictionary.
    TableBuilder& add(Texts const& cells, std::string const& format = "u");
    // Decimals of 128 bits with two digits behind the point, given in hundredths.
    TableBuilder& add_decimals(Integers const& cells);
    [[nodiscard]] Table build();

  private:
    struct Memory;
    template <typename T>
    T* keep(std::vector<T> const& values);
    template <typename Cell>
    void set_validity(Column& column, std::vector<std::optional<Cell>> const& cells);
    [[nodiscard]] Column text_column(Texts const& cells, std::string const& format);

    std::vector<Field> fields_;
    std::vector<Column> columns_;
    std::int64_t rows_{0};
    std::shared_ptr<Memory> memory_;
};

// The table split into tables of so many rows, as a stream.
[[nodiscard]] std::shared_ptr<TableReader> reader_of(Table const& table, std::int64_t rows_each);

// Cells as text: "null", integers, floats with six digits, decimals in their smallest unit.
[[nodiscard]] Rows rows_of(Table const& table);
[[nodiscard]] Rows rows_of(compute::Result& result);
[[nodiscard]] Rows sorted(Rows rows);

[[nodiscard]] compute::DataType int64_type();
[[nodiscard]] compute::DataType float64_type();
[[nodiscard]] compute::DataType text_type();
[[nodiscard]] compute::DataType decimal_type();

}  // namespace rapidsmpf::testing
