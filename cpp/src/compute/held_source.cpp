#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>

#include "compute/sources.hpp"

namespace rapidsmpf::compute {

namespace {

// A part of a table, which becomes a chunk.
struct Slice {
    std::size_t table{0};
    std::int64_t begin{0};
    std::int64_t rows{0};
    bool whole{false};
};

// Divides tables of twice `chunk_rows` and more, so that all threads have something to do.
void split(std::vector<Slice>& slices, std::size_t table, std::int64_t rows, std::int64_t chunk_rows) {
    if (rows == 0) {
        return;
    }
    auto const parts = std::max<std::int64_t>(1, rows / chunk_rows);
    for (std::int64_t part = 0; part < parts; ++part) {
        auto const begin = rows * part / parts;
        slices.push_back({table, begin, rows * (part + 1) / parts - begin, parts == 1});
    }
}

class HeldSource final : public ChunkSource {
  public:
    HeldSource(PipelineResult result, LastUse last, std::size_t chunk_rows)
        : result_{std::move(result)}, last_{last} {
        auto const most = static_cast<std::int64_t>(std::max<std::size_t>(chunk_rows, 1));
        if (result_.join) {
            split(slices_, 0, result_.join->num_rows(), most);
            return;
        }
        left_.resize(result_.rows->size());
        for (std::size_t table = 0; table < left_.size(); ++table) {
            auto const before = slices_.size();
            split(slices_, table, result_.rows->rows_of(table), most);
            left_[table] = slices_.size() - before;
        }
    }

    [[nodiscard]] std::optional<Chunk> next(Work& work) override {
        auto const index = next_.fetch_add(1, std::memory_order_relaxed);
        if (index >= slices_.size()) {
            return std::nullopt;
        }
        auto const& slice = slices_[index];
        Chunk chunk;
        chunk.sequence = index;
        if (result_.join) {
            chunk.rows = copy_rows(result_.join->view(), slice.begin, slice.rows, work);
        } else if (slice.whole && last_ == LastUse::yes) {
            chunk.rows = result_.rows->take(slice.table, work);
        } else {
            chunk.rows = result_.rows->copy(slice.table, slice.begin, slice.rows, work);
            bool done{false};
            {
                MutexLock const lock{mutex_};
                done = --left_[slice.table] == 0;
            }
            if (done && last_ == LastUse::yes) {
                result_.rows->drop(slice.table);
            }
        }
        return chunk;
    }

    void close() noexcept override { result_ = PipelineResult{}; }

  private:
    PipelineResult result_;
    LastUse last_;
    std::vector<Slice> slices_;
    std::atomic<std::size_t> next_{0};
    Mutex mutex_;
    // Slices of each table that have not been read.
    std::vector<std::size_t> left_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ChunkSource> make_held_source(PipelineResult result, LastUse last, std::size_t chunk_rows) {
    return std::make_unique<HeldSource>(std::move(result), last, chunk_rows);
}

}  // namespace rapidsmpf::compute
