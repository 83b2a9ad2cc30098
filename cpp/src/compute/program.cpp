#include <rapidsmpf/compute/detail/program.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rapidsmpf::compute {

namespace {

// Checks one program; `where` says what is looked at, for errors.
class Checker {
  public:
    explicit Checker(Program const& program) : program_{program} {}

    void check() {
        for (std::size_t i = 0; i < program_.expressions.size(); ++i) {
            where_ = "expression " + std::to_string(i);
            expression(program_.expressions[i], i);
        }
        if (program_.pipelines.empty()) {
            throw std::invalid_argument("a program has a pipeline at least");
        }
        for (std::size_t i = 0; i < program_.pipelines.size(); ++i) {
            pipeline(program_.pipelines[i], i);
        }
        if (std::holds_alternative<Build>(program_.pipelines.back().sink)) {
            fail("the last pipeline gives the program's rows, and a hash table has none");
        }
    }

  private:
    [[noreturn]] void fail(std::string const& text) const {
        throw std::invalid_argument(where_ + ": " + text);
    }
    void expect_below(std::int64_t number, std::size_t limit, char const* what) const {
        if (number < 0 || static_cast<std::size_t>(number) >= limit) {
            fail(std::string{"there is no "} + what + " " + std::to_string(number));
        }
    }

    void expression(Expression const& e, std::size_t place) const {
        if (e.kind != Expression::Kind::call && !e.args.empty()) {
            fail("only calls have arguments");
        }
        switch (e.kind) {
            case Expression::Kind::column:
                if (e.index < 0) {
                    fail("a column's place is not negative");
                }
                break;
            case Expression::Kind::constant:
                expect_below(e.index, program_.constants.size(), "constant");
                break;
            case Expression::Kind::call:
                for (auto const arg : e.args) {
                    if (arg < 0 || static_cast<std::size_t>(arg) >= place) {
                        fail(
                            "the argument " + std::to_string(arg) + " of '" + e.op
                            + "' does not come before it");
                    }
                }
                break;
        }
    }

    // The columns that an expression reads are among so many.
    void expect_columns(std::int32_t id, std::size_t width) const {
        expect_below(id, program_.expressions.size(), "expression");
        // Expressions share what they are made of: each is looked at once.
        std::vector<bool> seen(static_cast<std::size_t>(id) + 1);
        std::vector<std::size_t> open{static_cast<std::size_t>(id)};
        seen.back() = true;
        while (!open.empty()) {
            auto const& e = program_.expressions[open.back()];
            open.pop_back();
            if (e.kind == Expression::Kind::column) {
                expect_below(e.index, width, "column");
            }
            for (auto const arg : e.args) {
                auto const place = static_cast<std::size_t>(arg);
                if (!seen[place]) {
                    seen[place] = true;
                    open.push_back(place);
                }
            }
        }
    }

    void pipeline(Pipeline const& p, std::size_t place) {
        where_ = "pipeline " + std::to_string(place) + ", source";
        auto types = std::visit([&](auto const& source) { return source_types(source, place); }, p.source);
        for (std::size_t i = 0; i < p.steps.size(); ++i) {
            where_ = "pipeline " + std::to_string(place) + ", step " + std::to_string(i);
            std::visit([&](auto const& step) { apply(step, types, place); }, p.steps[i]);
        }
        where_ = "pipeline " + std::to_string(place) + ", sink";
        std::visit([&](auto const& sink) { end(sink, types, p); }, p.sink);
    }

    // Nothing: not known here (what comes from outside has the types that it has).
    using Types = std::optional<std::vector<DataType>>;

    Types source_types(ParquetScan const& scan, std::size_t) const {
        if (scan.columns.size() != scan.types.size()) {
            fail("as many types as columns");
        }
        return scan.columns.empty() ? Types{} : Types{scan.types};
    }
    Types source_types(FromInput const& from, std::size_t) const {
        if (from.input < 0) {
            fail("an input's number is not negative");
        }
        return {};
    }
    Types source_types(FromPipeline const& from, std::size_t place) const {
        expect_below(from.pipeline, place, "earlier pipeline");
        return program_.pipelines[static_cast<std::size_t>(from.pipeline)].types;
    }
    Types source_types(FromJoin const& join, std::size_t place) const {
        expect_below(join.left, place, "earlier pipeline");
        expect_below(join.right, place, "earlier pipeline");
        if (join.kind != JoinKind::full && join.kind != JoinKind::cross) {
            fail("a join of both sides whole is full or cross");
        }
        auto types = program_.pipelines[static_cast<std::size_t>(join.left)].types;
        auto const& right = program_.pipelines[static_cast<std::size_t>(join.right)].types;
        if (join.left_keys.size() != join.right_keys.size()) {
            fail("as many keys of the left as of the right");
        }
        for (std::size_t i = 0; i < join.left_keys.size(); ++i) {
            expect_below(join.left_keys[i], types.size(), "column on the left");
            expect_below(join.right_keys[i], right.size(), "column on the right");
            expect_equal(
                types[static_cast<std::size_t>(join.left_keys[i])],
                right[static_cast<std::size_t>(join.right_keys[i])]);
        }
        types.insert(types.end(), right.begin(), right.end());
        return types;
    }
    void expect_equal(DataType a, DataType b) const {
        if (a != b) {
            fail("keys have types " + std::to_string(a.id) + " and " + std::to_string(b.id));
        }
    }

    void apply(Filter const& step, Types& types, std::size_t) const {
        expect_columns(step.mask, types ? types->size() : SIZE_MAX);
    }
    void apply(Project const& step, Types& types, std::size_t) const {
        if (step.columns.empty()) {
            fail("a chunk has a column at least");
        }
        std::vector<DataType> made;
        for (auto const id : step.columns) {
            expect_columns(id, types ? types->size() : SIZE_MAX);
            made.push_back(program_.expressions[static_cast<std::size_t>(id)].type);
        }
        types = std::move(made);
    }
    void apply(Probe const& step, Types& types, std::size_t place) const {
        expect_below(step.build, place, "earlier pipeline");
        auto const& build = program_.pipelines[static_cast<std::size_t>(step.build)];
        auto const* sink = std::get_if<Build>(&build.sink);
        if (sink == nullptr) {
            fail("pipeline " + std::to_string(step.build) + " builds no hash table");
        }
        if (sink->keys.size() != step.keys.size()) {
            fail("as many keys as the build has");
        }
        for (std::size_t i = 0; i < step.keys.size(); ++i) {
            expect_below(step.keys[i], types ? types->size() : SIZE_MAX, "column");
            if (types) {
                expect_equal(
                    (*types)[static_cast<std::size_t>(step.keys[i])],
                    build.types.at(static_cast<std::size_t>(sink->keys[i])));
            }
        }
        if (step.kind != JoinKind::inner && step.kind != JoinKind::left && step.kind != JoinKind::semi
            && step.kind != JoinKind::anti) {
            fail("a probe is inner, left, semi or anti");
        }
        for (auto const column : step.payload) {
            expect_below(column, build.types.size(), "column of the build");
            if (types) {
                types->push_back(build.types[static_cast<std::size_t>(column)]);
            }
        }
    }

    void expect_all(std::vector<std::int32_t> const& columns, Types const& types) const {
        for (auto const column : columns) {
            expect_below(column, types ? types->size() : SIZE_MAX, "column");
        }
    }
    void expect_result(Types const& types, Pipeline const& p) const {
        if (types && *types != p.types) {
            fail("the result's types are not those of the rows");
        }
    }
    void end(Build const& sink, Types const& types, Pipeline const& p) const {
        expect_all(sink.keys, types);
        expect_result(types, p);
    }
    void end(Group const& sink, Types const& types, Pipeline const& p) const {
        expect_all(sink.keys, types);
        Types made{std::vector<DataType>{}};
        for (auto const key : sink.keys) {
            if (types) {
                made->push_back((*types)[static_cast<std::size_t>(key)]);
            }
        }
        for (auto const& aggregate : sink.aggregates) {
            if (aggregate.kind != AggregateKind::count_all) {
                expect_below(aggregate.column, types ? types->size() : SIZE_MAX, "column");
            }
            made->push_back(aggregate.type);
        }
        expect_result(types ? made : Types{}, p);
    }
    void expect_range(std::optional<RowRange> const& range) const {
        if (range && range->length && *range->length < 0) {
            fail("a range has " + std::to_string(*range->length) + " rows");
        }
    }
    void end(Sort const& sink, Types const& types, Pipeline const& p) const {
        expect_range(sink.range);
        for (auto const& key : sink.keys) {
            expect_below(key.column, types ? types->size() : SIZE_MAX, "column");
        }
        expect_result(types, p);
    }
    void end(Distinct const& sink, Types const& types, Pipeline const& p) const {
        expect_all(sink.keys, types);
        expect_result(types, p);
    }
    void end(Hold const& sink, Types const& types, Pipeline const& p) const {
        expect_range(sink.range);
        expect_result(types, p);
    }

    Program const& program_;
    std::string where_;
};

}  // namespace

void Program::check() const {
    Checker{*this}.check();
}

}  // namespace rapidsmpf::compute
