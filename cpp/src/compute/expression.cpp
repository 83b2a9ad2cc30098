#include "compute/expression.hpp"

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include <cudf/binaryop.hpp>
#include <cudf/column/column_factories.hpp>
#include <cudf/copying.hpp>
#include <cudf/interop.hpp>
#include <cudf/unary.hpp>
#include <cudf/utilities/traits.hpp>

#include <rapidsmpf/table/arrow_c.hpp>
#include <rapidsmpf/table/table.hpp>

#include "compute/string_codes.hpp"

namespace rapidsmpf::compute {

// ---- Before the first chunk

Expressions::Expressions(Program const& program, Work& work) {
    nodes_.reserve(program.expressions.size());
    for (auto const& expression : program.expressions) {
        auto& node = nodes_.emplace_back();
        node.expression = expression;
        node.type = to_cudf(expression.type);
        node.only_column = only_column_of(expression);
        switch (expression.kind) {
            case Expression::Kind::column:
                break;
            case Expression::Kind::constant:
                add_constant(node, program.constants.at(static_cast<std::size_t>(expression.index)), work);
                break;
            case Expression::Kind::call:
                add_call(node, work);
                break;
        }
    }
    work.synchronize();  // other threads read what was made on this one's stream
}

void Expressions::add_constant(Node& node, Table const& table, Work& work) {
    ArrowSchemaOwner schema;
    ArrowArrayOwner array;
    table.export_schema(schema.out());
    table.export_array(array.out());
    auto columns = cudf::from_arrow(schema.get(), array.get(), work.stream(), work.mr())->release();
    node.constant = cast_to(std::move(columns.at(0)), node.type, work);
    if (node.constant->size() == 1) {
        node.scalar = cudf::get_element(node.constant->view(), 0, work.stream(), work.mr());
    }
    work.synchronize();  // the copies read the array
}

void Expressions::add_call(Node& node, Work& work) {
    node.primitive = &primitive_of(node.expression);
    for (std::size_t place = 0; place < node.expression.args.size(); ++place) {
        check_argument(node, place);
    }
    if (node.primitive->prepare != nullptr) {
        node.prepared = node.primitive->prepare(node.expression, work);
    }
}

void Expressions::check_argument(Node const& call, std::size_t place) const {
    auto const& op = call.expression.op;
    auto const number = call.expression.args[place];
    // The call itself is the last node.
    if (number < 0 || static_cast<std::size_t>(number) + 1 >= nodes_.size()) {
        throw std::invalid_argument(
            "the argument " + std::to_string(number) + " of '" + op + "' does not come before it");
    }
    auto const& argument = nodes_[static_cast<std::size_t>(number)];
    auto const is_constant = argument.expression.kind == Expression::Kind::constant;
    auto const is_set = call.primitive->constants == Constants::set_first && place == 0;
    auto const is_limit = call.primitive->constants == Constants::limits_last && place > 0;
    if ((is_set || is_limit) && !is_constant) {
        throw std::invalid_argument(
            "the argument number " + std::to_string(place) + " of '" + op + "' is a constant");
    }
    if (is_constant && !is_set && argument.scalar == nullptr) {
        throw std::invalid_argument(
            "'" + op + "' takes constants of one row, not of " + std::to_string(argument.constant->size()));
    }
}

std::int32_t Expressions::only_column_of(Expression const& expression) const {
    if (expression.kind == Expression::Kind::column) {
        return expression.index;
    }
    auto only = Node::no_column;
    for (auto const argument : expression.args) {
        // Arguments that do not come before the call are refused by add_call().
        auto const number = static_cast<std::size_t>(argument);
        auto const column = number < nodes_.size() ? nodes_[number].only_column : Node::no_column;
        if (column == Node::no_column || column == only) {
            continue;
        }
        only = only == Node::no_column ? column : Node::several_columns;
    }
    return only;
}

// ---- For each chunk

// The values of some expressions, and of those that they are made of, for one chunk.
class Expressions::Evaluation {
  public:
    // Computes all of them, so that nothing reads the rows afterwards but take().
    Evaluation(
        std::vector<Node> const& nodes, std::span<std::int32_t const> ids, cudf::table_view const& rows,
        Coding const& coding, Work& work)
        : nodes_{nodes}, rows_{rows}, coding_{coding}, work_{work} {
        for (auto const id : ids) {
            note_use(id);
        }
        // Arguments have smaller numbers than their calls.
        for (auto& [id, value] : values_) {
            compute(id, value);
        }
    }

    // The expression's values as a column of its own, of a coded column its codes; once for each time that its number was given.
    [[nodiscard]] ColumnPtr take(std::int32_t id) {
        auto& value = values_.at(id);
        --value.uses;
        if (value.made && value.uses == 0) {
            return std::move(value.made);
        }
        if (node(id).expression.kind == Expression::Kind::constant) {
            return fill(node(id));
        }
        return std::make_unique<cudf::column>(value.view, work_.stream(), work_.mr());
    }

  private:
    struct Value {
        int uses{0};             // by calls to come, and by take()
        bool is_by_code{false};  // of a call that is computed for each string of a coded column
        ColumnPtr made;          // of a call, until its last use
        cudf::column_view view;  // of a constant: its own rows; of a coded column: its codes
        ColumnPtr strings;       // a coded column, decoded for a call
    };

    [[nodiscard]] Node const& node(std::int32_t id) const { return nodes_.at(static_cast<std::size_t>(id)); }

    void note_use(std::int32_t id) {
        auto& value = values_[id];
        if (value.uses++ == 0) {
            value.is_by_code = is_by_code(node(id));
            if (!value.is_by_code) {
                for (auto const argument : node(id).expression.args) {
                    note_use(argument);
                }
            }
        }
    }

    [[nodiscard]] bool is_by_code(Node const& node) const {
        if (node.expression.kind != Expression::Kind::call || node.only_column < 0) {
            return false;
        }
        auto const& codes = codes_of(coding_, static_cast<std::size_t>(node.only_column));
        return codes != nullptr && codes->size() < rows_.num_rows();
    }

    // The values of a call for each string, and for null if there are nulls, then those of the rows.
    [[nodiscard]] ColumnPtr compute_by_code(std::int32_t id) {
        auto const column = node(id).only_column;
        auto const codes = rows_.column(column);
        auto const strings = codes_of(coding_, static_cast<std::size_t>(column))->strings_for(codes, work_);
        // The call knows the column by its place.
        std::vector<cudf::column_view> const columns(static_cast<std::size_t>(column) + 1, strings);
        Evaluation of_strings{nodes_, std::span{&id, 1}, cudf::table_view{columns}, not_coded_, work_};
        auto const values = of_strings.take(id);
        return values_of_codes(values->view(), codes, work_);
    }

    // The strings of a coded column; the rows of any other value.
    [[nodiscard]] cudf::column_view argument(std::int32_t id) {
        auto& value = values_.at(id);
        auto const& expression = node(id).expression;
        if (expression.kind != Expression::Kind::column) {
            return value.view;
        }
        auto const& codes = codes_of(coding_, static_cast<std::size_t>(expression.index));
        if (codes == nullptr) {
            return value.view;
        }
        if (value.strings == nullptr) {
            value.strings = codes->decode(value.view, work_);
        }
        return value.strings->view();
    }

    void compute(std::int32_t id, Value& value) {
        auto const& node = this->node(id);
        if (value.is_by_code) {
            value.made = compute_by_code(id);
            value.view = value.made->view();
            return;
        }
        switch (node.expression.kind) {
            case Expression::Kind::column:
                value.view = rows_.column(node.expression.index);
                break;
            case Expression::Kind::constant:
                value.view = node.constant->view();
                break;
            case Expression::Kind::call:
                value.made = call(node);
                value.view = value.made->view();
                for (auto const argument : node.expression.args) {
                    drop_use(argument);
                }
                break;
        }
    }

    void drop_use(std::int32_t id) {
        auto& value = values_.at(id);
        if (--value.uses == 0) {
            value.made.reset();
            value.strings.reset();
        }
    }

    [[nodiscard]] ColumnPtr call(Node const& node) {
        // Not all functions of libcudf take columns without rows.
        if (rows_.num_rows() == 0 && !cudf::is_nested(node.type)) {
            return cudf::make_empty_column(node.type);
        }
        std::vector<Argument> arguments;
        for (auto const id : node.expression.args) {
            arguments.push_back({argument(id), this->node(id).scalar.get()});
        }
        Call call{node.expression, node.prepared, std::move(arguments), rows_.num_rows(), work_};
        auto made = node.primitive->function(call);
        if (made->type() == node.type) {
            return made;
        }
        // Some give narrower numbers than the program asks for: INT32 for a length.
        if (!cudf::is_fixed_width(made->type())) {
            throw std::invalid_argument(
                "'" + node.expression.op + "' gives the type "
                + std::to_string(static_cast<std::int32_t>(made->type().id())) + ", and the program says "
                + std::to_string(node.expression.type.id));
        }
        return cudf::cast(made->view(), node.type, work_.stream(), work_.mr());
    }

    [[nodiscard]] ColumnPtr fill(Node const& node) const {
        if (node.scalar == nullptr) {
            throw std::invalid_argument(
                "a constant of " + std::to_string(node.constant->size()) + " rows fills no column");
        }
        return cudf::make_column_from_scalar(*node.scalar, rows_.num_rows(), work_.stream(), work_.mr());
    }

    std::vector<Node> const& nodes_;
    cudf::table_view rows_;
    Coding const& coding_;
    Coding const not_coded_;
    Work& work_;
    std::map<std::int32_t, Value> values_;  // of the expressions that are needed, arguments first
};

std::vector<std::int32_t> Expressions::conjuncts(std::int32_t id) const {
    auto const& expression = nodes_.at(static_cast<std::size_t>(id)).expression;
    if (expression.kind != Expression::Kind::call || expression.op != "null_logical_and") {
        return {id};
    }
    std::vector<std::int32_t> all;
    for (auto const argument : expression.args) {
        auto const some = conjuncts(argument);
        all.insert(all.end(), some.begin(), some.end());
    }
    return all;
}

std::optional<std::int32_t> Expressions::only_column(std::int32_t id) const {
    auto const column = nodes_.at(static_cast<std::size_t>(id)).only_column;
    return column >= 0 ? std::optional{column} : std::nullopt;
}

ColumnPtr Expressions::mask(std::span<std::int32_t const> ids, Chunk const& chunk, Work& work) const {
    Evaluation evaluation{nodes_, ids, chunk.rows->view(), chunk.coding, work};
    auto all = evaluation.take(ids.front());
    for (auto const id : ids.subspan(1)) {
        auto const one = evaluation.take(id);
        all = cudf::binary_operation(
            all->view(), one->view(), cudf::binary_operator::NULL_LOGICAL_AND,
            cudf::data_type{cudf::type_id::BOOL8}, work.stream(), work.mr());
    }
    return all;
}

Chunk Expressions::project(std::span<std::int32_t const> ids, Chunk chunk, Work& work) const {
    Chunk result;
    result.sequence = chunk.sequence;
    Evaluation evaluation{nodes_, ids, chunk.rows->view(), chunk.coding, work};
    // A column is moved to the last place that it is passed on to, after all else has been copied or computed.
    std::map<std::int32_t, std::size_t> last_places;
    for (std::size_t place = 0; place < ids.size(); ++place) {
        auto const& expression = nodes_[static_cast<std::size_t>(ids[place])].expression;
        if (expression.kind == Expression::Kind::column) {
            last_places[expression.index] = place;
            set_codes(
                result.coding, place, codes_of(chunk.coding, static_cast<std::size_t>(expression.index)));
        }
    }
    std::vector<ColumnPtr> columns(ids.size());
    for (std::size_t place = 0; place < ids.size(); ++place) {
        auto const& expression = nodes_[static_cast<std::size_t>(ids[place])].expression;
        auto const is_moved =
            expression.kind == Expression::Kind::column && last_places.at(expression.index) == place;
        if (!is_moved) {
            columns[place] = evaluation.take(ids[place]);
        }
    }
    auto old = chunk.rows->release();
    for (auto const& [column, place] : last_places) {
        columns[place] = std::move(old.at(static_cast<std::size_t>(column)));
    }
    result.rows = std::make_unique<cudf::table>(std::move(columns));
    return result;
}

}  // namespace rapidsmpf::compute
