#include "compute/scans_ahead.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::compute {

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
                start(pipeline, *made.emplace(pipeline, make(pipeline)).first->second);
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
            return std::move(node.mapped());
        }
        auto source = make(pipeline);
        std::erase(to_start, pipeline);
        start(pipeline, *source);
        start_next();
        return source;
    }

    Mutex mutex;
    std::atomic<std::thread::id> starting_in;  // the thread that is inside start(), with the mutex held
    std::vector<std::size_t> to_start RAPIDSMPF_GUARDED_BY(mutex);
    std::map<std::size_t, std::unique_ptr<ChunkSource>> made RAPIDSMPF_GUARDED_BY(mutex);  // and not taken
    // Whose source has something left to read.
    std::optional<std::size_t> reading RAPIDSMPF_GUARDED_BY(mutex);
    bool is_closed RAPIDSMPF_GUARDED_BY(mutex){false};
    std::function<std::unique_ptr<ChunkSource>(std::size_t)> make;
    std::function<bool()> has_room;
};

ScansAhead::ScansAhead(
    std::vector<std::size_t> pipelines, std::function<std::unique_ptr<ChunkSource>(std::size_t)> make,
    std::function<bool()> has_room)
    : state_{std::make_shared<State>()} {
    state_->to_start = std::move(pipelines);
    state_->make = std::move(make);
    state_->has_room = std::move(has_room);
}

ScansAhead::~ScansAhead() {
    std::map<std::size_t, std::unique_ptr<ChunkSource>> unused;
    {
        MutexLock const lock{state_->mutex};
        state_->is_closed = true;
        unused.swap(state_->made);
    }
    for (auto& [pipeline, source] : unused) {
        source->close();  // which may wait for a thread that is about to call advance()
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
