// Coded columns on a GPU: random pipelines give the same rows with codes as without.
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compute/gpu_support.hpp"

namespace rapidsmpf::testing::string_codes {
namespace {

using compute::AggregateKind;
using compute::DataType;
using compute::Expression;
using compute::JoinKind;

constexpr DataType truth{11, 0};  // BOOL8

// Texts of few values, some of them null, empty or long.
Texts texts_of(Integers const& cells, std::string const& prefix) {
    Texts texts;
    for (auto const& cell : cells) {
        if (!cell) {
            texts.emplace_back();
        } else if (*cell == 0) {
            texts.emplace_back("");
        } else {
            texts.emplace_back(
                prefix + std::string(static_cast<std::size_t>(*cell) % 5 * 4, '-') + std::to_string(*cell));
        }
    }
    return texts;
}

// A program whose columns of texts have few values: two small build sides, whose texts are coded, and what probes them.
class RandomProgram {
  public:
    explicit RandomProgram(std::uint64_t seed) : random_{seed} {
        compute::Build build;
        build.keys = {0};
        build.nulls_equal = one_of(2) == 0;
        pipelines_.push_back({compute::FromInput{1}, {}, build, {text_type(), text_type(), int64_type()}});
        pipelines_.push_back({compute::FromInput{2}, {}, build, {text_type(), text_type(), int64_type()}});
        compute::Pipeline main{compute::FromInput{0}, {}, compute::Hold{}, {}};
        types_ = {text_type(), text_type(), int64_type()};
        add_probe(main, 0);
        auto const steps = one_of(5);
        for (std::size_t i = 0; i < steps; ++i) {
            switch (one_of(3)) {
                case 0:
                    main.steps.emplace_back(compute::Filter{condition(2)});
                    break;
                case 1:
                    add_project(main);
                    break;
                default:
                    add_probe(main, static_cast<std::int32_t>(one_of(2)));
                    break;
            }
        }
        add_sink(main);
        pipelines_.push_back(std::move(main));
    }

    [[nodiscard]] compute::Program program() const {
        compute::Program program;
        program.expressions = expressions_;
        program.constants = constants_;
        program.pipelines = pipelines_;
        return program;
    }

    [[nodiscard]] std::vector<Table> inputs() {
        auto const facts = [&](std::size_t rows, std::int64_t values, std::string const& prefix) {
            return texts_of(some_integers(rows, values, 7, random_()), prefix);
        };
        auto const dimension = [&](std::string const& key, std::string const& text) {
            auto const rows = one_of(4) == 0 ? 0 : 1 + one_of(30);
            return TableBuilder{}
                .add(facts(rows, 20, key))
                .add(facts(rows, 9, text))
                .add(some_integers(rows, 1000, 9, random_()))
                .build();
        };
        auto const rows = one_of(300);
        std::vector<Table> tables;
        tables.push_back(
            TableBuilder{}
                .add(facts(rows, 20, "k"))
                .add(facts(rows, 5, "k"))
                .add(some_integers(rows, 50, 9, random_()))
                .build());
        tables.push_back(dimension("k", "k"));
        tables.push_back(dimension("k", "some longer text "));
        return tables;
    }

  private:
    [[nodiscard]] std::size_t one_of(std::size_t n) { return random_() % n; }

    std::int32_t add(Expression expression) {
        expressions_.push_back(std::move(expression));
        return static_cast<std::int32_t>(expressions_.size()) - 1;
    }
    std::int32_t column(std::int32_t place) {
        return add({Expression::Kind::column, place, "", {}, types_[static_cast<std::size_t>(place)], {}});
    }
    std::int32_t call(
        std::string op, DataType type, std::vector<std::int32_t> args,
        std::vector<compute::Option> options = {}) {
        return add({Expression::Kind::call, 0, std::move(op), std::move(args), type, std::move(options)});
    }
    std::int32_t text_constant() {
        static char const* const some[] = {"k4", "", "k-", "some longer text 3", "not there"};
        constants_.push_back(TableBuilder{}.add(Texts{some[one_of(5)]}).build());
        return add(
            {Expression::Kind::constant,
             static_cast<std::int32_t>(constants_.size()) - 1,
             "",
             {},
             text_type(),
             {}});
    }
    std::int32_t set_constant() {
        constants_.push_back(TableBuilder{}.add(Texts{"k4", "k9", "", "k----1"}).build());
        return add(
            {Expression::Kind::constant,
             static_cast<std::int32_t>(constants_.size()) - 1,
             "",
             {},
             text_type(),
             {}});
    }

    [[nodiscard]] std::vector<std::int32_t> places_of(DataType type) const {
        std::vector<std::int32_t> places;
        for (std::size_t i = 0; i < types_.size(); ++i) {
            if (types_[i] == type) {
                places.push_back(static_cast<std::int32_t>(i));
            }
        }
        return places;
    }
    std::int32_t text_place() {
        auto const places = places_of(text_type());
        return places[one_of(places.size())];
    }

    std::int32_t text_value(int depth) {
        switch (depth > 0 ? one_of(5) : 0) {
            case 1:
                return call("str.upper", text_type(), {text_value(depth - 1)});
            case 2:
                return call(
                    "str.slice", text_type(), {text_value(depth - 1)}, {std::int64_t{1}, std::int64_t{4}});
            case 3:
                return call("replace_nulls", text_type(), {text_value(depth - 1), text_constant()});
            case 4:
                return call(
                    "str.concat", text_type(), {text_value(depth - 1), text_value(depth - 1)},
                    {std::string{"+"}});
            default:
                return column(text_place());
        }
    }

    std::int32_t condition(int depth) {
        switch (one_of(depth > 0 ? 8 : 5)) {
            case 0:
                return call("equal", truth, {text_value(1), text_constant()});
            case 1:
                return call("is_null", truth, {text_value(1)});
            case 2:
                return call("str.starts_with", truth, {text_value(1), text_constant()});
            case 3: {
                auto const set = set_constant();
                return call("contains", truth, {set, text_value(1)});
            }
            case 4:
                return call("less", truth, {text_value(1), text_value(1)});
            case 5:
                return call("null_logical_or", truth, {condition(depth - 1), condition(depth - 1)});
            case 6:
                return call("null_logical_and", truth, {condition(depth - 1), condition(depth - 1)});
            default:
                return call("not", truth, {condition(depth - 1)});
        }
    }

    void add_probe(compute::Pipeline& pipeline, std::int32_t build) {
        static constexpr JoinKind kinds[] = {JoinKind::inner, JoinKind::left, JoinKind::semi, JoinKind::anti};
        compute::Probe probe;
        probe.build = build;
        probe.kind = kinds[one_of(8) < 5 ? one_of(2) : one_of(4)];
        probe.keys = {text_place()};
        if ((probe.kind == JoinKind::inner || probe.kind == JoinKind::left) && types_.size() < 12) {
            static constexpr std::int32_t columns[] = {1, 0, 2};
            for (std::size_t i = 0; i < 1 + one_of(3); ++i) {
                probe.payload.push_back(columns[i]);
                types_.push_back(columns[i] == 2 ? int64_type() : text_type());
            }
        }
        pipeline.steps.emplace_back(std::move(probe));
    }

    void add_project(compute::Pipeline& pipeline) {
        compute::Project project;
        std::vector<DataType> types;
        auto const texts = 1 + one_of(4);
        for (std::size_t i = 0; i < texts; ++i) {
            project.columns.push_back(one_of(3) == 0 ? text_value(2) : column(text_place()));
            types.push_back(text_type());
        }
        if (one_of(2) == 0) {
            project.columns.push_back(call("str.length", int64_type(), {text_value(1)}));
            types.push_back(int64_type());
        }
        auto const numbers = places_of(int64_type());
        project.columns.push_back(column(numbers[one_of(numbers.size())]));
        types.push_back(int64_type());
        pipeline.steps.emplace_back(std::move(project));
        types_ = std::move(types);
    }

    void add_sink(compute::Pipeline& pipeline) {
        pipeline.types = types_;
        auto const place = text_place();
        auto const second = text_place();
        switch (one_of(5)) {
            case 0:
                pipeline.sink = compute::Hold{};
                break;
            case 1: {
                compute::Sort sort;
                for (std::size_t i = 0; i < types_.size(); ++i) {
                    sort.keys.push_back(
                        {.column = static_cast<std::int32_t>(i),
                         .descending = one_of(2) == 0,
                         .nulls_first = true});
                }
                if (one_of(2) == 0) {
                    sort.range = compute::RowRange{0, 6};
                }
                pipeline.sink = std::move(sort);
                break;
            }
            case 2:
                // Of all columns, so that it does not matter which row is kept.
                pipeline.sink = compute::Distinct{};
                break;
            default: {
                compute::Group group;
                group.keys = {place};
                if (one_of(2) == 0) {
                    group.keys.push_back(second);
                }
                auto const number = places_of(int64_type()).front();
                group.aggregates = {
                    {AggregateKind::sum, number, int64_type(), {}},
                    {AggregateKind::count_all, place, int64_type(), {}}};
                if (one_of(2) == 0) {
                    group.aggregates.push_back({AggregateKind::max, text_place(), text_type(), {}});
                }
                if (one_of(2) == 0) {
                    group.aggregates.push_back({AggregateKind::count_valid, text_place(), int64_type(), {}});
                }
                if (one_of(3) == 0) {
                    group.aggregates.push_back(
                        {AggregateKind::nunique_valid, text_place(), int64_type(), {}});
                }
                pipeline.types.assign(group.keys.size(), text_type());
                for (auto const& aggregate : group.aggregates) {
                    pipeline.types.push_back(aggregate.type);
                }
                pipeline.sink = std::move(group);
                break;
            }
        }
    }

    std::mt19937_64 random_;
    std::vector<Expression> expressions_;
    std::vector<Table> constants_;
    std::vector<compute::Pipeline> pipelines_;
    std::vector<DataType> types_;  // of the columns that a step gets
};

class StringCodesTest : public OperatorTest {
  protected:
    [[nodiscard]] static std::unique_ptr<compute::Runtime> runtime(bool codes) {
        compute::RuntimeSettings settings;
        settings.threads = 4;
        settings.chunk_rows = 40;
        settings.string_codes = codes;
        settings.coded_rows = 0;
        return std::make_unique<compute::Runtime>(BufferResource::make(), settings);
    }

    [[nodiscard]] static Rows run_on(
        compute::Runtime& runtime, compute::Program program, std::vector<Table> const& inputs) {
        std::vector<std::shared_ptr<TableReader>> readers;
        for (auto const& table : inputs) {
            readers.push_back(reader_of(table, 30));
        }
        auto rows = rows_of(*runtime.run(std::move(program), readers));
        return sorted(std::move(rows));
    }
};

// In parts, for a sanitizer takes a minute for some programs.
class StringCodesInPrograms : public StringCodesTest, public ::testing::WithParamInterface<std::uint64_t> {};

TEST_P(StringCodesInPrograms, GiveTheSameRows) {
    constexpr std::uint64_t programs = 40;
    auto const with = runtime(true);
    auto const without = runtime(false);
    std::size_t cells = 0;
    for (auto seed = GetParam() * programs; seed < (GetParam() + 1) * programs; ++seed) {
        RandomProgram made{seed};
        auto const inputs = made.inputs();
        auto const expected = run_on(*without, made.program(), inputs);
        ASSERT_EQ(run_on(*with, made.program(), inputs), expected) << "seed " << seed;
        cells += expected.empty() ? 0 : expected.size() * expected.front().size();
        ASSERT_EQ(with->device_bytes(), 0) << "seed " << seed;
    }
    EXPECT_GT(cells, 2000U);
}

INSTANTIATE_TEST_SUITE_P(Parts, StringCodesInPrograms, ::testing::Range<std::uint64_t>(0, 10));

}  // namespace
}  // namespace rapidsmpf::testing::string_codes
