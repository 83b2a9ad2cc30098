// What split() keeps with a communicator: a small all-gather of its own, and, on the communicator that owns the
// transport, which contexts are taken in this process.
#pragma once

#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <stop_token>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::detail {

using ContextSet = std::bitset<std::size_t{Tag::max_context} + 1>;

class SplitState {
  public:
    using Bytes = std::vector<std::uint8_t>;
    using Deadline = std::optional<std::chrono::steady_clock::time_point>;

    // Held for a whole split: those of one communicator take turns.
    [[nodiscard]] Mutex& turn() noexcept RAPIDSMPF_RETURN_CAPABILITY(turn_) { return turn_; }
    // The number of this split.
    [[nodiscard]] std::uint64_t next_split() noexcept RAPIDSMPF_REQUIRES(turn_) { return splits_++; }
    // The bytes of all ranks of `comm`, by rank; all of them have to call it. Throws
    // TimeoutError naming the missing, RankFailedError.
    [[nodiscard]] std::vector<Bytes> gather(
        Communicator& comm, Bytes mine, Deadline deadline, std::stop_token const& stop)
        RAPIDSMPF_REQUIRES(turn_);

    // Contexts that may not be given out: live ones, and those freed lately, for which messages may be on their
    // way.
    [[nodiscard]] ContextSet taken() const;
    // False: another thread was faster.
    [[nodiscard]] bool reserve(ContextId context);
    // `was_used`: messages may have been sent in it.
    enum class Used : std::uint8_t { no, yes };
    void release(ContextId context, Used used);

  private:
    struct Round;
    [[nodiscard]] bool take_in(Communicator& comm, Round& round);

    Mutex turn_;
    std::uint64_t splits_ RAPIDSMPF_GUARDED_BY(turn_){0};
    std::uint64_t rounds_ RAPIDSMPF_GUARDED_BY(turn_){0};
    std::map<Rank, std::deque<Bytes>> early_;  // of later rounds; used by one thread at a time, see gather()

    mutable Mutex contexts_mutex_;
    ContextSet taken_ RAPIDSMPF_GUARDED_BY(contexts_mutex_);
    std::deque<ContextId> quarantined_ RAPIDSMPF_GUARDED_BY(contexts_mutex_);
};

}  // namespace rapidsmpf::detail
