// Joins by programs on a GPU, against loops over the rows.
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "compute/gpu_support.hpp"

namespace rapidsmpf::testing {
namespace {

using compute::DataType;
using compute::JoinKind;

struct Case {
    JoinKind kind;
    bool unique;  // keys of the build side
    bool nulls;   // on both sides
    bool nulls_equal;
    std::size_t left;  // rows
    std::size_t right;
};

Integers keys_of(Case const& given, std::size_t rows, std::uint64_t seed) {
    if (given.unique && seed == 2) {
        auto keys = row_numbers(rows);
        if (given.nulls && rows > 3) {
            keys[3] = std::nullopt;
        }
        return keys;
    }
    return some_integers(rows, 20, given.nulls ? 5 : 0, seed);
}

std::string text(std::optional<std::int64_t> const& cell) {
    return cell ? std::to_string(*cell) : "null";
}

Rows expected(Case const& given, Integers const& left, Integers const& right) {
    Rows rows;
    std::vector<bool> right_matched(right.size());
    auto const kind = given.kind;
    for (std::size_t i = 0; i < left.size(); ++i) {
        bool matched{false};
        for (std::size_t j = 0; j < right.size(); ++j) {
            auto const equal =
                left[i] && right[j] ? *left[i] == *right[j] : given.nulls_equal && !left[i] && !right[j];
            if (kind == JoinKind::cross) {
                rows.push_back({text(left[i]), std::to_string(i), text(right[j]), std::to_string(j)});
                continue;
            }
            if (!equal) {
                continue;
            }
            matched = true;
            right_matched[j] = true;
            if (kind == JoinKind::full) {
                rows.push_back({text(left[i]), std::to_string(i), text(right[j]), std::to_string(j)});
            } else if (kind == JoinKind::inner || kind == JoinKind::left) {
                rows.push_back({text(left[i]), std::to_string(i), std::to_string(j), text(right[j])});
            }
        }
        if (!matched && kind == JoinKind::full) {
            rows.push_back({text(left[i]), std::to_string(i), "null", "null"});
        } else if (!matched && kind == JoinKind::left) {
            rows.push_back({text(left[i]), std::to_string(i), "null", "null"});
        } else if ((matched && kind == JoinKind::semi) || (!matched && kind == JoinKind::anti)) {
            rows.push_back({text(left[i]), std::to_string(i)});
        }
    }
    for (std::size_t j = 0; kind == JoinKind::full && j < right.size(); ++j) {
        if (!right_matched[j]) {
            rows.push_back({"null", "null", text(right[j]), std::to_string(j)});
        }
    }
    return sorted(rows);
}

class JoinTest : public OperatorTest {
  protected:
    [[nodiscard]] Rows join(Case const& given, Table const& left, Table const& right, DataType key) {
        std::vector<DataType> const two{key, int64_type()};
        if (given.kind == JoinKind::full || given.kind == JoinKind::cross) {
            compute::FromJoin source;
            source.kind = given.kind;
            source.left = 0;
            source.right = 1;
            if (given.kind == JoinKind::full) {
                source.left_keys = {0};
                source.right_keys = {0};
            }
            source.nulls_equal = given.nulls_equal;
            return run(
                {from_input(0, compute::Hold{}, two),
                 from_input(1, compute::Hold{}, two),
                 {source, {}, compute::Hold{}, {key, int64_type(), key, int64_type()}}},
                {left, right});
        }
        auto const matches = given.kind == JoinKind::inner || given.kind == JoinKind::left;
        compute::Probe probe;
        probe.build = 0;
        probe.kind = given.kind;
        probe.keys = {0};
        // The key comes after the other column, to see that places are kept apart.
        probe.payload = matches ? std::vector<std::int32_t>{1, 0} : std::vector<std::int32_t>{};
        auto const types = matches ? std::vector<DataType>{key, int64_type(), int64_type(), key} : two;
        return run(
            {from_input(1, compute::Build{{0}, given.nulls_equal}, two),
             {compute::FromInput{0}, {probe}, compute::Hold{}, types}},
            {left, right});
    }
};

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    for (auto const kind :
         {JoinKind::inner, JoinKind::left, JoinKind::semi, JoinKind::anti, JoinKind::full, JoinKind::cross}) {
        for (bool const unique : {true, false}) {
            for (bool const nulls : {true, false}) {
                for (bool const nulls_equal : {true, false}) {
                    for (auto const& [left, right] :
                         {std::pair<std::size_t, std::size_t>{60, 40}, {0, 10}, {10, 0}, {0, 0}}) {
                        cases.push_back({kind, unique, nulls, nulls_equal, left, right});
                    }
                }
            }
        }
    }
    return cases;
}

std::string describe(Case const& given) {
    return "kind " + std::to_string(static_cast<int>(given.kind)) + (given.unique ? " unique" : " repeated")
           + (given.nulls ? " nulls" : "") + (given.nulls_equal ? " equal" : " unequal") + " "
           + std::to_string(given.left) + " x " + std::to_string(given.right);
}

TEST_F(JoinTest, AllKindsByNumbers) {
    for (auto const& given : all_cases()) {
        SCOPED_TRACE(describe(given));
        auto const left = keys_of(given, given.left, 1);
        auto const right = keys_of(given, given.right, 2);
        auto const rows = join(
            given, TableBuilder{}.add(left).add(row_numbers(given.left)).build(),
            TableBuilder{}.add(right).add(row_numbers(given.right)).build(), int64_type());
        ASSERT_EQ(sorted(rows), expected(given, left, right));
    }
}

TEST_F(JoinTest, AllKindsByTexts) {
    for (auto const& given : all_cases()) {
        SCOPED_TRACE(describe(given));
        auto const left = keys_of(given, given.left, 1);
        auto const right = keys_of(given, given.right, 2);
        auto rows = join(
            given, TableBuilder{}.add(as_texts(left), "vu").add(row_numbers(given.left)).build(),
            TableBuilder{}.add(as_texts(right), "dictionary").add(row_numbers(given.right)).build(),
            text_type());
        for (auto& row : rows) {
            for (auto& cell : row) {
                if (cell.starts_with("text ")) {
                    cell.erase(0, 5);
                }
            }
        }
        ASSERT_EQ(sorted(rows), expected(given, left, right));
    }
}

TEST_F(JoinTest, OneBuildServesSeveralProbes) {
    auto const left = some_integers(50, 30, 0, 1);
    auto const right = row_numbers(20);
    std::vector<DataType> const two{int64_type(), int64_type()};
    compute::Probe inner;
    inner.keys = {0};
    inner.payload = {1};
    compute::Probe anti = inner;
    anti.kind = JoinKind::anti;
    anti.payload = {};
    auto const build = from_input(1, compute::Build{{0}, false}, two);
    auto const hold = from_input(0, compute::Hold{}, two);
    auto const matched =
        run({build,
             hold,
             {compute::FromPipeline{1}, {inner}, compute::Hold{}, {int64_type(), int64_type(), int64_type()}},
             {compute::FromPipeline{1}, {anti}, compute::Hold{}, two}},
            {TableBuilder{}.add(left).add(row_numbers(50)).build(),
             TableBuilder{}.add(right).add(right).build()});
    Rows expected;
    for (std::size_t i = 0; i < left.size(); ++i) {
        if (*left[i] >= 20) {
            expected.push_back({std::to_string(*left[i]), std::to_string(i)});
        }
    }
    EXPECT_EQ(sorted(matched), sorted(expected));
}

TEST_F(JoinTest, BuildSidesThatDoNotFitAreProbedInParts) {
    // 16 MB of rows and as much for their hash table, with 40 MiB on the device.
    BufferResource::Settings memory;
    memory.limits[static_cast<std::size_t>(MemoryType::DEVICE)] = std::int64_t{40} << 20;
    compute::RuntimeSettings settings;
    settings.threads = 3;
    runtime_ = std::make_unique<compute::Runtime>(BufferResource::make(memory), settings);
    constexpr std::size_t built{1'000'000};
    constexpr std::size_t probed{300'000};
    auto const keys = some_integers(probed, 2 * built, 10, 5);
    std::vector<DataType> const two{int64_type(), int64_type()};
    auto const left = TableBuilder{}.add(keys).add(row_numbers(probed)).build();
    auto const right = TableBuilder{}.add(row_numbers(built)).add(row_numbers(built)).build();
    std::size_t found{0};
    for (auto const& key : keys) {
        found += key && *key < static_cast<std::int64_t>(built) ? 1 : 0;
    }
    for (auto const kind : {JoinKind::inner, JoinKind::left, JoinKind::semi, JoinKind::anti}) {
        SCOPED_TRACE(static_cast<int>(kind));
        auto const matches = kind == JoinKind::inner || kind == JoinKind::left;
        compute::Probe probe;
        probe.kind = kind;
        probe.keys = {0};
        probe.payload = matches ? std::vector<std::int32_t>{1} : std::vector<std::int32_t>{};
        auto types = two;
        types.resize(matches ? 3 : 2, int64_type());
        compute::Program program;
        program.pipelines = {
            from_input(1, compute::Build{{0}, false}, two),
            {compute::FromInput{0}, {probe}, compute::Hold{}, types}};
        auto const result = runtime_->run(program, {reader_of(left, 50'000), reader_of(right, 50'000)});
        std::vector<bool> seen(probed);
        std::size_t rows{0};
        while (auto const table = result->next()) {
            for (auto const& row : rows_of(*table)) {
                auto const number = std::stoul(row[1]);
                EXPECT_FALSE(seen[number]);
                seen[number] = true;
                ++rows;
                auto const& key = keys[number];
                auto const is_there = key && *key < static_cast<std::int64_t>(built);
                if (matches) {
                    EXPECT_EQ(row[2], is_there ? std::to_string(*key) : "null");
                } else {
                    EXPECT_EQ(is_there, kind == JoinKind::semi);
                }
            }
        }
        EXPECT_EQ(rows, kind == JoinKind::left ? probed : kind == JoinKind::anti ? probed - found : found);
    }
    EXPECT_LE(runtime_->device_peak_bytes(), std::int64_t{40} << 20);
}

TEST_F(JoinTest, TwoKeys) {
    auto const first = some_integers(80, 5, 6, 1);
    auto const second = some_integers(80, 5, 6, 2);
    compute::Probe probe;
    probe.keys = {0, 1};
    probe.payload = {2};
    std::vector<DataType> const three{int64_type(), text_type(), int64_type()};
    auto const rows =
        run({from_input(1, compute::Build{{0, 1}, true}, three),
             {compute::FromInput{0},
              {probe},
              compute::Hold{},
              {int64_type(), text_type(), int64_type(), int64_type()}}},
            {TableBuilder{}.add(first).add(as_texts(second)).add(row_numbers(80)).build(),
             TableBuilder{}.add(first).add(as_texts(second)).add(row_numbers(80)).build()});
    std::size_t pairs{0};
    for (std::size_t i = 0; i < 80; ++i) {
        for (std::size_t j = 0; j < 80; ++j) {
            pairs += first[i] == first[j] && second[i] == second[j] ? 1 : 0;
        }
    }
    EXPECT_EQ(rows.size(), pairs);
    for (auto const& row : rows) {
        auto const i = std::stoul(row[2]);
        auto const j = std::stoul(row[3]);
        EXPECT_TRUE(first[i] == first[j] && second[i] == second[j]);
    }
}

}  // namespace
}  // namespace rapidsmpf::testing
