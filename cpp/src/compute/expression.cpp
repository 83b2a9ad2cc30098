#include "compute/expression.hpp"

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include <cudf/column/column_factories.hpp>
#include <cudf/copying.hpp>
#include <cudf/interop.hpp>
#include <cudf/unary.hpp>
#include <cudf/utilities/traits.hpp>

#include <rapidsmpf/table/arrow_c.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::compute {

// ---- Before the first chunk

Expressions::Expressions(Program const& program, Work& work) {
    nodes_.reserve(program.expressions.size());
    for (auto const& expression : program.expressions) {
        auto& node = nodes_.emplace_back();
        node.expression = expression;
        node.type = to_cudf(expression.type);
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

// ---- For each chunk

// The values of some expressions, and of those that they are made of, for one chunk.
class Expressions::Evaluation {
  public:
    // Computes all of them, so that nothing reads the rows afterwards but take().
    Evaluation(
        std::vector<Node> const& nodes, std::span<std::int32_t const> ids, cudf::table_view const& rows,
        Work& work)
        : nodes_{nodes}, rows_{rows}, work_{work} {
        for (auto const id : ids) {
            note_use(id);
        }
        // Arguments have smaller numbers than their calls.
        for (auto& [id, value] : values_) {
            compute(node(id), value);
        }
    }

    // The expression's values as a column of its own; once for each time that its number was given.
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
        ColumnPtr made;          // of a call, until its last use
        cudf::column_view view;  // of a constant: its own rows
    };

    [[nodiscard]] Node const& node(std::int32_t id) const { return nodes_.at(static_cast<std::size_t>(id)); }

    void note_use(std::int32_t id) {
        if (values_[id].uses++ == 0) {
            for (auto const argument : node(id).expression.args) {
                note_use(argument);
            }
        }
    }

    void compute(Node const& node, Value& value) {
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
        }
    }

    [[nodiscard]] ColumnPtr call(Node const& node) {
        // Not all functions of libcudf take columns without rows.
        if (rows_.num_rows() == 0 && !cudf::is_nested(node.type)) {
            return cudf::make_empty_column(node.type);
        }
        std::vector<Argument> arguments;
        for (auto const id : node.expression.args) {
            arguments.push_back({values_.at(id).view, this->node(id).scalar.get()});
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
    Work& work_;
    std::map<std::int32_t, Value> values_;  // of the expressions that are needed, arguments first
};

std::vector<ColumnPtr> Expressions::evaluate(
    std::span<std::int32_t const> ids, cudf::table_view const& rows, Work& work) const {
    Evaluation evaluation{nodes_, ids, rows, work};
    std::vector<ColumnPtr> columns;
    for (auto const id : ids) {
        columns.push_back(evaluation.take(id));
    }
    return columns;
}

ColumnPtr Expressions::mask(std::int32_t id, cudf::table_view const& rows, Work& work) const {
    return std::move(evaluate(std::span{&id, 1}, rows, work).front());
}

TablePtr Expressions::project(std::span<std::int32_t const> ids, TablePtr rows, Work& work) const {
    Evaluation evaluation{nodes_, ids, rows->view(), work};
    // A column is moved to the last place that it is passed on to, after all else has been copied or computed.
    std::map<std::int32_t, std::size_t> last_places;
    for (std::size_t place = 0; place < ids.size(); ++place) {
        auto const& expression = nodes_[static_cast<std::size_t>(ids[place])].expression;
        if (expression.kind == Expression::Kind::column) {
            last_places[expression.index] = place;
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
    auto old = rows->release();
    for (auto const& [column, place] : last_places) {
        columns[place] = std::move(old.at(static_cast<std::size_t>(column)));
    }
    return std::make_unique<cudf::table>(std::move(columns));
}

}  // namespace rapidsmpf::compute
