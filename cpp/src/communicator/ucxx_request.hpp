// The requests that UcxxCommunicator hands out, and what they know of its troubles.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <rapidsmpf/communicator/communicator.hpp>

#include "ucxx_transport.hpp"

namespace rapidsmpf::detail {

// What is known to be wrong, shared with requests that may outlive their communicator.
//
// When a process dies, a transfer of its memory breaks off a moment before the liveness channel says who died of
// what. So a transfer that broke is only a suspicion, which becomes the failure if nothing better is known in
// time.
class Trouble {
  public:
    struct Suspicion {
        Suspicion(Rank peer_, std::string what_, std::chrono::steady_clock::time_point since_)
            : peer{peer_}, what{std::move(what_)}, since{since_} {}
        Rank peer;
        std::string what;
        std::chrono::steady_clock::time_point since;
    };

    void set(RankFailure const& failure) {
        std::lock_guard const lock{mutex_};
        if (!failure_) {
            failure_ = failure;
            set_.store(true, std::memory_order_release);
        }
    }
    [[nodiscard]] bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }
    void raise_if_set() const {
        if (is_set()) {
            std::lock_guard const lock{mutex_};
            failure_->raise();
        }
    }

    void suspect(Rank peer, std::string what) {
        std::lock_guard const lock{mutex_};
        if (!suspicion_) {
            suspicion_.emplace(peer, std::move(what), std::chrono::steady_clock::now());
            suspected_.store(true, std::memory_order_release);
        }
    }
    [[nodiscard]] std::optional<Suspicion> suspicion() const {
        if (is_set() || !suspected_.load(std::memory_order_acquire)) {
            return std::nullopt;
        }
        std::lock_guard const lock{mutex_};
        return suspicion_;
    }

  private:
    std::atomic<bool> set_{false};
    std::atomic<bool> suspected_{false};
    mutable std::mutex mutex_;
    std::optional<RankFailure> failure_;
    std::optional<Suspicion> suspicion_;
};

// A send or receive, as the user of a communicator holds it.
class UcxRequest final : public Communicator::Request {
  public:
    // `operation` is null for a send that goes nowhere, because its receiver has left.
    UcxRequest(
        std::shared_ptr<UcxTransport> const& transport, std::shared_ptr<Trouble> trouble,
        UcxOperationPtr operation, std::size_t size)
        : transport_{transport},
          trouble_{std::move(trouble)},
          operation_{std::move(operation)},
          size_{size} {}
    // Cancels a receive that is not complete.
    ~UcxRequest() override;
    UcxRequest(UcxRequest const&) = delete;
    UcxRequest& operator=(UcxRequest const&) = delete;

    // Throws RankFailedError when the communicator failed before it was complete, and std::runtime_error when the
    // message has another size.
    [[nodiscard]] bool test() override;

  private:
    std::weak_ptr<UcxTransport> transport_;
    std::shared_ptr<Trouble> trouble_;
    UcxOperationPtr operation_;
    std::size_t size_;
};

}  // namespace rapidsmpf::detail
