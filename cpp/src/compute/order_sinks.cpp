// Hold, Sort and Distinct: sinks whose result are rows of their chunks.
#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <utility>
#include <variant>

#include <cudf/sorting.hpp>
#include <cudf/stream_compaction.hpp>
#include <cudf/transform.hpp>
#include <cudf/utilities/traits.hpp>

#include <rapidsmpf/core/mutex.hpp>

#include "compute/sinks.hpp"
#include "compute/string_codes.hpp"

namespace rapidsmpf::compute {

namespace {

// The sink concatenates tables of fewer rows, because each costs later pipelines a chunk: up to so many rows, and a share of the
// device's memory.
constexpr std::int64_t small_table = 1'000'000;
constexpr std::int64_t together = 4 * small_table;
constexpr std::int64_t share_together = 32;

// The rows of a range of them, as a result.
std::shared_ptr<HeldRows> as_result(
    TablePtr table, std::optional<RowRange> const& range, Context& context, Work& work) {
    if (range) {
        auto const span = resolve(*range, table->num_rows());
        if (span.begin > 0 || span.end < table->num_rows()) {
            auto part = copy_rows(table->view(), span.begin, span.end - span.begin, work);
            work.synchronize();
            table = std::move(part);
        }
    }
    auto rows = std::make_shared<HeldRows>(context);
    rows->add({std::move(table), 0}, work);
    return rows;
}

class HoldSink final : public ResultSink {
  public:
    HoldSink(Hold plan, std::vector<DataType> types, std::string name, Context& context)
        : plan_{std::move(plan)},
          types_{std::move(types)},
          name_{std::move(name)},
          context_{context},
          held_{std::make_shared<HeldRows>(context)} {
        if (plan_.range) {
            needed_ = rows_needed(*plan_.range);
        }
    }

    void take(Chunk chunk, Work& work) override {
        auto const sequence = chunk.sequence;
        auto const rows = static_cast<std::int64_t>(chunk.rows->num_rows());
        if (rows > 0) {
            held_->add(std::move(chunk), work);
        }
        if (needed_) {
            note(sequence, rows);
        }
    }

    [[nodiscard]] bool has_enough() const override { return enough_.load(std::memory_order_acquire); }

    void finish(Work& work) override {
        if (plan_.in_order || plan_.range) {
            held_->put_in_order();
        }
        RowSpan span{0, held_->rows()};
        if (plan_.range) {
            span = resolve(*plan_.range, held_->rows());
        }
        auto const all = std::exchange(held_, std::make_shared<HeldRows>(context_));
        std::vector<TablePtr> small;
        std::int64_t small_rows{0};
        std::int64_t small_bytes{0};
        auto const most_bytes = context_.memory().limit() / share_together;
        std::uint64_t given{0};
        auto const flush = [&] {
            if (!small.empty()) {
                held_->add({concatenate(std::exchange(small, {}), name_.c_str(), work), given++}, work);
                small_rows = small_bytes = 0;
            }
        };
        std::int64_t begin{0};
        for (std::size_t i = 0; i < all->size(); ++i) {
            auto const rows = all->rows_of(i);
            auto const from = std::max(span.begin, begin);
            auto const to = std::min(span.end, begin + rows);
            if (from >= to) {
                all->drop(i);
            } else {
                auto const bytes = all->bytes_of(i);  // of all its rows
                auto part =
                    to - from == rows ? all->take(i, work) : all->copy(i, from - begin, to - from, work);
                if (to - from >= small_table || bytes >= most_bytes) {
                    flush();
                    held_->add({std::move(part), given++}, work);
                } else {
                    small.push_back(std::move(part));
                    small_rows += to - from;
                    small_bytes += bytes;
                    if (small_rows >= together || small_bytes >= most_bytes) {
                        flush();
                    }
                }
            }
            begin += rows;
        }
        flush();
        if (held_->size() == 0) {
            held_->add({empty_table(types_), 0}, work);
        }
    }

    [[nodiscard]] PipelineResult result() override { return {std::move(held_), nullptr, nullptr}; }

  private:
    // Whether the chunks from the first to one before which none is missing have enough rows.
    void note(std::uint64_t sequence, std::int64_t rows) {
        MutexLock const lock{mutex_};
        waiting_[sequence] += rows;
        for (auto next = waiting_.find(next_); next != waiting_.end(); next = waiting_.find(next_)) {
            leading_rows_ += next->second;
            waiting_.erase(next);
            ++next_;
        }
        if (leading_rows_ >= *needed_) {
            enough_.store(true, std::memory_order_release);
        }
    }

    Hold plan_;
    std::vector<DataType> types_;
    std::string name_;
    Context& context_;
    std::shared_ptr<HeldRows> held_;
    std::optional<std::int64_t> needed_;
    std::atomic<bool> enough_{false};

    Mutex mutex_;
    std::uint64_t next_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::map<std::uint64_t, std::int64_t> waiting_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::int64_t leading_rows_ RAPIDSMPF_GUARDED_BY(mutex_){0};
};

class SortSink final : public ResultSink {
  public:
    SortSink(Sort plan, std::vector<DataType> types, std::string name, Context& context)
        : plan_{std::move(plan)},
          types_{std::move(types)},
          name_{std::move(name)},
          context_{context},
          held_{context} {
        for (auto const& key : plan_.keys) {
            columns_.push_back(key.column);
            order_.push_back(key.descending ? cudf::order::DESCENDING : cudf::order::ASCENDING);
            // libcudf says where nulls are among the values, and turns that round with them when it sorts downwards.
            nulls_.push_back(
                key.nulls_first != key.descending ? cudf::null_order::BEFORE : cudf::null_order::AFTER);
        }
        if (plan_.range) {
            top_ = rows_needed(*plan_.range);
            if (top_ && *top_ > most_top_rows) {
                top_.reset();
            }
        }
    }

    void take(Chunk chunk, Work& work) override {
        if (chunk.rows->num_rows() == 0) {
            return;
        }
        if (top_ && *top_ < chunk.rows->num_rows()) {
            // No row that is behind so many others of its own chunk is in the result.
            chunk.rows = sorted(chunk.rows->view(), top_, work);
        }
        held_.add(std::move(chunk), work);
    }

    void finish(Work& work) override {
        held_.put_in_order();
        auto tables = held_.take_all(work);
        auto all = tables.empty() ? empty_table(types_) : concatenate(std::move(tables), name_.c_str(), work);
        if (all->num_rows() > 1) {
            auto result = sorted(all->view(), std::nullopt, work);
            work.synchronize();
            all = std::move(result);
        }
        result_ = as_result(std::move(all), plan_.range, context_, work);
    }

    [[nodiscard]] PipelineResult result() override { return {std::move(result_), nullptr, nullptr}; }

  private:
    static constexpr std::int64_t most_top_rows = 1'000'000;

    [[nodiscard]] TablePtr sorted(
        cudf::table_view const& rows, std::optional<std::int64_t> first, Work& work) const {
        // libcudf sorts a single float column by its bits, in which NaNs differ from each other.
        std::vector<ColumnPtr> alike;
        std::vector<cudf::column_view> views;
        for (auto const& key : select(rows, columns_)) {
            views.push_back(key);
            if (cudf::is_floating_point(key.type())) {
                views.back() =
                    *alike.emplace_back(cudf::normalize_nans_and_zeros(key, work.stream(), work.mr()));
            }
        }
        auto order = order_;
        auto nulls = nulls_;
        if (plan_.stable && views.size() == 1 && !alike.empty() && order[0] == cudf::order::DESCENDING) {
            // That sort reverses the order of NaNs when it is descending. With two keys, libcudf compares rows instead.
            views.push_back(views[0]);
            order.push_back(order[0]);
            nulls.push_back(nulls[0]);
        }
        cudf::table_view const keys{views};
        auto const map = plan_.stable
                             ? cudf::stable_sorted_order(keys, order, nulls, work.stream(), work.mr())
                             : cudf::sorted_order(keys, order, nulls, work.stream(), work.mr());
        auto view = map->view();
        if (first) {
            view = cudf::slice(view, {0, static_cast<cudf::size_type>(*first)}, work.stream()).front();
        }
        return gather_rows(rows, view, cudf::out_of_bounds_policy::DONT_CHECK, work);
    }

    Sort plan_;
    std::vector<DataType> types_;
    std::string name_;
    Context& context_;
    HeldRows held_;
    std::vector<std::int32_t> columns_;
    std::vector<cudf::order> order_;
    std::vector<cudf::null_order> nulls_;
    std::optional<std::int64_t> top_;
    std::shared_ptr<HeldRows> result_;
};

class DistinctSink final : public ResultSink {
  public:
    DistinctSink(Distinct plan, std::vector<DataType> types, std::string name, Context& context)
        : plan_{std::move(plan)},
          types_{std::move(types)},
          name_{std::move(name)},
          context_{context},
          held_{context} {
        keys_.assign(plan_.keys.begin(), plan_.keys.end());
        if (keys_.empty()) {
            keys_.resize(types_.size());
            std::iota(keys_.begin(), keys_.end(), 0);
        }
    }

    [[nodiscard]] bool takes_coded() const override { return true; }

    void take(Chunk chunk, Work& work) override {
        auto const rows = chunk.rows->num_rows();
        if (rows == 0) {
            return;
        }
        // Rows that have none of their kind are known at the end only; where few rows fall away it is left to the end, too.
        if (plan_.keep != Keep::none && reduces_.load(std::memory_order_relaxed)) {
            chunk.rows = distinct(chunk.rows->view(), work);
            if (chunk.rows->num_rows() > rows - rows / 4) {
                reduces_.store(false, std::memory_order_relaxed);
            }
        }
        decode_all(chunk, work);
        held_.add(std::move(chunk), work);
    }

    void finish(Work& work) override {
        held_.put_in_order();
        auto tables = held_.take_all(work);
        auto all = tables.empty() ? empty_table(types_) : concatenate(std::move(tables), name_.c_str(), work);
        if (all->num_rows() > 0) {
            auto result = distinct(all->view(), work);
            work.synchronize();
            all = std::move(result);
        }
        result_ = as_result(std::move(all), std::nullopt, context_, work);
    }

    [[nodiscard]] PipelineResult result() override { return {std::move(result_), nullptr, nullptr}; }

  private:
    [[nodiscard]] TablePtr distinct(cudf::table_view const& rows, Work& work) const {
        using Option = cudf::duplicate_keep_option;
        auto const option = plan_.keep == Keep::last                      ? Option::KEEP_LAST
                            : plan_.keep == Keep::none                    ? Option::KEEP_NONE
                            : plan_.keep == Keep::first || plan_.in_order ? Option::KEEP_FIRST
                                                                          : Option::KEEP_ANY;
        if (option == Option::KEEP_ANY) {
            return cudf::distinct(
                rows, keys_, option, cudf::null_equality::EQUAL, cudf::nan_equality::ALL_EQUAL, work.stream(),
                work.mr());
        }
        return cudf::stable_distinct(
            rows, keys_, option, cudf::null_equality::EQUAL, cudf::nan_equality::ALL_EQUAL, work.stream(),
            work.mr());
    }

    Distinct plan_;
    std::vector<DataType> types_;
    std::string name_;
    Context& context_;
    HeldRows held_;
    std::vector<cudf::size_type> keys_;
    std::atomic<bool> reduces_{true};
    std::shared_ptr<HeldRows> result_;
};

}  // namespace

std::unique_ptr<ResultSink> make_hold_sink(
    Hold const& plan, std::vector<DataType> types, std::string name, Context& context) {
    return std::make_unique<HoldSink>(plan, std::move(types), std::move(name), context);
}

std::unique_ptr<ResultSink> make_sort_sink(
    Sort const& plan, std::vector<DataType> types, std::string name, Context& context) {
    return std::make_unique<SortSink>(plan, std::move(types), std::move(name), context);
}

std::unique_ptr<ResultSink> make_distinct_sink(
    Distinct const& plan, std::vector<DataType> types, std::string name, Context& context) {
    return std::make_unique<DistinctSink>(plan, std::move(types), std::move(name), context);
}

}  // namespace rapidsmpf::compute
