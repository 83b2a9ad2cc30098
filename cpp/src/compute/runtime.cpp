#include <rapidsmpf/compute/detail/runtime.hpp>

#include <algorithm>
#include <list>
#include <new>
#include <utility>
#include <variant>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/device/detail/cuda_check.hpp>

#include "compute/admission.hpp"
#include "compute/context.hpp"
#include "compute/expression.hpp"
#include "compute/pipeline.hpp"
#include "compute/result.hpp"
#include "compute/scan/parquet_source.hpp"
#include "compute/scans_ahead.hpp"
#include "compute/sinks.hpp"
#include "compute/sources.hpp"
#include "compute/steps.hpp"

namespace rapidsmpf::compute {

namespace {

template <typename... Functions>
struct Overloaded : Functions... {
    using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

std::vector<Work> works_of(Context& context, Context::Streams const& streams) {
    std::vector<Work> works;
    for (auto* const stream : streams.get()) {
        works.emplace_back(context, stream);
    }
    return works;
}

std::string sink_name(Sink const& sink) {
    static constexpr char const* names[] = {"build", "group", "sort", "distinct", "hold"};
    return names[sink.index()];
}

std::string source_name(Source const& source) {
    return std::visit(
        Overloaded{
            [](ParquetScan const&) -> std::string { return "parquet"; },
            [](FromInput const&) -> std::string { return "input"; },
            [](FromPipeline const& from) { return "pipeline " + std::to_string(from.pipeline); },
            [](FromJoin const&) -> std::string { return "join"; }},
        source);
}

// The earlier pipelines whose results a pipeline reads, one entry for each time.
std::vector<std::size_t> reads_of(Pipeline const& pipeline) {
    std::vector<std::size_t> reads;
    auto const add = [&reads](std::int32_t number) { reads.push_back(static_cast<std::size_t>(number)); };
    if (auto const* const from = std::get_if<FromPipeline>(&pipeline.source)) {
        add(from->pipeline);
    } else if (auto const* const join = std::get_if<FromJoin>(&pipeline.source)) {
        add(join->left);
        add(join->right);
    }
    for (auto const& step : pipeline.steps) {
        if (auto const* const probe = std::get_if<Probe>(&step)) {
            add(probe->build);
        }
    }
    return reads;
}

// One run of a program.
class Run {
  public:
    Run(std::shared_ptr<Context> context, Program program, std::vector<std::shared_ptr<TableReader>> inputs,
        std::function<void()> poll, StopFlag const& stop)
        : context_{std::move(context)},
          program_{std::move(program)},
          inputs_{std::move(inputs)},
          stop_{stop},
          streams_{*context_, std::max<std::size_t>(context_->settings().threads, 1)},
          ahead_streams_{*context_, context_->settings().scan_ahead ? context_->settings().threads_ahead : 0},
          crew_{
              works_of(*context_, streams_),
              {[this] { context_->enter_thread(); },
               [](Work& work) {
                   end_chunk();
                   work.synchronize();
               },
               std::move(poll)}} {
        auto const count = program_.pipelines.size();
        results_.resize(count);
        uses_.resize(count);
        joins_.resize(count);
        for (auto const& pipeline : program_.pipelines) {
            for (auto const number : reads_of(pipeline)) {
                ++uses_[number];
            }
            note_joins(pipeline);
        }
        ++uses_[count - 1];  // what the program gives
        if (context_->settings().scan_ahead) {
            scans_ahead_ = make_scans_ahead();
        }
        auto const& last = program_.pipelines.back();
        RAPIDSMPF_EXPECTS(
            !std::holds_alternative<Build>(last.sink), "the last pipeline of a program must not build",
            std::invalid_argument);
    }

    // The rows of the last pipeline.
    [[nodiscard]] std::shared_ptr<HeldRows> run() {
        if (scans_ahead_) {
            scans_ahead_->advance();
        }
        crew_.run_once([this](Work& work) { expressions_ = std::make_unique<Expressions>(program_, work); });
        for (std::size_t i = 0; i < program_.pipelines.size(); ++i) {
            auto const name =
                "pipeline " + std::to_string(i) + " (" + sink_name(program_.pipelines[i].sink) + ")";
            try {
                run_one(i, name);
            } catch (std::bad_alloc const& error) {
                throw OutOfMemory{name + ": " + error.what()};
            }
        }
        crew_.run_once([this](Work&) { expressions_.reset(); });
        return std::move(results_.back().rows);
    }

    [[nodiscard]] std::vector<PipelineStatistics> take_statistics() { return std::move(statistics_); }

  private:
    void note_joins(Pipeline const& pipeline) {
        auto const read_whole = [this](std::int32_t number) {
            joins_[static_cast<std::size_t>(number)].rows = true;
        };
        if (auto const* const from = std::get_if<FromPipeline>(&pipeline.source)) {
            read_whole(from->pipeline);
        } else if (auto const* const join = std::get_if<FromJoin>(&pipeline.source)) {
            read_whole(join->left);
            read_whole(join->right);
        }
        for (auto const& step : pipeline.steps) {
            auto const* const probe = std::get_if<Probe>(&step);
            if (probe == nullptr) {
                continue;
            }
            auto& use = joins_[static_cast<std::size_t>(probe->build)];
            auto const filters = probe->kind == JoinKind::semi || probe->kind == JoinKind::anti;
            use.filters = use.filters || filters;
            use.matches = use.matches || !filters;
            for (auto const column : probe->payload) {
                auto const place = static_cast<std::size_t>(column);
                use.payload.resize(std::max(use.payload.size(), place + 1));
                use.payload[place] = true;
            }
        }
    }

    [[nodiscard]] LastUse last_use(std::int32_t number) const {
        return uses_[static_cast<std::size_t>(number)] == 1 ? LastUse::yes : LastUse::no;
    }

    [[nodiscard]] JoinSide side(std::int32_t number) const {
        return {results_[static_cast<std::size_t>(number)], last_use(number)};
    }

    [[nodiscard]] std::unique_ptr<ChunkSource> make_scan(ParquetScan const& scan) const {
        return make_parquet_source(scan, context_->scanning());
    }

    [[nodiscard]] std::unique_ptr<ScansAhead> make_scans_ahead() const {
        std::vector<std::size_t> scans;
        for (std::size_t i = 0; i < program_.pipelines.size(); ++i) {
            if (std::holds_alternative<ParquetScan>(program_.pipelines[i].source)) {
                scans.push_back(i);
            }
        }
        // What is read ahead is never more than an eighth of the memory (ScanSettings::bytes_in_flight).
        return std::make_unique<ScansAhead>(
            std::move(scans),
            [this](std::size_t i) { return make_scan(std::get<ParquetScan>(program_.pipelines[i].source)); },
            [this] {
                // What the cache has goes when something else needs the memory.
                auto const needed =
                    context_->memory().in_use() - static_cast<std::int64_t>(context_->cached_bytes());
                return needed <= context_->memory().limit() / 2;
            },
            ScansAhead::Makers{
                .works = works_of(*context_, ahead_streams_),
                .enter = [this] { context_->enter_thread(); },
                .handover = {
                    .finish = [](Work& work) { work.synchronize(); },
                    .adopt =
                        [](Chunk chunk, Work& work) {
                            chunk.rows = adopt(std::move(chunk.rows), work.stream());
                            return chunk;
                        }}});
    }

    [[nodiscard]] std::unique_ptr<ChunkSource> make_source(std::size_t number, std::string const& name) {
        auto const& source = program_.pipelines[number].source;
        auto const chunk_rows = context_->settings().chunk_rows;
        return std::visit(
            Overloaded{
                [&](ParquetScan const& scan) {
                    return scans_ahead_ ? scans_ahead_->take(number) : make_scan(scan);
                },
                [&](FromInput const& from) {
                    return make_input_source(inputs_.at(static_cast<std::size_t>(from.input)), chunk_rows);
                },
                [&](FromPipeline const& from) {
                    return make_held_source(
                        results_[static_cast<std::size_t>(from.pipeline)], last_use(from.pipeline),
                        chunk_rows);
                },
                [&](FromJoin const& join) {
                    return make_join_source(join, side(join.left), side(join.right), chunk_rows, name);
                }},
            source);
    }

    // Bytes that the first chunks of a source may take with what operators make of them.
    [[nodiscard]] std::int64_t first_guess(Source const& source, ChunkSource const& made) const {
        constexpr std::int64_t times{3};
        if (std::holds_alternative<ParquetScan>(source)) {
            return times * made.most_bytes();
        }
        if (auto const* const from = std::get_if<FromPipeline>(&source)) {
            auto const& result = results_[static_cast<std::size_t>(from->pipeline)];
            auto const rows = std::max<std::int64_t>(result.num_rows(), 1);
            auto const chunk = std::min(rows, static_cast<std::int64_t>(context_->settings().chunk_rows));
            return static_cast<std::int64_t>(
                times * static_cast<double>(result.num_bytes()) / static_cast<double>(rows)
                * static_cast<double>(chunk));
        }
        return 0;
    }

    // The build side of a step that is probed part by part; null for any other.
    [[nodiscard]] std::shared_ptr<JoinParts const> parts_of(Step const& step) const {
        auto const* const probe = std::get_if<Probe>(&step);
        return probe != nullptr ? results_[static_cast<std::size_t>(probe->build)].parts : nullptr;
    }

    [[nodiscard]] std::unique_ptr<ChunkStep> make_step(Step const& step) const {
        return std::visit(
            Overloaded{
                [&](Filter const& plan) { return make_filter_step(plan, *expressions_); },
                [&](Project const& plan) { return make_project_step(plan, *expressions_); },
                [&](Probe const& plan) {
                    auto const& table = results_[static_cast<std::size_t>(plan.build)].join;
                    RAPIDSMPF_EXPECTS(
                        table != nullptr,
                        "pipeline " + std::to_string(plan.build) + " is probed and does not build",
                        std::invalid_argument);
                    return make_probe_step(plan, table);
                }},
            step);
    }

    // Takes the source's chunks through `steps` into the sink. Where one of them probes parts, this partitions what comes
    // before it into such parts first, and then does the rest part by part. `begun`: the first of `steps`, if it is there already.
    [[nodiscard]] PipelineCounts run_steps(
        ChunkSource& source, std::span<Step const> steps, std::unique_ptr<ChunkStep> begun,
        ResultSink& sink) {
        std::vector<std::unique_ptr<ChunkStep>> made;
        std::size_t next{0};
        if (begun) {
            made.push_back(std::move(begun));
            ++next;
        }
        for (; next < steps.size() && !parts_of(steps[next]); ++next) {
            made.push_back(make_step(steps[next]));
        }
        if (next == steps.size()) {
            return pull_chunks(source, made, sink, crew_, stop_);
        }
        auto const& probe = std::get<Probe>(steps[next]);
        auto const build = parts_of(steps[next]);
        PartsSink cut{*context_, build->count(), probe.keys};
        auto counts = pull_chunks(source, made, cut, crew_, stop_);
        counts.rows_sunk = 0;
        for (int part = 0; part < build->count() && !sink.has_enough(); ++part) {
            std::shared_ptr<JoinTable const> table;
            crew_.run_once([&](Work& work) { table = build->build(part, work); });
            auto const rows = cut.parts().part(part);
            cut.parts().drop(part);
            auto const chunks = admit(
                make_held_source({rows, nullptr, nullptr}, LastUse::yes, context_->settings().chunk_rows),
                context_->memory(), 0);
            auto const more =
                run_steps(*chunks, steps.subspan(next), make_probe_step(probe, std::move(table)), sink);
            counts.seconds += more.seconds;
            counts.source_seconds += more.source_seconds;
            counts.step_seconds += more.step_seconds;
            counts.sink_seconds += more.sink_seconds;
            counts.rows_sunk += more.rows_sunk;
        }
        return counts;
    }

    // Part by part the rows come in another order. The runtime promises an order only after left joins that find one row at
    // most for each row.
    void check_order(Pipeline const& pipeline, std::string const& name) const {
        auto const* const hold = std::get_if<Hold>(&pipeline.sink);
        auto const in_order = hold != nullptr && hold->in_order;
        for (auto const& step : pipeline.steps) {
            auto const* const probe = std::get_if<Probe>(&step);
            if (in_order && probe != nullptr && probe->kind == JoinKind::left && parts_of(step)) {
                throw OutOfMemory{
                    name + ": the build side of a left join that keeps the order of its rows has "
                    + config::format_bytes(static_cast<std::size_t>(parts_of(step)->num_bytes()))
                    + ", too many for the device's memory"};
            }
        }
    }

    [[nodiscard]] std::unique_ptr<ResultSink> make_sink(std::size_t number, std::string const& name) {
        auto const& pipeline = program_.pipelines[number];
        auto const& types = pipeline.types;
        return std::visit(
            Overloaded{
                [&](Build const& plan) {
                    return make_build_sink(plan, types, joins_[number], name, *context_);
                },
                [&](Group const& plan) { return make_group_sink(plan, types, name, *context_); },
                [&](Sort const& plan) { return make_sort_sink(plan, types, name, *context_); },
                [&](Distinct const& plan) { return make_distinct_sink(plan, types, name, *context_); },
                [&](Hold const& plan) { return make_hold_sink(plan, types, name, *context_); }},
            pipeline.sink);
    }

    void run_one(std::size_t number, std::string const& name) {
        auto const& pipeline = program_.pipelines[number];
        auto made = make_source(number, name);
        auto const guess = first_guess(pipeline.source, *made);
        auto source = admit(std::move(made), context_->memory(), guess);
        if (scans_ahead_) {
            scans_ahead_->advance();
        }
        auto sink = make_sink(number, name);
        check_order(pipeline, name);
        auto counts = run_steps(*source, pipeline.steps, nullptr, *sink);
        finish_sink(*sink, crew_, counts);
        results_[number] = sink->result();
        sink.reset();
        source.reset();
        if (scans_ahead_) {
            scans_ahead_->end(number);
        }
        for (auto const read : reads_of(pipeline)) {
            if (--uses_[read] == 0) {
                results_[read] = {};
            }
        }
        PipelineStatistics statistics;
        statistics.seconds = counts.seconds;
        statistics.source_seconds = counts.source_seconds;
        statistics.step_seconds = counts.step_seconds;
        statistics.sink_seconds = counts.sink_seconds;
        statistics.chunks = counts.chunks;
        statistics.rows_in = counts.rows_in;
        statistics.rows_sunk = counts.rows_sunk;
        statistics.rows_out = results_[number].num_rows();
        statistics.bytes_out = results_[number].num_bytes();
        statistics.source = source_name(pipeline.source);
        statistics.sink = sink_name(pipeline.sink);
        statistics_.push_back(std::move(statistics));
        if (uses_[number] == 0) {
            results_[number] = {};
        }
    }

    std::shared_ptr<Context> context_;
    Program program_;
    std::vector<std::shared_ptr<TableReader>> inputs_;
    StopFlag const& stop_;
    Context::Streams streams_;
    Context::Streams ahead_streams_;
    std::unique_ptr<Expressions> expressions_;
    std::vector<PipelineResult> results_;
    std::vector<std::size_t> uses_;  // of each result, by pipelines that have not run
    std::vector<JoinUse> joins_;
    std::vector<PipelineStatistics> statistics_;
    Crew crew_;                                // ends before what its threads work on
    std::unique_ptr<ScansAhead> scans_ahead_;  // null: each scan starts with its pipeline
};

}  // namespace

struct Runtime::Runs {
    Mutex mutex;
    ConditionVariable ended;
    std::list<StopFlag> flags RAPIDSMPF_GUARDED_BY(mutex);  // of present runs

    // Present as long as it lives.
    class Entry {
      public:
        explicit Entry(Runs& runs) : runs_{runs} {
            MutexLock const lock{runs_.mutex};
            flag_ = runs_.flags.emplace(runs_.flags.end());
        }
        ~Entry() {
            MutexLock const lock{runs_.mutex};
            runs_.flags.erase(flag_);
            runs_.ended.notify_all();
        }
        Entry(Entry const&) = delete;
        Entry& operator=(Entry const&) = delete;
        [[nodiscard]] StopFlag const& flag() const noexcept { return *flag_; }

      private:
        Runs& runs_;
        std::list<StopFlag>::iterator flag_;
    };
};

Runtime::Runtime(std::shared_ptr<BufferResource> resource, RuntimeSettings settings)
    : runs_{std::make_unique<Runs>()} {
    RAPIDSMPF_EXPECTS(resource != nullptr, "a runtime needs a BufferResource", std::invalid_argument);
    RAPIDSMPF_EXPECTS(settings.threads > 0, "a runtime needs at least one thread", std::invalid_argument);
    context_ = std::make_shared<Context>(std::move(resource), settings);
}

Runtime::~Runtime() {
    UniqueLock lock{runs_->mutex};
    runs_->ended.wait(lock, [this]() RAPIDSMPF_REQUIRES(runs_->mutex) { return runs_->flags.empty(); });
}

std::shared_ptr<Result> Runtime::run(
    Program program, std::vector<std::shared_ptr<TableReader>> inputs, std::function<void()> poll) {
    program.check();
    device::detail::OnDevice const here{context_->device()};
    RAPIDSMPF_EXPECTS(!program.pipelines.empty(), "a program has no pipelines", std::invalid_argument);
    auto const types = program.pipelines.back().types;
    Runs::Entry const entry{*runs_};
    Run run{context_, std::move(program), std::move(inputs), std::move(poll), entry.flag()};
    auto rows = run.run();
    auto state = std::make_unique<Result::State>(context_, std::move(rows), types);
    state->pipelines = run.take_statistics();
    return std::shared_ptr<Result>(new Result{std::move(state)});
}

void Runtime::cancel() noexcept {
    MutexLock const lock{runs_->mutex};
    for (auto& flag : runs_->flags) {
        flag.stop();
    }
}

std::int64_t Runtime::device_bytes() const noexcept {
    return context_->memory().in_use();
}

std::int64_t Runtime::device_peak_bytes() const noexcept {
    return context_->memory().peak();
}

std::size_t Runtime::registered_bytes() const {
    return context_->files().registered_bytes();
}

std::size_t Runtime::cached_bytes() const {
    return context_->cached_bytes();
}

std::size_t Runtime::release_unused() {
    return context_->files().release_unused(static_cast<std::size_t>(-1));
}

}  // namespace rapidsmpf::compute
