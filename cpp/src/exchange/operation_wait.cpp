// How users of an operation wait: with a time limit, and with word of what is missing.
#include <algorithm>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/option_table.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>

namespace rapidsmpf::exchange {

void Operation::wait(
    UniqueLock& lock, Timeout timeout, std::function<bool()> const& ready,
    std::function<std::string()> const& what) {
    using Clock = std::chrono::steady_clock;
    auto const done = [&]() RAPIDSMPF_REQUIRES(mutex_) { return failure_ || is_discarded() || ready(); };
    if (done()) {
        stall_.reset();
        return;
    }
    // Longer than this is for ever, and does not overflow a clock.
    constexpr std::chrono::hours longest{24 * 365};
    auto const begin = Clock::now();
    auto const deadline = begin + std::min<std::chrono::milliseconds>(timeout.value_or(longest), longest);
    if (!stall_ || begin - stall_->last > Stall::longest_break) {
        stall_.emplace(begin);
    }
    while (!changed_.wait_until(lock, std::min(deadline, stall_->next_look), done)) {
        auto const now = Clock::now();
        if (!stall_) {
            stall_.emplace(now);  // another thread's wait has ended
        }
        stall_->last = now;
        if (now >= deadline) {
            throw TimeoutError{
                str() + ": not done after " + std::to_string(timeout.value_or(longest).count())
                + " ms: " + what()};
        }
        if (now >= stall_->next_look) {
            warn_of_stall(what());
        }
    }
    stall_.reset();
}

void Operation::warn_of_stall(std::string const& missing) {
    using Seconds = std::chrono::duration<double>;
    auto const pause = config::get_optional_seconds(comm_.options(), "collective_warning");
    if (!pause) {
        stall_->next_look = stall_->begin + std::chrono::hours{24 * 365};
        return;
    }
    auto const waited = Seconds{stall_->last - stall_->begin}.count();
    bool const due = waited >= *pause;
    auto const next = due ? 2 * waited : *pause;
    stall_->next_look = stall_->begin + std::chrono::ceil<std::chrono::milliseconds>(Seconds{next});
    if (due) {
        MutexUnlock const unlocked{mutex_};
        comm_.logger().warn(
            str() + " has waited " + std::to_string(static_cast<long>(waited)) + " s: " + missing
            + ". No rank is known to have failed: they compute, or do not come to it (do all ranks run the same "
              "collectives, under the same operation ids?)");
    }
    if (!stall_) {
        stall_.emplace(std::chrono::steady_clock::now());
    }
}

void Operation::wait_for_result(
    UniqueLock& lock, Timeout timeout, std::function<bool()> const& ready,
    std::function<std::string()> const& what) {
    wait(lock, timeout, ready, what);
    if (is_discarded() || !ready()) {
        check_usable();
    }
}

PartitionId Operation::wait_any(Timeout timeout) {
    FairLock lock{mutex_};
    wait_for_result(
        lock, timeout,
        [&]() RAPIDSMPF_REQUIRES(mutex_) { return store_.all_taken() || store_.first_ready(); },
        [&]() RAPIDSMPF_REQUIRES(mutex_) { return store_.describe_missing(); });
    auto const index = store_.first_ready();
    RAPIDSMPF_EXPECTS(
        index.has_value(), "every partition of " + str() + " has been waited for", std::out_of_range);
    store_.take(*index);
    changed();  // another waiter may now have nothing left to wait for
    return store_.local()[*index];
}

void Operation::wait_on(PartitionId partition, Timeout timeout) {
    FairLock lock{mutex_};
    auto const index = require_local(partition);
    auto const check_not_taken = [&]() RAPIDSMPF_REQUIRES(mutex_) {
        RAPIDSMPF_EXPECTS(
            !store_.is_taken(index),
            "partition " + std::to_string(partition) + " of " + str() + " has been waited for already",
            std::out_of_range);
    };
    if (!is_discarded()) {
        check_not_taken();
    }
    wait_for_result(
        lock, timeout, [&]() RAPIDSMPF_REQUIRES(mutex_) { return store_.is_complete(index); },
        [&]() RAPIDSMPF_REQUIRES(mutex_) { return store_.describe_missing(index); });
    check_not_taken();
    store_.take(index);
    changed();
}

void Operation::tell_when_complete(PartitionId partition, std::function<void()> told) {
    FairLock const lock{mutex_};
    watch(Watcher{require_local(partition), std::move(told)});
}

void Operation::tell_when_any(std::function<void()> told) {
    FairLock const lock{mutex_};
    watch(Watcher{std::nullopt, std::move(told)});
}

void Operation::watch(Watcher watcher) {
    if (is_over(watcher)) {
        watcher.told();
    } else {
        watchers_.push_back(std::move(watcher));
    }
}

bool Operation::is_over(Watcher const& watcher) {
    if (failure_ || is_discarded()) {
        return true;
    }
    return watcher.index ? store_.is_complete(*watcher.index)
                         : store_.all_taken() || store_.first_ready().has_value();
}

void Operation::changed() {
    changed_.notify_all();
    for (std::size_t i = 0; i < watchers_.size();) {
        if (is_over(watchers_[i])) {
            watchers_[i].told();
            watchers_[i] = std::move(watchers_.back());
            watchers_.pop_back();
        } else {
            ++i;
        }
    }
}

void Operation::wait_complete(PartitionId partition, Timeout timeout) {
    FairLock lock{mutex_};
    auto const index = require_local(partition);
    wait_for_result(
        lock, timeout, [&]() RAPIDSMPF_REQUIRES(mutex_) { return store_.is_complete(index); },
        [&]() RAPIDSMPF_REQUIRES(mutex_) { return store_.describe_missing(index); });
}

}  // namespace rapidsmpf::exchange
