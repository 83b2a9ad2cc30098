#include <rapidsmpf/streaming/executor.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <list>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/fork.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/core/option_table.hpp>

namespace rapidsmpf::streaming {

namespace {
// How long a thread for blocking calls waits for the next one.
constexpr std::chrono::seconds blocking_idle_time{2};
}  // namespace

// State that the threads share with the executor; outlives it when it is destroyed on one of them.
class Executor::Core : public std::enable_shared_from_this<Executor::Core> {
  public:
    // Threads that were made after shutdown() are still in the lists; they have ended, or one runs this.
    ~Core() {
        for (auto* threads : {&workers_, &blocking_threads_, &finished_}) {
            for (auto& thread : *threads) {
                thread.detach();
            }
        }
    }

    void start(std::size_t num_threads) {
        try {
            for (std::size_t i = 0; i < num_threads; ++i) {
                MutexLock lock{mutex_};
                add_worker();
            }
        } catch (...) {
            shutdown();
            throw;
        }
    }

    void post(std::coroutine_handle<> coroutine) {
        bool wake{};
        {
            MutexLock lock{mutex_};
            ready_.push_back(coroutine);
            wake = sleepers_ > 0;
            if (num_workers_ == 0) {  // shut down: a late one
                try {
                    add_worker();
                } catch (...) {
                    ready_.pop_back();
                    throw;
                }
            }
        }
        if (wake) {
            work_.notify_one();
        }
    }

    // The calling thread for blocking calls is done with `coroutine`: it is free from now on, although it still
    // has to return from the coroutine's frame.
    void post_from_blocking(std::coroutine_handle<> coroutine) {
        {
            MutexLock lock{mutex_};
            ++blocking_idle_;
            is_returning = true;
        }
        try {
            post(coroutine);
        } catch (...) {
            MutexLock lock{mutex_};
            --blocking_idle_;
            is_returning = false;
            throw;
        }
    }

    void post_blocking(std::coroutine_handle<> coroutine) {
        MutexLock lock{mutex_};
        join_finished();
        blocking_.push_back(coroutine);
        ++pending_blocking_;
        if (blocking_idle_ >= blocking_.size()) {
            blocking_work_.notify_one();
            return;
        }
        try {
            add_blocking_thread();
        } catch (std::system_error const& error) {
            blocking_.pop_back();
            --pending_blocking_;
            throw SystemError{
                "cannot start a thread for a blocking call (" + std::to_string(blocking_threads_.size())
                    + " exist; see ulimit -u and the container's pids limit)",
                error.code().value()};
        }
    }

    void shutdown() noexcept {
        if (!home_.is_here()) {
            return;  // a fork, which has none of the threads; they hold this object there, too
        }
        UniqueLock lock{mutex_};
        stop_ = true;
        work_.notify_all();
        blocking_work_.notify_all();
        auto const self = std::this_thread::get_id();
        // Threads may end, and late ones appear, while the lock is released to join.
        for (auto* threads : {&workers_, &blocking_threads_, &finished_}) {
            while (!threads->empty()) {
                std::list<std::thread> one;
                one.splice(one.begin(), *threads, threads->begin());
                if (one.front().get_id() == self) {
                    one.front().detach();  // ends by itself, keeping this object alive
                    continue;
                }
                lock.unlock();
                one.front().join();
                lock.lock();
            }
        }
    }

    [[nodiscard]] bool runs_this_thread() const {
        MutexLock lock{mutex_};
        auto const self = std::this_thread::get_id();
        return std::ranges::find(worker_ids_, self) != worker_ids_.end();
    }

    [[nodiscard]] std::size_t num_blocking_threads() const {
        MutexLock lock{mutex_};
        return num_blocking_;
    }

    std::size_t num_threads{0};

  private:
    void add_worker() RAPIDSMPF_REQUIRES(mutex_) {
        workers_.emplace_back([self = shared_from_this()] { self->work(); });
        ++num_workers_;
    }

    void work() {
        auto const self = std::this_thread::get_id();
        UniqueLock lock{mutex_};
        worker_ids_.push_back(self);
        for (;;) {
            if (!ready_.empty()) {
                auto coroutine = ready_.front();
                ready_.pop_front();
                lock.unlock();
                coroutine.resume();
                lock.lock();
            } else if (stop_ && pending_blocking_ == 0) {
                break;
            } else {
                ++sleepers_;
                work_.wait(lock);
                --sleepers_;
            }
        }
        std::erase(worker_ids_, self);
        --num_workers_;
    }

    void add_blocking_thread() RAPIDSMPF_REQUIRES(mutex_) {
        auto position = blocking_threads_.emplace(blocking_threads_.end());
        try {
            *position = std::thread{[self = shared_from_this(), position] { self->work_blocking(position); }};
        } catch (...) {
            blocking_threads_.erase(position);
            throw;
        }
        ++num_blocking_;
    }

    void work_blocking(std::list<std::thread>::iterator position) {
        UniqueLock lock{mutex_};
        for (;;) {
            if (!blocking_.empty()) {
                auto coroutine = blocking_.front();
                blocking_.pop_front();
                lock.unlock();
                coroutine.resume();
                lock.lock();
                if (is_returning) {
                    --blocking_idle_;  // about to look for work, which is better than idle
                    is_returning = false;
                }
                if (--pending_blocking_ == 0 && stop_) {
                    work_.notify_all();  // workers wait for the last blocking call
                }
            } else if (stop_) {
                break;
            } else {
                ++blocking_idle_;
                auto const status = blocking_work_.wait_for(lock, blocking_idle_time);
                --blocking_idle_;
                if (status == std::cv_status::timeout && blocking_.empty()) {
                    break;
                }
            }
        }
        --num_blocking_;
        if (!stop_) {  // else shutdown() has, or will find, the thread in one of its lists
            finished_.splice(finished_.end(), blocking_threads_, position);
        }
    }

    // Joins threads that ended because they were idle; they hold no lock any more.
    void join_finished() RAPIDSMPF_REQUIRES(mutex_) {
        for (auto& thread : finished_) {
            thread.join();
        }
        finished_.clear();
    }

    // Whether this thread for blocking calls counts as idle already, on its way out of a coroutine.
    static thread_local bool is_returning;

    HomeProcess home_;
    mutable Mutex mutex_;
    ConditionVariable work_;
    std::deque<std::coroutine_handle<>> ready_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::size_t sleepers_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::size_t num_workers_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::list<std::thread> workers_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::vector<std::thread::id> worker_ids_ RAPIDSMPF_GUARDED_BY(mutex_);

    ConditionVariable blocking_work_;
    std::deque<std::coroutine_handle<>> blocking_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::size_t pending_blocking_ RAPIDSMPF_GUARDED_BY(mutex_){0};  // waiting or running
    std::size_t blocking_idle_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::size_t num_blocking_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::list<std::thread> blocking_threads_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::list<std::thread> finished_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool stop_ RAPIDSMPF_GUARDED_BY(mutex_){false};
};

thread_local bool Executor::Core::is_returning{false};

Executor::Executor(std::size_t num_threads) {
    RAPIDSMPF_EXPECTS(
        num_threads > 0,
        "an executor needs at least one thread (num_streaming_threads must be greater than 0)",
        std::invalid_argument);
    core_ = std::make_shared<Core>();
    core_->num_threads = num_threads;
    core_->start(num_threads);
}

std::shared_ptr<Executor> Executor::from_options(config::Options options) {
    auto const num_threads = config::get_count(options, "num_streaming_threads");
    return std::make_shared<Executor>(static_cast<std::size_t>(num_threads));
}

Executor::~Executor() {
    shutdown();
}

std::size_t Executor::num_threads() const noexcept {
    return core_->num_threads;
}
bool Executor::runs_this_thread() const noexcept {
    return core_->runs_this_thread();
}
std::size_t Executor::num_blocking_threads() const {
    return core_->num_blocking_threads();
}
void Executor::post(std::coroutine_handle<> coroutine) {
    core_->post(coroutine);
}
void Executor::post_blocking(std::coroutine_handle<> coroutine) {
    core_->post_blocking(coroutine);
}
void Executor::post_from_blocking(std::coroutine_handle<> coroutine) {
    core_->post_from_blocking(coroutine);
}
void Executor::shutdown() noexcept {
    core_->shutdown();
}

namespace {
detail::Detached run_spawned(Executor& executor, Task<void> task, std::promise<void> promise) {
    std::exception_ptr error;
    {
        Task<void> local = std::move(task);
        try {
            co_await executor.schedule();
            co_await local;
        } catch (...) {
            error = std::current_exception();
        }
    }
    if (error) {
        promise.set_exception(std::move(error));
    } else {
        promise.set_value();
    }
}
}  // namespace

std::future<void> Executor::spawn(Task<void> task) {
    std::promise<void> promise;
    auto future = promise.get_future();
    run_spawned(*this, std::move(task), std::move(promise));
    return future;
}

}  // namespace rapidsmpf::streaming
