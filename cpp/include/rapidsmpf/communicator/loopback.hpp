// N ranks in one process, for tests: each has a communicator and a progress thread of its own, and messages
// pass through memory with injected delay, reordering and death.
//
// Delays are counted in calls of the receiver's progress(), not in time, and are a function of the seed and
// of the message's place in its (source, destination, tag) stream: so a schedule depends on the seed and on
// how threads happen to run, never on how fast they do. Messages never overtake each other within a stream;
// across streams they do. The news that a rank has left in good order is delayed like a message.
//
// Ownership: the communicators share the cluster's wires; either may be destroyed first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>

namespace rapidsmpf {

namespace loopback {
class Wires;
}

struct LoopbackFaults {
    LoopbackFaults() {}  // user-written: travels through coroutines, not an aggregate

    std::uint64_t seed{0};
    // The chance that a message is held back, and the most progress() calls for which it may be.
    double delay_probability{0};
    std::uint32_t longest_delay{20};

    // A rank that dies: after it has sent `dies_after` messages the next ones are lost, and so is what is on its
    // way to it; each survivor is told so after up to longest_delay of its progress() calls.
    std::optional<Rank> dying_rank;
    std::uint64_t dies_after{0};
};

class LoopbackCluster {
  public:
    // Throws std::invalid_argument when nranks < 1.
    explicit LoopbackCluster(
        Rank nranks, LoopbackFaults const& faults = LoopbackFaults(),
        config::Options options = config::Options{});

    // Rank r of the cluster.
    [[nodiscard]] std::shared_ptr<Communicator> const& operator[](Rank rank) const {
        return comms_.at(index(rank));
    }
    [[nodiscard]] std::vector<std::shared_ptr<Communicator>> const& communicators() const noexcept {
        return comms_;
    }
    [[nodiscard]] Rank nranks() const noexcept { return static_cast<Rank>(comms_.size()); }

    // The rank dies now.
    void kill(Rank rank, std::string const& reason);
    // Messages that the rank has sent so far.
    [[nodiscard]] std::uint64_t messages_sent_for_testing(Rank rank) const;

  private:
    static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
    std::shared_ptr<loopback::Wires> wires_;
    std::vector<std::shared_ptr<Communicator>> comms_;
};

}  // namespace rapidsmpf
