#include "compute/pipeline.hpp"

#include <chrono>
#include <utility>
#include <variant>

#include <rapidsmpf/compute/detail/runtime.hpp>

#include "compute/string_codes.hpp"

namespace rapidsmpf::compute {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

// Python's lock is taken for it: not at all in queries that take less.
constexpr std::chrono::seconds poll_every{1};

std::int64_t rows_of(Chunk const& chunk) {
    return chunk.rows ? chunk.rows->num_rows() : 0;
}

}  // namespace

void StopFlag::check() const {
    if (is_stopped()) {
        throw Cancelled{"the program was cancelled"};
    }
}

Crew::Crew(std::vector<Work> works, Hooks hooks) : works_{std::move(works)}, hooks_{std::move(hooks)} {
    threads_.reserve(works_.size());
    try {
        for (std::size_t i = 0; i < works_.size(); ++i) {
            threads_.emplace_back([this, i] { work(i); });
        }
    } catch (...) {
        {
            MutexLock const lock{mutex_};
            ending_ = true;
        }
        changed_.notify_all();
        for (auto& thread : threads_) {
            thread.join();
        }
        throw;
    }
}

Crew::~Crew() {
    {
        MutexLock const lock{mutex_};
        ending_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) {
        thread.join();
    }
}

void Crew::fail(std::exception_ptr error) noexcept {
    std::function<void()> const* tell{nullptr};
    {
        MutexLock const lock{mutex_};
        if (!error_) {
            error_ = std::move(error);
            tell = on_error_;
        }
    }
    if (tell != nullptr && *tell) {
        (*tell)();
    }
}

void Crew::work(std::size_t thread) {
    std::exception_ptr not_started;
    if (hooks_.start) {
        try {
            hooks_.start();
        } catch (...) {
            not_started = std::current_exception();
        }
    }
    std::uint64_t done{0};
    UniqueLock lock{mutex_};
    for (;;) {
        changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return ending_ || round_ != done; });
        if (round_ == done) {
            return;
        }
        done = round_;
        auto const& task = *task_;
        lock.unlock();
        try {
            if (not_started) {
                std::rethrow_exception(not_started);
            }
            task(thread, works_[thread]);
        } catch (...) {
            fail(std::current_exception());
        }
        if (hooks_.after && !not_started) {
            try {
                hooks_.after(works_[thread]);
            } catch (...) {
                fail(std::current_exception());
            }
        }
        lock.lock();
        if (--busy_ == 0) {
            changed_.notify_all();
        }
    }
}

void Crew::run(Task const& task, std::function<void()> const& on_error) {
    UniqueLock lock{mutex_};
    task_ = &task;
    on_error_ = &on_error;
    error_ = nullptr;
    busy_ = works_.size();
    ++round_;
    changed_.notify_all();
    auto const all_done = [this]() RAPIDSMPF_REQUIRES(mutex_) { return busy_ == 0; };
    bool polls = static_cast<bool>(hooks_.poll);
    while (!all_done()) {
        if (!polls) {
            changed_.wait(lock, all_done);
        } else if (!changed_.wait_for(lock, poll_every, all_done)) {
            lock.unlock();
            try {
                hooks_.poll();
            } catch (...) {
                polls = false;  // the run ends; asking again would only repeat it
                fail(std::current_exception());
            }
            lock.lock();
        }
    }
    task_ = nullptr;
    on_error_ = nullptr;
    if (error_) {
        std::rethrow_exception(std::exchange(error_, nullptr));
    }
}

void Crew::run_once(std::function<void(Work& work)> const& task) {
    run(
        [&](std::size_t thread, Work& work) {
            if (thread == 0) {
                task(work);
            }
        },
        {});
}

PipelineCounts pull_chunks(
    ChunkSource& source, std::span<std::unique_ptr<ChunkStep> const> steps, ChunkSink& sink, Crew& crew,
    StopFlag const& stop) {
    struct {
        Mutex mutex;
        PipelineCounts counts RAPIDSMPF_GUARDED_BY(mutex);
    } total;
    std::atomic<bool> ended{false};
    auto const begin = Clock::now();

    auto const pull = [&](std::size_t /*thread*/, Work& work) {
        PipelineCounts own;
        auto now = Clock::now();
        auto const lap = [&now](double& sum) {
            auto const then = std::exchange(now, Clock::now());
            sum += seconds_between(then, now);
        };
        while (!ended.load(std::memory_order_relaxed)) {
            stop.check();
            auto chunk = source.next(work);
            lap(own.source_seconds);
            if (!chunk) {
                break;
            }
            ++own.chunks;
            own.rows_in += rows_of(*chunk);
            for (auto const& step : steps) {
                chunk = step->apply(std::move(*chunk), work);
            }
            if (!sink.takes_coded()) {
                decode_all(*chunk, work);
            }
            lap(own.step_seconds);
            own.rows_sunk += rows_of(*chunk);
            sink.take(std::move(*chunk), work);
            if (sink.has_enough()) {
                ended.store(true, std::memory_order_relaxed);
            }
            lap(own.sink_seconds);
        }
        MutexLock const lock{total.mutex};
        total.counts.source_seconds += own.source_seconds;
        total.counts.step_seconds += own.step_seconds;
        total.counts.sink_seconds += own.sink_seconds;
        total.counts.chunks += own.chunks;
        total.counts.rows_in += own.rows_in;
        total.counts.rows_sunk += own.rows_sunk;
    };
    try {
        crew.run(pull, [&ended] { ended.store(true, std::memory_order_relaxed); });
    } catch (...) {
        source.close();
        throw;
    }
    source.close();
    stop.check();
    MutexLock const lock{total.mutex};
    total.counts.seconds = seconds_between(begin, Clock::now());
    return total.counts;
}

void finish_sink(ChunkSink& sink, Crew& crew, PipelineCounts& counts) {
    auto const begin = Clock::now();
    crew.run_once([&](Work& work) { sink.finish(work); });
    auto const seconds = seconds_between(begin, Clock::now());
    counts.sink_seconds += seconds;
    counts.seconds += seconds;
}

PipelineCounts run_pipeline(
    ChunkSource& source, std::span<std::unique_ptr<ChunkStep> const> steps, ChunkSink& sink, Crew& crew,
    StopFlag const& stop) {
    auto counts = pull_chunks(source, steps, sink, crew, stop);
    finish_sink(sink, crew, counts);
    return counts;
}

}  // namespace rapidsmpf::compute
