// The primitives that a program may call: functions of libcudf by name, with libcudf's semantics.
//
// What each does is said by cudf_polars/execute/gpu/primitives.py, which writers of programs go by. The tables are in
// functions_<subject>.cpp, and each primitive has a line that begins with
//
//     {"name", number of arguments, "names of options", ...
//
// as that file has them; an option in brackets may be left out. A test reads both and compares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cudf/column/column_view.hpp>
#include <cudf/scalar/scalar.hpp>
#include <cudf/strings/regex/regex_program.hpp>
#include <cudf/strings/strings_column_view.hpp>
#include <cudf/types.hpp>

#include <rapidsmpf/compute/detail/program.hpp>

#include "compute/tables.hpp"

namespace rapidsmpf::compute {

// What a call needs besides its arguments and is the same for all chunks: made once, read by all threads.
struct Prepared {
    std::unique_ptr<cudf::strings::regex_program> regex;
    std::vector<std::unique_ptr<cudf::string_scalar>> texts;
};

// A column of the chunk's length; or a constant of one row, which is a scalar too; or a constant of any other length.
struct Argument {
    cudf::column_view values;
    cudf::scalar const* scalar{nullptr};
};

// One call for one chunk.
class Call {
  public:
    // Who calls keeps all of them until the call is over.
    Call(
        Expression const& expression, Prepared const& prepared, std::vector<Argument> arguments,
        cudf::size_type rows, Work& work);

    // An argument as a column of the chunk's length: a constant fills it.
    [[nodiscard]] cudf::column_view column(std::size_t place);
    [[nodiscard]] cudf::strings_column_view texts(std::size_t place);
    // An argument that is a constant of one row; null if it is none.
    [[nodiscard]] cudf::scalar const* constant(std::size_t place) const;
    // The rows of an argument, of a constant its own.
    [[nodiscard]] cudf::column_view values(std::size_t place) const;

    [[nodiscard]] std::size_t count_arguments() const noexcept { return arguments_.size(); }
    [[nodiscard]] std::size_t count_options() const noexcept { return expression_.options.size(); }
    // A number that libcudf takes in 32 bits; what does not fit becomes the nearest that does, since it is a position
    // or a length.
    [[nodiscard]] std::int32_t number(std::size_t option) const;
    [[nodiscard]] std::string const& text(std::size_t option) const;

    [[nodiscard]] cudf::strings::regex_program const& regex() const { return *prepared_.regex; }
    [[nodiscard]] cudf::string_scalar const& prepared_text(std::size_t place) const {
        return *prepared_.texts.at(place);
    }

    [[nodiscard]] cudf::data_type type() const noexcept { return type_; }
    [[nodiscard]] cudf::size_type rows() const noexcept { return rows_; }
    [[nodiscard]] Work& work() const noexcept { return work_; }
    [[nodiscard]] cuda::stream_ref stream() const noexcept { return work_.stream(); }
    [[nodiscard]] rmm::device_async_resource_ref mr() const { return work_.mr(); }

  private:
    Expression const& expression_;
    Prepared const& prepared_;
    std::vector<Argument> arguments_;
    cudf::data_type type_;
    cudf::size_type rows_;
    Work& work_;
    std::vector<ColumnPtr> filled_;  // constants as columns: the result's kernels read them
};

// Which arguments have to be constants.
enum class Constants : std::uint8_t {
    any,          // none has to be; those of one row may be
    set_first,    // the first, of any length
    limits_last,  // all but the first, of one row
};

inline constexpr int any_number = -1;

struct Primitive {
    std::string_view name;
    int arity;
    std::string_view options;
    ColumnPtr (*function)(Call& call);
    Prepared (*prepare)(Expression const& call, Work& work){nullptr};
    Constants constants{Constants::any};
};

[[nodiscard]] std::span<Primitive const> binary_primitives();
[[nodiscard]] std::span<Primitive const> unary_primitives();
[[nodiscard]] std::span<Primitive const> string_primitives();
[[nodiscard]] std::span<Primitive const> time_primitives();
[[nodiscard]] std::span<Primitive const> nested_primitives();

// All names, in the order of the tables.
[[nodiscard]] std::vector<std::string_view> primitive_names();

// The primitive that a call names. Throws std::invalid_argument if there is none, or if it takes another number of
// arguments, or other options.
[[nodiscard]] Primitive const& primitive_of(Expression const& call);

}  // namespace rapidsmpf::compute
