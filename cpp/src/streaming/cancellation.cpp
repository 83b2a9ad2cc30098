#include <rapidsmpf/streaming/cancellation.hpp>

#include <map>
#include <thread>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::streaming {

namespace detail {

class CancellationState {
  public:
    [[nodiscard]] std::exception_ptr reason() const noexcept {
        MutexLock const lock{mutex_};
        return error_;
    }

    // Callbacks are called in ascending order, and as they were added. Zero: it was called already.
    [[nodiscard]] std::uint64_t add(CancellationToken::Callback callback, std::uint64_t order) {
        std::exception_ptr error;
        {
            MutexLock const lock{mutex_};
            if (!error_) {
                auto const id = order + ++last_id_;
                callbacks_.emplace(id, std::move(callback));
                return id;
            }
            error = error_;
        }
        callback(std::move(error));
        return 0;
    }

    void remove(std::uint64_t id) noexcept {
        CancellationToken::Callback dropped;  // what it owns goes without the lock
        UniqueLock lock{mutex_};
        if (auto const found = callbacks_.find(id); found != callbacks_.end()) {
            dropped = std::move(found->second);
            callbacks_.erase(found);
            lock.unlock();
            return;
        }
        if (caller_ != std::this_thread::get_id()) {
            called_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return running_ != id; });
        }
    }

    bool cancel(std::exception_ptr error) {
        UniqueLock lock{mutex_};
        if (error_) {
            return false;
        }
        error_ = error;
        caller_ = std::this_thread::get_id();
        while (!callbacks_.empty()) {
            auto const first = callbacks_.begin();
            running_ = first->first;
            auto callback = std::move(first->second);
            callbacks_.erase(first);
            lock.unlock();
            callback(error);
            callback = nullptr;
            lock.lock();
            running_ = 0;
            called_.notify_all();
        }
        caller_ = {};
        return true;
    }

  private:
    mutable Mutex mutex_;
    ConditionVariable called_;
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::map<std::uint64_t, CancellationToken::Callback> callbacks_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t last_id_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::uint64_t running_ RAPIDSMPF_GUARDED_BY(mutex_){0};  // whose callback is being called
    std::thread::id caller_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace detail

CancellationToken::Registration::Registration(
    std::shared_ptr<detail::CancellationState> state, std::uint64_t id) noexcept
    : state_{std::move(state)}, id_{id} {}

CancellationToken::Registration::Registration(Registration&& other) noexcept
    : state_{std::move(other.state_)}, id_{std::exchange(other.id_, 0)} {}

CancellationToken::Registration& CancellationToken::Registration::operator=(Registration&& other) noexcept {
    if (this != &other) {
        reset();
        state_ = std::move(other.state_);
        id_ = std::exchange(other.id_, 0);
    }
    return *this;
}

void CancellationToken::Registration::reset() noexcept {
    if (auto const state = std::exchange(state_, nullptr); state && id_ != 0) {
        state->remove(std::exchange(id_, 0));
    }
}

CancellationToken::CancellationToken(std::shared_ptr<detail::CancellationState> state) noexcept
    : state_{std::move(state)} {}

std::exception_ptr CancellationToken::reason() const noexcept {
    return state_ ? state_->reason() : nullptr;
}

void CancellationToken::throw_if_cancelled() const {
    if (auto error = reason()) {
        std::rethrow_exception(std::move(error));
    }
}

CancellationToken::Registration CancellationToken::add(Callback callback, std::uint64_t order) const {
    if (!state_) {
        return {};
    }
    auto const id = state_->add(std::move(callback), order);
    return id == 0 ? Registration{} : Registration{state_, id};
}

CancellationToken::Registration CancellationToken::on_cancel(Callback callback) const {
    return add(std::move(callback), 0);
}

CancellationToken::Registration CancellationToken::on_cancel_last(Callback callback) const {
    constexpr std::uint64_t behind_all = std::uint64_t{1} << 63;
    return add(std::move(callback), behind_all);
}

CancellationSource::CancellationSource() : state_{std::make_shared<detail::CancellationState>()} {}

bool CancellationSource::cancel(std::exception_ptr error) {
    return state_->cancel(error ? std::move(error) : std::make_exception_ptr(CancelledError{"cancelled"}));
}

}  // namespace rapidsmpf::streaming
