#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "compute/sinks.hpp"
#include "compute/string_codes.hpp"

namespace rapidsmpf::compute {

namespace {

class BuildSink final : public ResultSink {
  public:
    BuildSink(Build plan, std::vector<DataType> types, JoinUse use, std::string name, Context& context)
        : plan_{std::move(plan)},
          types_{std::move(types)},
          use_{std::move(use)},
          name_{std::move(name)},
          context_{context},
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

    // Pipelines and joins that read the rows read strings.
    [[nodiscard]] bool takes_coded() const override { return !use_.rows; }

    void take(Chunk chunk, Work& work) override {
        if (chunk.rows->num_rows() == 0) {
            return;
        }
        chunk.coding = select_coding(chunk.coding, kept_);
        chunk.rows = keep_columns(std::move(chunk.rows), kept_);
        held_.add(std::move(chunk), work);
    }

    void finish(Work& work) override {
        held_.put_in_order();
        if (auto const parts = num_parts(); parts > 1) {
            cut(parts, work);
            return;
        }
        auto chunks = held_.take_all_coded(work);
        auto rows =
            chunks.empty()
                ? Chunk{empty_table(kept_types_), 0, {}}
                : concatenate(std::move(chunks), (name_ + ": the build side of a join").c_str(), work);
        table_ = std::make_shared<JoinTable const>(
            std::move(rows), places_, plan_.keys, plan_.nulls_equal, ways(), work);
    }

    [[nodiscard]] PipelineResult result() override { return {nullptr, std::move(table_), std::move(parts_)}; }

  private:
    // How many parts the rows are to be in, so that one of them with its hash table leaves half of the memory to the chunks
    // that probe it.
    [[nodiscard]] int num_parts() const {
        constexpr std::int64_t bytes_a_slot{16};
        auto const tables = (use_.matches ? 1 : 0) + (use_.filters ? 1 : 0);
        auto const needed = static_cast<double>(held_.bytes())
                            + static_cast<double>(tables) * static_cast<double>(held_.rows() * bytes_a_slot);
        auto const parts = needed / (static_cast<double>(context_.memory().limit()) / 2);
        return use_.rows || parts <= 1 ? 1 : static_cast<int>(parts) + 1;
    }

    [[nodiscard]] JoinTable::Ways ways() const {
        return {use_.matches, use_.filters, !use_.rows && context_.settings().string_codes};
    }

    void cut(int count, Work& work) {
        std::vector<std::int32_t> keys;
        for (auto const key : plan_.keys) {
            keys.push_back(places_.at(static_cast<std::size_t>(key)).value());
        }
        RowParts parts{context_, count};
        for (std::size_t i = 0; i < held_.size(); ++i) {
            parts.add({held_.take(i, work), i}, keys, work);
        }
        parts_ = std::make_shared<JoinParts const>(
            std::move(parts), kept_types_, places_, plan_.keys, plan_.nulls_equal, ways(), name_);
    }

    Build plan_;
    std::vector<DataType> types_;
    JoinUse use_;
    std::string name_;
    std::vector<std::optional<std::int32_t>> places_;  // of the columns in what is kept
    std::vector<std::int32_t> kept_;
    std::vector<DataType> kept_types_;
    Context& context_;
    HeldRows held_;
    std::shared_ptr<JoinTable const> table_;
    std::shared_ptr<JoinParts const> parts_;
};

}  // namespace

std::unique_ptr<ResultSink> make_build_sink(
    Build const& plan, std::vector<DataType> types, JoinUse use, std::string name, Context& context) {
    return std::make_unique<BuildSink>(plan, std::move(types), std::move(use), std::move(name), context);
}

}  // namespace rapidsmpf::compute
