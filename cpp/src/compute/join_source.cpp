#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include <cudf/join/join.hpp>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>

#include "compute/sources.hpp"

namespace rapidsmpf::compute {

namespace {

// One table with all rows of a result.
TablePtr whole(JoinSide side, char const* what, Work& work) {
    if (side.result.join) {
        return std::make_unique<cudf::table>(side.result.join->view(), work.stream(), work.mr());
    }
    auto& rows = *side.result.rows;
    if (side.last == LastUse::yes) {
        return concatenate(rows.take_all(work), what, work);
    }
    std::vector<TablePtr> copies;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        copies.push_back(rows.copy(i, 0, rows.rows_of(i), work));
    }
    return concatenate(std::move(copies), what, work);
}

class JoinSource final : public ChunkSource {
  public:
    JoinSource(FromJoin plan, JoinSide left, JoinSide right, std::size_t chunk_rows, std::string name)
        : plan_{std::move(plan)},
          left_side_{std::move(left)},
          right_side_{std::move(right)},
          chunk_rows_{static_cast<std::int64_t>(std::max<std::size_t>(chunk_rows, 1))},
          name_{std::move(name)} {
        RAPIDSMPF_EXPECTS(
            plan_.kind == JoinKind::full || plan_.kind == JoinKind::cross,
            name_ + ": only full and cross joins take both sides whole", std::invalid_argument);
    }

    [[nodiscard]] std::optional<Chunk> next(Work& work) override {
        prepare(work);
        auto const block = next_.fetch_add(1, std::memory_order_relaxed);
        if (block >= blocks_) {
            return std::nullopt;
        }
        Chunk chunk;
        chunk.sequence = static_cast<std::uint64_t>(block);
        chunk.rows = plan_.kind == JoinKind::full ? full_block(block, work) : cross_block(block, work);
        return chunk;
    }

    void close() noexcept override {
        left_map_.reset();
        right_map_.reset();
        left_.reset();
        right_.reset();
        left_side_ = {};
        right_side_ = {};
    }

  private:
    // By the thread that comes first; the others wait for it.
    void prepare(Work& work) {
        MutexLock const lock{mutex_};
        if (prepared_) {
            return;
        }
        left_ = whole(std::exchange(left_side_, {}), (name_ + ": the left side of the join").c_str(), work);
        right_ =
            whole(std::exchange(right_side_, {}), (name_ + ": the right side of the join").c_str(), work);
        auto const rows = [](TablePtr const& table) { return static_cast<std::int64_t>(table->num_rows()); };
        if (plan_.kind == JoinKind::full) {
            std::tie(left_map_, right_map_) = cudf::full_join(
                select(left_->view(), plan_.left_keys), select(right_->view(), plan_.right_keys),
                plan_.nulls_equal ? cudf::null_equality::EQUAL : cudf::null_equality::UNEQUAL, work.stream(),
                work.mr());
            auto const joined = static_cast<std::int64_t>(left_map_->size());
            blocks_ = (joined + chunk_rows_ - 1) / chunk_rows_;
        } else {
            right_step_ = std::clamp<std::int64_t>(rows(right_), 1, chunk_rows_);
            left_step_ = std::max<std::int64_t>(1, chunk_rows_ / right_step_);
            right_blocks_ = (rows(right_) + right_step_ - 1) / right_step_;
            blocks_ = (rows(left_) + left_step_ - 1) / left_step_ * right_blocks_;
        }
        work.synchronize();
        prepared_ = true;
    }

    [[nodiscard]] TablePtr full_block(std::int64_t block, Work& work) const {
        auto const begin = block * chunk_rows_;
        auto const size = static_cast<std::int64_t>(left_map_->size());
        auto const rows = static_cast<cudf::size_type>(std::min(chunk_rows_, size - begin));
        auto const part = [&](RowMap const& map) {
            return cudf::column_view{
                cudf::data_type{cudf::type_id::INT32}, rows, map.data() + begin, nullptr, 0};
        };
        constexpr auto nullify = cudf::out_of_bounds_policy::NULLIFY;
        return join_columns(
            gather_side(left_->view(), part(*left_map_), nullify, work),
            gather_side(right_->view(), part(*right_map_), nullify, work));
    }

    // A side without rows has nothing to gather from.
    [[nodiscard]] static TablePtr gather_side(
        cudf::table_view const& side, cudf::column_view const& map, cudf::out_of_bounds_policy bounds,
        Work& work) {
        if (side.num_rows() > 0) {
            return gather_rows(side, map, bounds, work);
        }
        std::vector<ColumnPtr> nulls;
        for (auto const& column : side) {
            nulls.push_back(null_column(column, map.size(), work));
        }
        return std::make_unique<cudf::table>(std::move(nulls));
    }

    [[nodiscard]] TablePtr cross_block(std::int64_t block, Work& work) const {
        auto const part = [&](cudf::table_view const& table, std::int64_t begin, std::int64_t step) {
            auto const end = std::min<std::int64_t>(begin + step, table.num_rows());
            return cudf::slice(
                       table, {static_cast<cudf::size_type>(begin), static_cast<cudf::size_type>(end)},
                       work.stream())
                .front();
        };
        auto const left = part(left_->view(), block / right_blocks_ * left_step_, left_step_);
        auto const right = part(right_->view(), block % right_blocks_ * right_step_, right_step_);
        return cudf::cross_join(left, right, work.stream(), work.mr());
    }

    FromJoin plan_;
    JoinSide left_side_;
    JoinSide right_side_;
    std::int64_t chunk_rows_;
    std::string name_;

    Mutex mutex_;
    bool prepared_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    // Written under the mutex until prepared_, and not again before close().
    TablePtr left_;
    TablePtr right_;
    std::unique_ptr<RowMap> left_map_;
    std::unique_ptr<RowMap> right_map_;
    std::int64_t left_step_{1};
    std::int64_t right_step_{1};
    std::int64_t right_blocks_{1};
    std::int64_t blocks_{0};
    std::atomic<std::int64_t> next_{0};
};

}  // namespace

std::unique_ptr<ChunkSource> make_join_source(
    FromJoin const& plan, JoinSide left, JoinSide right, std::size_t chunk_rows, std::string name) {
    return std::make_unique<JoinSource>(plan, std::move(left), std::move(right), chunk_rows, std::move(name));
}

}  // namespace rapidsmpf::compute
