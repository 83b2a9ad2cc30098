// Runs pipelines, each by all threads of a crew: chunk by chunk from the source through the steps into the sink.
//
// Independent of what a chunk holds, so that it is tested without a GPU. The first error of any thread ends the pipeline:
// the other threads end after the chunk that they are at, and then the source is closed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// Asks a run to end. Thread-safe.
class StopFlag {
  public:
    void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
    [[nodiscard]] bool is_stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
    // Throws Cancelled if it is to end.
    void check() const;

  private:
    std::atomic<bool> stopped_{false};
};

// The threads of one run.
class Crew {
  public:
    using Task = std::function<void(std::size_t thread, Work& work)>;
    // What happens around a task in the thread that does it; may be empty. `after` also when the task has thrown: what the
    // thread began is done then. `poll` is called once a second in the thread that waits for them; what it throws is an
    // error like any other.
    struct Hooks {
        std::function<void()> start;
        std::function<void(Work& work)> after;
        std::function<void()> poll;
    };

    // A thread for each of them.
    Crew(std::vector<Work> works, Hooks hooks);
    ~Crew();
    Crew(Crew const&) = delete;
    Crew& operator=(Crew const&) = delete;

    [[nodiscard]] std::size_t size() const noexcept { return works_.size(); }
    // Does the task in each thread, and returns when all are done. `on_error` is called, in any thread, as soon as one
    // has thrown; the first exception is thrown on.
    void run(Task const& task, std::function<void()> const& on_error);
    // In one thread.
    void run_once(std::function<void(Work& work)> const& task);

  private:
    void work(std::size_t thread);
    void fail(std::exception_ptr error) noexcept;

    std::vector<Work> works_;
    Hooks hooks_;

    Mutex mutex_;
    ConditionVariable changed_;
    std::uint64_t round_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    bool ending_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::size_t busy_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    Task const* task_ RAPIDSMPF_GUARDED_BY(mutex_){nullptr};
    std::function<void()> const* on_error_ RAPIDSMPF_GUARDED_BY(mutex_){nullptr};
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::vector<std::thread> threads_;
};

struct PipelineCounts {
    double seconds{0};
    double source_seconds{0};  // summed over threads, as the next two
    double step_seconds{0};
    double sink_seconds{0};
    std::int64_t chunks{0};
    std::int64_t rows_in{0};
    std::int64_t rows_sunk{0};
};

// Gives all chunks to the sink, which is not finished then; closes the source. Throws the first error; Cancelled if `stop`
// ended it.
[[nodiscard]] PipelineCounts pull_chunks(
    ChunkSource& source, std::span<std::unique_ptr<ChunkStep> const> steps, ChunkSink& sink, Crew& crew,
    StopFlag const& stop);
// The same, and finishes the sink.
PipelineCounts run_pipeline(
    ChunkSource& source, std::span<std::unique_ptr<ChunkStep> const> steps, ChunkSink& sink, Crew& crew,
    StopFlag const& stop);
// Finishes the sink in one thread, and adds what that took.
void finish_sink(ChunkSink& sink, Crew& crew, PipelineCounts& counts);

}  // namespace rapidsmpf::compute
