// Starts the scans of a program before their pipelines run: as soon as nothing is left to read of one, the next begins to read,
// while rows of the first are still decoded, grouped, or built into a hash table. Threads of its own decode the first chunks of
// such a scan.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "compute/made_ahead.hpp"
#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// Thread-safe. The sources that it gives may outlive it.
class ScansAhead {
  public:
    // The threads that make chunks, one for each of `works`, of which at most so many wait for each pipeline.
    struct Makers {
        std::vector<Work> works;
        std::function<void()> enter;  // what a thread does first
        Handover handover;
        std::size_t most_chunks{4};
    };

    // pipelines: the indices of the pipelines that scan files, in execution order. make: returns the source of a pipeline; may
    // throw. has_room: returns whether there is memory to read and decode ahead. None of these is called after the destructor
    // has returned.
    ScansAhead(
        std::vector<std::size_t> pipelines,
        std::function<std::unique_ptr<ChunkSource>(std::size_t pipeline)> make,
        std::function<bool()> has_room, Makers makers);
    // Closes the sources that were not taken, and ends the threads; those that were taken have been closed.
    ~ScansAhead();
    ScansAhead(ScansAhead const&) = delete;
    ScansAhead& operator=(ScansAhead const&) = delete;

    // Starts the next scan if none is being read and there is room.
    void advance() noexcept;
    // The same; nothing more is read of the source of `pipeline`.
    void end(std::size_t pipeline) noexcept;
    // The source of a pipeline, started. Throws what making it throws.
    [[nodiscard]] std::unique_ptr<ChunkSource> take(std::size_t pipeline);

  private:
    struct State;
    std::shared_ptr<State> state_;
    std::vector<std::thread> threads_;
};

}  // namespace rapidsmpf::compute
