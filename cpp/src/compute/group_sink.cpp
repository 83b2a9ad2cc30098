// Group: chunks are aggregated each by itself and what they gave is merged at the end, or, where that would not make them
// much smaller or cannot be done, kept as they are until then.
#include <algorithm>
#include <atomic>
#include <utility>
#include <variant>

#include "compute/aggregates.hpp"
#include "compute/long_keys.hpp"
#include "compute/parts.hpp"
#include "compute/sinks.hpp"
#include "compute/string_codes.hpp"

namespace rapidsmpf::compute {

namespace {

// Rows that are aggregated at a time at the end, at most; the sink partitions more by the hash of their keys.
constexpr std::int64_t rows_at_once = 1'000'000'000;
// Their share of the device's memory, beside which there must be room for a copy, for hash tables and for results.
constexpr std::int64_t share_at_once = 6;
// A chunk of fewer rows says nothing about the others.
constexpr cudf::size_type telling_rows = 100'000;

class GroupSink final : public ResultSink {
  public:
    GroupSink(Group const& plan, std::vector<DataType> types, std::string name, Context& context)
        : plan_{plan, std::move(types)},
          long_keys_{plan_.keys_by_codes(), context.scanning().settings.coded_rows},
          name_{std::move(name)},
          context_{context},
          rows_{context},
          states_{context},
          reduces_{plan_.can_merge()} {}

    void take(Chunk chunk, Work& work) override {
        auto const count = chunk.rows->num_rows();
        if (count == 0) {
            return;
        }
        chunk = plan_.rows(std::move(chunk), work);
        long_keys_.code(chunk, work);
        if (!reduces_.load(std::memory_order_relaxed)) {
            rows_.add(std::move(chunk), work);
            return;
        }
        auto states = aggregate(std::move(chunk), work);
        if (count >= telling_rows && states.rows->num_rows() > count / 2) {
            reduces_.store(false, std::memory_order_relaxed);
        }
        states_.add(std::move(states), work);
    }

    [[nodiscard]] bool takes_coded() const override { return true; }

    void finish(Work& work) override {
        result_ = std::make_shared<HeldRows>(context_);
        if (rows_.rows() == 0 && states_.rows() == 0) {
            result_->add({plan_.result_of_nothing(work), 0}, work);
            return;
        }
        if (!plan_.can_merge()) {
            rows_.put_in_order();
            auto rows = concatenate(rows_.take_all_coded(work), name_.c_str(), work);
            give(aggregate(std::move(rows), work), work);
            work.synchronize();
            return;
        }
        if (rows_.rows() > 0) {
            aggregate_rows(work);
        }
        // If the rows were in key order, the states of all chunks are, too, once they are in the order of their chunks.
        states_.put_in_order();
        if (states_.size() == 1) {
            give(states_.take_coded(0, work), work);
        } else {
            auto const parts = std::max(states_.rows() / rows_at_once, states_.bytes() / bytes_at_once()) + 1;
            if (parts == 1 || plan_.num_keys() == 0) {
                give(merged(states_.take_all_coded(work), work), work);
            } else {
                merge_parts(static_cast<int>(parts), work);
            }
        }
        work.synchronize();
    }

    [[nodiscard]] PipelineResult result() override { return {std::move(result_), nullptr, nullptr}; }

  private:
    [[nodiscard]] std::int64_t bytes_at_once() const { return context_.memory().limit() / share_at_once; }

    // The keys and states of rows. Keys that are coded stay so.
    [[nodiscard]] Chunk aggregate(Chunk rows, Work& work) const {
        return as_states(plan_.aggregate(rows.rows->view(), work), rows);
    }

    [[nodiscard]] Chunk as_states(TablePtr states, Chunk const& of) const {
        auto coding = of.coding;
        coding.resize(std::min(coding.size(), plan_.num_keys()));
        return {std::move(states), of.sequence, std::move(coding)};
    }

    void give(Chunk states, Work& work) {
        decode_all(states, work);
        auto const sequence = result_->size();
        result_->add({plan_.result(std::move(states.rows), work), sequence}, work);
    }

    [[nodiscard]] Chunk merged(std::vector<Chunk> states, Work& work) const {
        auto const all = concatenate(std::move(states), name_.c_str(), work);
        auto result = as_states(plan_.merge(all.rows->view(), work), all);
        work.synchronize();
        return result;
    }

    // What was kept, as states of as many rows at a time as may be.
    void aggregate_rows(Work& work) {
        rows_.put_in_order();
        std::vector<Chunk> batch;
        std::int64_t count{0};
        std::int64_t bytes{0};
        auto const flush = [&] {
            if (batch.empty()) {
                return;
            }
            auto rows = concatenate(std::exchange(batch, {}), name_.c_str(), work);
            rows.sequence = 0;
            states_.add(aggregate(std::move(rows), work), work);
            count = 0;
            bytes = 0;
        };
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            auto const next = rows_.rows_of(i);
            auto const next_bytes = rows_.bytes_of(i);
            if (count + next > rows_at_once || bytes + next_bytes > bytes_at_once()) {
                flush();
            }
            batch.push_back(rows_.take_coded(i, work));
            count += next;
            bytes += next_bytes;
        }
        flush();
    }

    // Groups do not cross the borders of the parts, so each is a part of the result.
    void merge_parts(int parts, Work& work) {
        std::vector<std::int32_t> keys;
        for (std::size_t i = 0; i < plan_.num_keys(); ++i) {
            keys.push_back(static_cast<std::int32_t>(i));
        }
        RowParts by_part{context_, parts};
        for (std::size_t i = 0; i < states_.size(); ++i) {
            by_part.add({states_.take(i, work), i}, keys, work);
        }
        for (int part = 0; part < parts; ++part) {
            auto states = by_part.part(part)->take_all_coded(work);
            if (!states.empty()) {
                give(merged(std::move(states), work), work);
            }
        }
    }

    AggregatePlan plan_;
    LongKeys long_keys_;
    std::string name_;
    Context& context_;
    HeldRows rows_;    // as plan_.rows() gives them
    HeldRows states_;  // keys and states
    std::atomic<bool> reduces_;
    std::shared_ptr<HeldRows> result_;
};

}  // namespace

std::unique_ptr<ResultSink> make_group_sink(
    Group const& plan, std::vector<DataType> types, std::string name, Context& context) {
    return std::make_unique<GroupSink>(plan, std::move(types), std::move(name), context);
}

}  // namespace rapidsmpf::compute
