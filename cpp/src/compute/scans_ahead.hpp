// Starts the scans of a program before their pipelines run: as soon as nothing is left to read of one, the next begins to read,
// while rows of the first are still decoded, grouped, or built into a hash table.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// Thread-safe. The sources that it gives may outlive it.
class ScansAhead {
  public:
    // pipelines: the indices of the pipelines that scan files, in execution order. make: returns the source of a pipeline; may
    // throw. has_room: returns whether there is memory to read ahead. Neither is called after the destructor.
    ScansAhead(
        std::vector<std::size_t> pipelines,
        std::function<std::unique_ptr<ChunkSource>(std::size_t pipeline)> make,
        std::function<bool()> has_room);
    // Closes the sources that were not taken.
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
};

}  // namespace rapidsmpf::compute
