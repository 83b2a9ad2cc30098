#include "compute/steps.hpp"

#include <atomic>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <cudf/stream_compaction.hpp>

#include "compute/string_codes.hpp"

namespace rapidsmpf::compute {

namespace {

// Conditions on coded columns are tested first: that reads four bytes of a row, and the other conditions, and the columns that they
// read, are then those of fewer rows.
class FilterStep final : public ChunkStep {
  public:
    FilterStep(Filter plan, Expressions const& expressions) : plan_{plan}, expressions_{expressions} {
        for (auto const id : expressions_.conjuncts(plan_.mask)) {
            conditions_.push_back({id, expressions_.only_column(id)});
        }
    }

    [[nodiscard]] Chunk apply(Chunk chunk, Work& work) const override {
        std::vector<std::int32_t> by_code;
        std::vector<std::int32_t> others;
        for (auto const& [id, column] : conditions_) {
            auto const is_coded =
                column && codes_of(chunk.coding, static_cast<std::size_t>(*column)) != nullptr;
            (is_coded ? by_code : others).push_back(id);
        }
        if (by_code.empty() || others.empty() || !leaves_few_.load(std::memory_order_relaxed)) {
            keep(chunk, std::span{&plan_.mask, 1}, work);
            return chunk;
        }
        auto const rows = chunk.rows->num_rows();
        keep(chunk, by_code, work);
        if (chunk.rows->num_rows() > rows / 2) {
            leaves_few_.store(false, std::memory_order_relaxed);
        }
        keep(chunk, others, work);
        return chunk;
    }

  private:
    struct Condition {
        std::int32_t id{0};
        std::optional<std::int32_t> column;  // the only one that it depends on
    };

    void keep(Chunk& chunk, std::span<std::int32_t const> conditions, Work& work) const {
        if (chunk.rows->num_rows() > 0) {
            auto const values = expressions_.mask(conditions, chunk, work);
            chunk.rows =
                cudf::apply_retention_mask(chunk.rows->view(), values->view(), work.stream(), work.mr());
        }
    }

    Filter plan_;
    Expressions const& expressions_;
    std::vector<Condition> conditions_;
    mutable std::atomic<bool> leaves_few_{true};
};

class ProjectStep final : public ChunkStep {
  public:
    ProjectStep(Project plan, Expressions const& expressions)
        : plan_{std::move(plan)}, expressions_{expressions} {}

    [[nodiscard]] Chunk apply(Chunk chunk, Work& work) const override {
        return expressions_.project(plan_.columns, std::move(chunk), work);
    }

  private:
    Project plan_;
    Expressions const& expressions_;
};

class ProbeStep final : public ChunkStep {
  public:
    ProbeStep(Probe plan, std::shared_ptr<JoinTable const> table)
        : plan_{std::move(plan)}, table_{std::move(table)} {}

    [[nodiscard]] Chunk apply(Chunk chunk, Work& work) const override {
        return table_->probe(std::move(chunk), plan_.kind, plan_.keys, plan_.payload, work);
    }

  private:
    Probe plan_;
    std::shared_ptr<JoinTable const> table_;
};

}  // namespace

std::unique_ptr<ChunkStep> make_filter_step(Filter const& plan, Expressions const& expressions) {
    return std::make_unique<FilterStep>(plan, expressions);
}

std::unique_ptr<ChunkStep> make_project_step(Project const& plan, Expressions const& expressions) {
    return std::make_unique<ProjectStep>(plan, expressions);
}

std::unique_ptr<ChunkStep> make_probe_step(Probe const& plan, std::shared_ptr<JoinTable const> table) {
    return std::make_unique<ProbeStep>(plan, std::move(table));
}

}  // namespace rapidsmpf::compute
