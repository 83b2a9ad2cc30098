// How users of an operation wait: with a time limit, and with word of what is missing.
#include <algorithm>
#include <utility>

#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>

#include "exchange/operation_state.hpp"

namespace rapidsmpf::exchange {

namespace {

using Clock = Stall::Clock;
using Ready = std::function<bool()>;
using Missing = std::function<std::string()>;

void warn_of_stall(OperationState& state, std::string const& missing) RAPIDSMPF_REQUIRES(state.mutex) {
    using Seconds = std::chrono::duration<double>;
    auto& stall = *state.stall;
    auto const pause = config::get_optional_seconds(state.comm.options(), "collective_warning");
    if (!pause) {
        stall.next_look = stall.begin + std::chrono::hours{24 * 365};
        return;
    }
    auto const waited = Seconds{stall.last - stall.begin}.count();
    bool const due = waited >= *pause;
    auto const next = due ? 2 * waited : *pause;
    stall.next_look = stall.begin + std::chrono::ceil<std::chrono::milliseconds>(Seconds{next});
    if (due) {
        MutexUnlock const unlocked{state.mutex};
        state.comm.logger().warn(
            state.str() + " has waited " + std::to_string(static_cast<long>(waited)) + " s: " + missing
            + ". No rank is known to have failed: they compute, or do not come to it (do all ranks run the same "
              "collectives, under the same operation ids?)");
    }
    if (!state.stall) {
        state.stall.emplace(Clock::now());
    }
}

// Waits until ready() or an error; throws TimeoutError with missing() when time is up. Says now and then in the log what
// is missing. Both are called with the mutex held.
void wait(
    OperationState& state, UniqueLock& lock, Operation::Timeout timeout, Ready const& ready,
    Missing const& missing) RAPIDSMPF_REQUIRES(state.mutex) {
    auto const done = [&]() RAPIDSMPF_REQUIRES(state.mutex) { return state.closing.ends_waits() || ready(); };
    auto& stall = state.stall;
    if (done()) {
        stall.reset();
        return;
    }
    // Longer than this is for ever, and does not overflow a clock.
    constexpr std::chrono::hours longest{24 * 365};
    auto const begin = Clock::now();
    auto const deadline = begin + std::min<std::chrono::milliseconds>(timeout.value_or(longest), longest);
    if (!stall || begin - stall->last > Stall::longest_break) {
        stall.emplace(begin);
    }
    while (!state.changed.wait_until(lock, std::min(deadline, stall->next_look), done)) {
        auto const now = Clock::now();
        if (!stall) {
            stall.emplace(now);  // another thread's wait has ended
        }
        stall->last = now;
        if (now >= deadline) {
            throw TimeoutError{
                state.str() + ": not done after " + std::to_string(timeout.value_or(longest).count())
                + " ms: " + missing()};
        }
        if (now >= stall->next_look) {
            warn_of_stall(state, missing());
        }
    }
    stall.reset();
}

// The same, for what is complete then: if a rank has failed since, that changes nothing. Else throws the error.
void wait_for_result(
    OperationState& state, UniqueLock& lock, Operation::Timeout timeout, Ready const& ready,
    Missing const& missing) RAPIDSMPF_REQUIRES(state.mutex) {
    wait(state, lock, timeout, ready, missing);
    if (state.closing.is_discarded() || !ready()) {
        state.check_usable();
    }
}

void wait_complete(
    OperationState& state, UniqueLock& lock, Operation::Timeout timeout, PartitionStore::Index index)
    RAPIDSMPF_REQUIRES(state.mutex) {
    wait_for_result(
        state, lock, timeout,
        [&]() RAPIDSMPF_REQUIRES(state.mutex) { return state.store.is_complete(index); },
        [&]() RAPIDSMPF_REQUIRES(state.mutex) { return state.store.describe_missing(index); });
}

std::string describe_backlog(OperationState const& state) RAPIDSMPF_REQUIRES(state.mutex) {
    std::string text;
    auto const& taken = state.progress.backlog;
    for (std::size_t rank = 0; rank < taken.size(); ++rank) {
        auto const chunks = taken[rank] + state.inserted.backlog(static_cast<Rank>(rank));
        if (chunks > 0) {
            text += (text.empty() ? "" : ", ") + std::to_string(chunks) + (chunks == 1 ? " chunk" : " chunks")
                    + " for rank " + std::to_string(rank);
        }
    }
    return "still to be sent: " + text;
}

}  // namespace

PartitionId Operation::wait_any(Timeout timeout) {
    auto& state = *state_;
    UniqueLock lock{state.mutex};
    wait_for_result(
        state, lock, timeout,
        [&]()
            RAPIDSMPF_REQUIRES(state.mutex) { return state.store.all_taken() || state.store.first_ready(); },
        [&]() RAPIDSMPF_REQUIRES(state.mutex) { return state.store.describe_missing(); });
    auto const index = state.store.first_ready();
    RAPIDSMPF_EXPECTS(
        index.has_value(), "every partition of " + str() + " has been waited for", std::out_of_range);
    state.store.take(*index);
    state.notify();  // another waiter may now have nothing left to wait for
    return state.local.ids()[*index];
}

void Operation::wait_on(PartitionId partition, Timeout timeout) {
    auto& state = *state_;
    auto const index = state.require_local(partition);
    UniqueLock lock{state.mutex};
    auto const check_not_taken = [&]() RAPIDSMPF_REQUIRES(state.mutex) {
        RAPIDSMPF_EXPECTS(
            !state.store.is_taken(index),
            "partition " + std::to_string(partition) + " of " + str() + " has been waited for already",
            std::out_of_range);
    };
    if (!state.closing.is_discarded()) {
        check_not_taken();
    }
    ::rapidsmpf::exchange::wait_complete(state, lock, timeout, index);
    check_not_taken();
    state.store.take(index);
    state.notify();
}

void Operation::tell_when_complete(PartitionId partition, std::function<void()> told) {
    auto& state = *state_;
    auto const index = state.require_local(partition);
    MutexLock const lock{state.mutex};
    state.watch({index, std::move(told)});
}

void Operation::tell_when_any(std::function<void()> told) {
    auto& state = *state_;
    MutexLock const lock{state.mutex};
    state.watch({std::nullopt, std::move(told)});
}

void Operation::wait_complete(PartitionId partition, Timeout timeout) {
    auto& state = *state_;
    auto const index = state.require_local(partition);
    UniqueLock lock{state.mutex};
    ::rapidsmpf::exchange::wait_complete(state, lock, timeout, index);
}

void Operation::shutdown(Timeout timeout) {
    auto& state = *state_;
    {
        UniqueLock lock{state.mutex};
        std::optional<RankFailure> interrupted;
        if (state.closing.is_shut_down()) {
            return;
        }
        if (state.closing.stage() == ClosingState::Stage::open) {
            if (!state.inserted.all_finished()) {
                state.abandon_locked(
                    {FinalKind::abandoned, 0, state.rank,
                     "it was shut down before all insertions were finished"},
                    nullptr);
            } else {
                wait(
                    state, lock, timeout, [&]() RAPIDSMPF_REQUIRES(state.mutex) { return state.is_sent(); },
                    [&]() RAPIDSMPF_REQUIRES(state.mutex) { return describe_backlog(state); });
                interrupted = state.closing.failure();
            }
        }
        state.closing.shut_down();
        state.discard_results_locked();
        if (interrupted) {
            interrupted->raise();
        }
    }
    state.waker->wake();
}

}  // namespace rapidsmpf::exchange
