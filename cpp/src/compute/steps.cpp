#include "compute/steps.hpp"

#include <utility>
#include <variant>

#include <cudf/stream_compaction.hpp>

namespace rapidsmpf::compute {

namespace {

class FilterStep final : public ChunkStep {
  public:
    FilterStep(Filter plan, Expressions const& expressions) : plan_{plan}, expressions_{expressions} {}

    [[nodiscard]] Chunk apply(Chunk chunk, Work& work) const override {
        if (chunk.rows->num_rows() > 0) {
            auto const mask = expressions_.mask(plan_.mask, chunk, work);
            chunk.rows =
                cudf::apply_retention_mask(chunk.rows->view(), mask->view(), work.stream(), work.mr());
        }
        return chunk;
    }

  private:
    Filter plan_;
    Expressions const& expressions_;
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
