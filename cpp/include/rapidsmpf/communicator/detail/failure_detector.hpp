// For backends: what a communicator and its requests know to be wrong.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::detail {

// What is known to be wrong, shared with requests that may outlive their communicator.
//
// When a process dies, a transfer of its memory breaks off a moment before the liveness channel says who died of
// what. So a transfer that broke is only a suspicion, which becomes the failure if nothing better is known in
// time.
class FailureDetector {
  public:
    struct Suspicion {
        Suspicion(Rank peer_, std::string what_, std::chrono::steady_clock::time_point since_)
            : peer{peer_}, what{std::move(what_)}, since{since_} {}
        Rank peer;
        std::string what;
        std::chrono::steady_clock::time_point since;
    };

    void set(RankFailure const& failure) {
        MutexLock const lock{mutex_};
        if (!failure_) {
            failure_ = failure;
            set_.store(true, std::memory_order_release);
        }
    }
    [[nodiscard]] bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }
    void raise_if_set() const {
        if (is_set()) {
            MutexLock const lock{mutex_};
            failure_->raise();
        }
    }

    void suspect(Rank peer, std::string what) {
        MutexLock const lock{mutex_};
        if (!suspicion_) {
            suspicion_.emplace(peer, std::move(what), std::chrono::steady_clock::now());
            suspected_.store(true, std::memory_order_release);
        }
    }
    // A suspicion for which nothing better has become known in time; without a liveness channel, in no time.
    [[nodiscard]] std::optional<Suspicion> confirmed(bool has_liveness) const {
        if (is_set() || !suspected_.load(std::memory_order_acquire)) {
            return std::nullopt;
        }
        MutexLock const lock{mutex_};
        bool const waits = has_liveness && std::chrono::steady_clock::now() < suspicion_->since + patience;
        return waits ? std::nullopt : suspicion_;
    }

  private:
    // How long a broken transfer waits for the news of what became of its peer.
    static constexpr std::chrono::milliseconds patience{2000};

    std::atomic<bool> set_{false};
    std::atomic<bool> suspected_{false};
    mutable Mutex mutex_;
    std::optional<RankFailure> failure_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::optional<Suspicion> suspicion_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::detail
