#include "compute/scans_ahead.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::compute {

namespace {

// A source that threads which work ahead know, too.
class Taken final : public ChunkSource {
  public:
    explicit Taken(std::shared_ptr<MadeAhead> source) : source_{std::move(source)} {}
    [[nodiscard]] std::optional<Chunk> next(Work& work) override { return source_->next(work); }
    [[nodiscard]] std::int64_t most_bytes() const override { return source_->most_bytes(); }
    void close() noexcept override { source_->close(); }

  private:
    std::shared_ptr<MadeAhead> source_;
};

}  // namespace

struct ScansAhead::State : std::enable_shared_from_this<State> {
    void start(std::size_t pipeline, ChunkSource& source) RAPIDSMPF_REQUIRES(mutex) {
        reading = pipeline;
        starting_in.store(std::this_thread::get_id());
        try {
            source.start([self = weak_from_this(), pipeline] {
                if (auto const state = self.lock()) {
                    state->has_been_read(pipeline);
                }
            });
        } catch (...) {
            starting_in.store({});
            throw;
        }
        starting_in.store({});
    }

    // Called by a source, in any thread. One that has nothing to read calls it inside start().
    void has_been_read(std::size_t pipeline) noexcept {
        if (starting_in.load() == std::this_thread::get_id()) {
            mutex.assert_held();
            reading.reset();
        } else {
            advance(pipeline);
        }
    }

    void advance(std::optional<std::size_t> ended) noexcept {
        MutexLock const lock{mutex};
        if (ended && reading == ended) {
            reading.reset();
        }
        start_next();
    }

    // Starts scans until one has something to read, or there is no room.
    void start_next() noexcept RAPIDSMPF_REQUIRES(mutex) {
        while (!is_closed && !reading && !to_start.empty()) {
            auto const pipeline = to_start.front();
            try {
                if (!has_room()) {
                    return;
                }
                to_start.erase(to_start.begin());
                auto source =
                    std::make_shared<MadeAhead>(make(pipeline), makers.most_chunks, makers.handover);
                start(pipeline, *made.emplace(pipeline, std::move(source)).first->second);
                changed.notify_all();
            } catch (...) {
                // take() makes the source anew, and throws what is wrong.
                made.erase(pipeline);
                reading.reset();
                return;
            }
        }
    }

    [[nodiscard]] std::unique_ptr<ChunkSource> take(std::size_t pipeline) {
        MutexLock const lock{mutex};
        if (auto node = made.extract(pipeline)) {
            return std::make_unique<Taken>(std::move(node.mapped()));
        }
        auto source = make(pipeline);
        std::erase(to_start, pipeline);
        start(pipeline, *source);
        start_next();
        return source;
    }

    // Makes chunks of the scans that are being read, those of the first pipeline first, until all ends.
    void make_chunks(Work& work) {
        makers.enter();
        UniqueLock lock{mutex};
        while (!is_closed) {
            auto const next = std::ranges::find_if(made, [this](auto const& each) {
                mutex.assert_held();
                return !made_enough.contains(each.first);
            });
            if (next == made.end()) {
                changed.wait(lock);
            } else if (!has_room()) {
                changed.wait_for(lock, std::chrono::milliseconds{1});
            } else {
                auto const [pipeline, source] = *next;
                lock.unlock();
                auto const goes_on = source->make_one(work);
                lock.lock();
                if (!goes_on) {
                    made_enough.insert(pipeline);
                }
            }
        }
    }

    Makers makers;
    Mutex mutex;
    ConditionVariable changed;
    std::set<std::size_t> made_enough RAPIDSMPF_GUARDED_BY(mutex);  // of which nothing more is made ahead
    std::atomic<std::thread::id> starting_in;  // the thread that is inside start(), with the mutex held
    std::vector<std::size_t> to_start RAPIDSMPF_GUARDED_BY(mutex);
    std::map<std::size_t, std::shared_ptr<MadeAhead>> made RAPIDSMPF_GUARDED_BY(mutex);  // and not taken
    // Whose source has something left to read.
    std::optional<std::size_t> reading RAPIDSMPF_GUARDED_BY(mutex);
    bool is_closed RAPIDSMPF_GUARDED_BY(mutex){false};
    std::function<std::unique_ptr<ChunkSource>(std::size_t)> make;
    std::function<bool()> has_room;
};

ScansAhead::ScansAhead(
    std::vector<std::size_t> pipelines, std::function<std::unique_ptr<ChunkSource>(std::size_t)> make,
    std::function<bool()> has_room, Makers makers)
    : state_{std::make_shared<State>()} {
    state_->to_start = std::move(pipelines);
    state_->make = std::move(make);
    state_->has_room = std::move(has_room);
    state_->makers = std::move(makers);
    // A program of one scan has nothing to make ahead.
    if (state_->to_start.size() > 1) {
        for (auto& work : state_->makers.works) {
            threads_.emplace_back([state = state_.get(), &work] { state->make_chunks(work); });
        }
    }
}

ScansAhead::~ScansAhead() {
    std::map<std::size_t, std::shared_ptr<MadeAhead>> unused;
    {
        MutexLock const lock{state_->mutex};
        state_->is_closed = true;
        unused.swap(state_->made);
        state_->changed.notify_all();
    }
    for (auto& [pipeline, source] : unused) {
        source->close();  // which may wait for a thread that is about to call advance()
    }
    for (auto& thread : threads_) {
        thread.join();
    }
}

void ScansAhead::advance() noexcept {
    state_->advance(std::nullopt);
}

void ScansAhead::end(std::size_t pipeline) noexcept {
    state_->advance(pipeline);
}

std::unique_ptr<ChunkSource> ScansAhead::take(std::size_t pipeline) {
    return state_->take(pipeline);
}

}  // namespace rapidsmpf::compute
