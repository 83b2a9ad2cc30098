#include "compute/scans_ahead.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>  // libcudf's headers need it first

namespace rapidsmpf::compute {

struct ScansAhead::State : std::enable_shared_from_this<State> {
    // With the lock held. A source that has nothing to read says so in this call: hence the recursive lock.
    void start(std::size_t pipeline, ChunkSource& source) {
        reading = pipeline;
        source.start([self = weak_from_this(), pipeline] {
            if (auto const state = self.lock()) {
                state->advance(pipeline);
            }
        });
    }

    void advance(std::optional<std::size_t> ended) noexcept {
        std::lock_guard const lock{mutex};
        if (ended && reading == ended) {
            reading.reset();
        }
        if (is_closed || reading || to_start.empty()) {
            return;
        }
        auto const pipeline = to_start.front();
        try {
            if (has_room()) {
                to_start.erase(to_start.begin());
                start(pipeline, *made.emplace(pipeline, make(pipeline)).first->second);
            }
        } catch (...) {
            // take() makes the source anew, and throws what is wrong.
            made.erase(pipeline);
            reading.reset();
        }
    }

    [[nodiscard]] std::unique_ptr<ChunkSource> take(std::size_t pipeline) {
        std::lock_guard const lock{mutex};
        if (auto node = made.extract(pipeline)) {
            return std::move(node.mapped());
        }
        auto source = make(pipeline);
        std::erase(to_start, pipeline);
        start(pipeline, *source);
        return source;
    }

    std::recursive_mutex mutex;
    std::vector<std::size_t> to_start;
    std::map<std::size_t, std::unique_ptr<ChunkSource>> made;  // and not taken
    std::optional<std::size_t> reading;                        // whose source has something left to read
    bool is_closed{false};
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
        std::lock_guard const lock{state_->mutex};
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
