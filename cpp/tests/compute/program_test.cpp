// What is wrong with a program is found before it runs, and the error says where.
#include <rapidsmpf/compute/detail/program.hpp>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "compute/rows_support.hpp"

namespace rapidsmpf::testing::programs {
namespace {

using compute::DataType;
using compute::Expression;
using compute::Program;

Expression column(std::int32_t index) {
    return {Expression::Kind::column, index, "", {}, int64_type(), {}};
}

Expression call(std::vector<std::int32_t> args) {
    return {Expression::Kind::call, 0, "add", std::move(args), int64_type(), {}};
}

// Scans two columns, filters and projects them, builds a table of them and probes it; then groups and sorts.
Program a_program() {
    DataType const integer = int64_type();
    Program program;
    program.expressions = {column(0), column(1), call({0, 1}), call({2, 2})};
    program.constants = {TableBuilder{}.add(Integers{1}).build()};
    compute::ParquetScan scan;
    scan.files = {{"a.parquet", {0}}};
    scan.columns = {"a", "b"};
    scan.types = {integer, integer};
    compute::Probe probe;
    probe.build = 0;
    probe.keys = {0};
    probe.payload = {1};
    compute::Group group;
    group.keys = {0};
    group.aggregates = {{compute::AggregateKind::sum, 1, integer, {}}};
    compute::FromJoin join;
    join.kind = compute::JoinKind::full;
    join.left = 0;
    join.right = 1;
    join.left_keys = {0};
    join.right_keys = {0};
    program.pipelines = {
        {scan,
         {compute::Filter{2}, compute::Project{{3, 1}}},
         compute::Build{{0}, false},
         {integer, integer}},
        {scan, {probe}, group, {integer, integer}},
        {compute::FromPipeline{1}, {}, compute::Sort{{{0, false, true}}, false, {}}, {integer, integer}},
        {join, {}, compute::Hold{}, {integer, integer, integer, integer}},
    };
    return program;
}

template <typename Kind>
Kind& step(Program& program, std::size_t pipeline, std::size_t place) {
    return std::get<Kind>(program.pipelines[pipeline].steps[place]);
}
template <typename Kind>
Kind& source(Program& program, std::size_t pipeline) {
    return std::get<Kind>(program.pipelines[pipeline].source);
}
template <typename Kind>
Kind& sink(Program& program, std::size_t pipeline) {
    return std::get<Kind>(program.pipelines[pipeline].sink);
}

TEST(ProgramTest, TakesAWholeProgram) {
    EXPECT_NO_THROW(a_program().check());
}

TEST(ProgramTest, TypesOfInputsAreNotKnown) {
    Program program;
    program.expressions = {column(7)};
    program.pipelines = {{compute::FromInput{0}, {compute::Project{{0}}}, compute::Hold{}, {int64_type()}}};
    EXPECT_NO_THROW(program.check());
}

TEST(ProgramTest, SharedExpressionsAreLookedAtOnce) {
    auto program = a_program();
    for (int i = 0; i < 200; ++i) {  // a tree of 2 ** 200 nodes
        auto const last = static_cast<std::int32_t>(program.expressions.size()) - 1;
        program.expressions.push_back(call({last, last}));
    }
    step<compute::Filter>(program, 0, 0).mask = static_cast<std::int32_t>(program.expressions.size()) - 1;
    EXPECT_NO_THROW(program.check());
}

struct Wrong {
    char const* name;
    std::function<void(Program&)> change;
    std::vector<std::string> says;
};

std::vector<Wrong> wrong_programs() {
    DataType const text = text_type();
    return {
        {"NoPipelines", [](Program& p) { p.pipelines.clear(); }, {"a pipeline at least"}},
        {"ColumnBeforeTheFirst",
         [](Program& p) { p.expressions[1].index = -1; },
         {"expression 1", "not negative"}},
        {"NoSuchConstant",
         [](Program& p) { p.expressions[0] = {Expression::Kind::constant, 1, "", {}, int64_type(), {}}; },
         {"expression 0", "no constant 1"}},
        {"ArgumentIsItself",
         [](Program& p) { p.expressions[2].args = {0, 2}; },
         {"expression 2", "argument 2"}},
        {"ArgumentComesLater",
         [](Program& p) { p.expressions[2].args = {3}; },
         {"expression 2", "argument 3"}},
        {"NegativeArgument",
         [](Program& p) { p.expressions[2].args = {-1}; },
         {"expression 2", "argument -1"}},
        {"ArgumentOfAColumn",
         [](Program& p) { p.expressions[1].args = {0}; },
         {"expression 1", "only calls"}},
        {"ScanWithoutATypeForEach",
         [](Program& p) { source<compute::ParquetScan>(p, 0).types.pop_back(); },
         {"pipeline 0, source", "as many types as columns"}},
        {"ReadsALaterPipeline",
         [](Program& p) { source<compute::FromPipeline>(p, 2).pipeline = 2; },
         {"pipeline 2, source", "no earlier pipeline 2"}},
        {"NegativeInput",
         [](Program& p) { p.pipelines[1].source = compute::FromInput{-1}; },
         {"pipeline 1, source", "not negative"}},
        {"JoinsALaterPipeline",
         [](Program& p) { source<compute::FromJoin>(p, 3).right = 3; },
         {"pipeline 3, source", "no earlier pipeline 3"}},
        {"JoinOfOneKind",
         [](Program& p) { source<compute::FromJoin>(p, 3).kind = compute::JoinKind::inner; },
         {"pipeline 3, source", "full or cross"}},
        {"JoinWithoutAKey",
         [](Program& p) { source<compute::FromJoin>(p, 3).left_keys.clear(); },
         {"pipeline 3, source", "as many keys"}},
        {"JoinByNoColumn",
         [](Program& p) { source<compute::FromJoin>(p, 3).right_keys = {2}; },
         {"pipeline 3, source", "column on the right 2"}},
        {"NoSuchMask",
         [](Program& p) { step<compute::Filter>(p, 0, 0).mask = 4; },
         {"pipeline 0, step 0", "no expression 4"}},
        {"MaskReadsNoColumn",
         [](Program& p) { p.expressions[0].index = 2; },
         {"pipeline 0, step 0", "no column 2"}},
        {"ProjectsNothing",
         [](Program& p) { step<compute::Project>(p, 0, 1).columns.clear(); },
         {"pipeline 0, step 1", "a column at least"}},
        {"ProbesWhatBuildsNothing",
         [](Program& p) { p.pipelines[0].sink = compute::Hold{}; },
         {"pipeline 1, step 0", "builds no hash table"}},
        {"ProbesALaterPipeline",
         [](Program& p) { step<compute::Probe>(p, 1, 0).build = 1; },
         {"pipeline 1, step 0", "no earlier pipeline 1"}},
        {"ProbesByOtherKeys",
         [](Program& p) { step<compute::Probe>(p, 1, 0).keys = {0, 1}; },
         {"pipeline 1, step 0", "as many keys"}},
        {"ProbesByNoColumn",
         [](Program& p) { step<compute::Probe>(p, 1, 0).keys = {2}; },
         {"pipeline 1, step 0", "no column 2"}},
        {"KeysOfOtherTypes",
         [text](Program& p) { source<compute::ParquetScan>(p, 1).types[0] = text; },
         {"pipeline 1, step 0", "types 23 and 4"}},
        {"PayloadIsNoColumn",
         [](Program& p) { step<compute::Probe>(p, 1, 0).payload = {2}; },
         {"pipeline 1, step 0", "no column of the build 2"}},
        {"ProbeOfAWholeJoin",
         [](Program& p) { step<compute::Probe>(p, 1, 0).kind = compute::JoinKind::full; },
         {"pipeline 1, step 0", "inner, left, semi or anti"}},
        {"BuildByNoColumn",
         [](Program& p) { sink<compute::Build>(p, 0).keys = {2}; },
         {"pipeline 0, sink", "no column 2"}},
        {"GroupByNoColumn",
         [](Program& p) { sink<compute::Group>(p, 1).keys = {3}; },
         {"pipeline 1, sink", "no column 3"}},
        {"SumOfNoColumn",
         [](Program& p) { sink<compute::Group>(p, 1).aggregates[0].column = 3; },
         {"pipeline 1, sink", "no column 3"}},
        {"GroupsOfAnotherType",
         [text](Program& p) { p.pipelines[1].types[1] = text; },
         {"pipeline 1, sink", "result's types"}},
        {"SortByNoColumn",
         [](Program& p) { sink<compute::Sort>(p, 2).keys[0].column = -1; },
         {"pipeline 2, sink", "no column -1"}},
        {"RangeOfFewerThanNoRows",
         [](Program& p) { sink<compute::Sort>(p, 2).range = compute::RowRange{0, -1}; },
         {"pipeline 2, sink", "-1 rows"}},
        {"DistinctByNoColumn",
         [](Program& p) { p.pipelines[2].sink = compute::Distinct{{2}, compute::Keep::any, false}; },
         {"pipeline 2, sink", "no column 2"}},
        {"RowsOfAnotherType",
         [text](Program& p) { p.pipelines[3].types[0] = text; },
         {"pipeline 3, sink", "result's types"}},
        {"EndsInAHashTable",
         [](Program& p) { p.pipelines[3].sink = compute::Build{{0}, false}; },
         {"pipeline 3, sink", "hash table"}},
    };
}

TEST(ProgramTest, SaysWhatIsWrongAndWhere) {
    for (auto const& wrong : wrong_programs()) {
        SCOPED_TRACE(wrong.name);
        auto program = a_program();
        wrong.change(program);
        try {
            program.check();
            ADD_FAILURE() << "nothing was found";
        } catch (std::invalid_argument const& error) {
            for (auto const& text : wrong.says) {
                EXPECT_NE(std::string{error.what()}.find(text), std::string::npos) << error.what();
            }
        }
    }
}

// The count of keys is right where there are none, as in a cross join.
TEST(ProgramTest, CrossJoinsHaveNoKeys) {
    auto program = a_program();
    auto& join = source<compute::FromJoin>(program, 3);
    join.kind = compute::JoinKind::cross;
    join.left_keys.clear();
    join.right_keys.clear();
    EXPECT_NO_THROW(program.check());
}

}  // namespace
}  // namespace rapidsmpf::testing::programs
