// A source some of whose chunks are made before its pipeline runs, by threads that work ahead.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// How a chunk goes from one thread to another.
struct Handover {
    std::function<void(Work& work)> finish;  // in the thread that has made it: waits for the work on it
    std::function<Chunk(Chunk chunk, Work& work)> adopt;  // in the thread that takes it
};

// Thread-safe.
class MadeAhead final : public ChunkSource {
  public:
    // most_chunks: that wait for the pipeline.
    MadeAhead(std::unique_ptr<ChunkSource> source, std::size_t most_chunks, Handover const& handover)
        : source_{std::move(source)}, most_chunks_{most_chunks}, handover_{handover} {}

    // Makes a chunk in a thread that works ahead. Returns false if there is nothing more to do ahead. Does not throw: next()
    // throws what was thrown here.
    [[nodiscard]] bool make_one(Work& work) noexcept;

    void start(std::function<void()> when_read) override { source_->start(std::move(when_read)); }
    [[nodiscard]] std::optional<Chunk> next(Work& work) override;
    [[nodiscard]] std::int64_t most_bytes() const override { return source_->most_bytes(); }
    // Waits for threads that work ahead.
    void close() noexcept override;

  private:
    [[nodiscard]] std::optional<Chunk> take_made() RAPIDSMPF_REQUIRES(mutex_);

    std::unique_ptr<ChunkSource> const source_;
    std::size_t const most_chunks_;
    Handover const handover_;

    Mutex mutex_;
    ConditionVariable changed_;
    std::deque<Chunk> made_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::size_t being_made_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool is_closed_ RAPIDSMPF_GUARDED_BY(mutex_){false};
};

}  // namespace rapidsmpf::compute
