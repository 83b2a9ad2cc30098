// For backends: which ranks have closed their communicator gracefully, and whether this one still waits for them.
//
// The news that a rank has closed travels beside its messages and may overtake them: what it has sent can still arrive
// for a while. After that, a wait for it is in vain.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::detail {

// After a rank has left in good order: how long its last messages may be on their way.
inline constexpr std::chrono::milliseconds close_grace{2000};

// Thread-safe.
class ClosedPeers {
  public:
    explicit ClosedPeers(Rank nranks) : left_(static_cast<std::size_t>(nranks)) {}

    // A rank has left.
    void note(Rank rank) {
        left_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
        expect_from(rank);
    }
    [[nodiscard]] bool has(Rank rank) const noexcept {
        return left_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
    }
    // Something is to be received from a rank that has left: it may be here already; if not, it will not come.
    void expect_from(Rank rank) {
        MutexLock const lock{mutex_};
        until_.try_emplace(rank, Clock::now() + close_grace);
        watched_.store(true, std::memory_order_release);
    }
    // Returns the failure of a rank that has left if `in_flight_with` still counts messages of it after the grace period. The
    // progress thread polls this; it reads one atomic flag while no rank has left.
    [[nodiscard]] std::optional<RankFailure> missed(std::function<std::size_t(Rank)> const& in_flight_with) {
        if (!watched_.load(std::memory_order_acquire)) {
            return std::nullopt;
        }
        for (auto const rank : take_due()) {
            if (in_flight_with(rank) > 0) {
                return RankFailure{
                    rank, "", 0,
                    "it closed its communicator while this rank still exchanged messages with it (do all "
                    "ranks "
                    "run the same collectives?)"};
            }
        }
        return std::nullopt;
    }

  private:
    using Clock = std::chrono::steady_clock;

    [[nodiscard]] std::vector<Rank> take_due() {
        std::vector<Rank> due;
        MutexLock const lock{mutex_};
        auto const now = Clock::now();
        std::erase_if(until_, [&](auto const& entry) {
            if (entry.second > now) {
                return false;
            }
            due.push_back(entry.first);
            return true;
        });
        watched_.store(!until_.empty(), std::memory_order_release);
        return due;
    }

    std::vector<std::atomic<bool>> left_;  // by rank
    std::atomic<bool> watched_{false};     // whether until_ has entries
    Mutex mutex_;
    // When a rank that left must have nothing in flight.
    std::map<Rank, Clock::time_point> until_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::detail
