#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "compute/results.hpp"

namespace rapidsmpf::compute {

namespace {

class BuildSink final : public ResultSink {
  public:
    BuildSink(Build plan, std::vector<DataType> types, JoinUse use, std::string name, Context& context)
        : plan_{std::move(plan)},
          types_{std::move(types)},
          use_{std::move(use)},
          name_{std::move(name)},
          held_{context} {
        // Only what probes ask for is kept.
        use_.payload.resize(types_.size());
        for (std::size_t column = 0; column < types_.size(); ++column) {
            auto const place = static_cast<std::int32_t>(column);
            auto const is_key = std::find(plan_.keys.begin(), plan_.keys.end(), place) != plan_.keys.end();
            if (is_key || use_.rows || use_.payload[column]) {
                places_.emplace_back(static_cast<std::int32_t>(kept_.size()));
                kept_.push_back(place);
                kept_types_.push_back(types_[column]);
            } else {
                places_.emplace_back(std::nullopt);
            }
        }
    }

    void take(Chunk chunk, Work& work) override {
        if (chunk.rows->num_rows() == 0) {
            return;
        }
        chunk.rows = keep_columns(std::move(chunk.rows), kept_);
        held_.add(std::move(chunk), work);
    }

    void finish(Work& work) override {
        held_.put_in_order();
        auto tables = held_.take_all(work);
        auto rows =
            tables.empty()
                ? empty_table(kept_types_)
                : concatenate(std::move(tables), (name_ + ": the build side of a join").c_str(), work);
        table_ = std::make_shared<JoinTable const>(
            std::move(rows), places_, plan_.keys, plan_.nulls_equal,
            JoinTable::Ways{use_.matches, use_.filters}, work);
    }

    [[nodiscard]] PipelineResult result() override { return {nullptr, std::move(table_)}; }

  private:
    Build plan_;
    std::vector<DataType> types_;
    JoinUse use_;
    std::string name_;
    std::vector<std::optional<std::int32_t>> places_;  // of the columns in what is kept
    std::vector<std::int32_t> kept_;
    std::vector<DataType> kept_types_;
    HeldRows held_;
    std::shared_ptr<JoinTable const> table_;
};

}  // namespace

std::unique_ptr<ResultSink> make_build_sink(
    Build const& plan, std::vector<DataType> types, JoinUse use, std::string name, Context& context) {
    return std::make_unique<BuildSink>(plan, std::move(types), std::move(use), std::move(name), context);
}

}  // namespace rapidsmpf::compute
