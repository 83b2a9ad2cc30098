#include <rapidsmpf/streaming/executor.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <list>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/detail/short_sleeps.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/fork.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/network.hpp>

#include "streaming/run_queue.hpp"
#include "streaming/timers.hpp"

namespace rapidsmpf::streaming {

namespace {
using Clock = std::chrono::steady_clock;

// How long a thread for blocking calls waits for the next one.
constexpr std::chrono::seconds blocking_idle_time{2};
// Coroutines that run for less at a time are not worth another thread: waking it, and having what they share go to and fro
// between two cores, takes longer.
constexpr std::chrono::nanoseconds worth_sharing{2000};
// How many turns are timed together.
constexpr std::uint64_t turns_timed = 16;
// After so many turns a worker looks at what came from outside although it has work of its own.
constexpr std::uint64_t turns_between_outside = 61;
// How often one that has no work looks whether a coroutine waits behind one that runs long, and after how many looks without
// any work around it gives up until it is woken.
constexpr std::chrono::microseconds watch_pause{500};
constexpr int quiet_looks = 8;
}  // namespace

// State that the threads share with the executor; outlives it when it is destroyed on one of them.
//
// Each worker has a queue: what its coroutines wake runs there, in order, with no other thread involved. What comes from
// other threads is in one queue for all. A worker without work takes from the queues of others, but only of those whose
// turns have been long (busy_long), or that have not begun another turn since it looked the last time. One of those who
// sleep, the watcher, has the duty to look; a thread that queues a coroutine while none has that duty wakes one.
class Executor::Core : public std::enable_shared_from_this<Executor::Core> {
    struct Worker {
        RunQueue queue;
        std::atomic<std::uint64_t> turns{0};          // that have begun; written by its own thread
        std::atomic<bool> busy_long{false};           // its turns have been long; written by its own thread
        rapidsmpf::detail::ShortSleeps short_sleeps;  // its own thread's
        std::uint64_t seen{0};                        // what the watcher saw of `turns`; guarded by mutex_
    };
    // Which worker looks after queues that theirs do not come to: none (`nobody`), one that was woken for it, one that has begun.
    enum class Watch : std::uint8_t { nobody, wanted, held };

  public:
    explicit Core(std::size_t num_threads_) : num_threads{num_threads_}, slots_(num_threads_) {}

    // Threads that were made after shutdown() are still in the lists; they have ended, or one runs this.
    ~Core() {
        for (auto* threads : {&workers_, &blocking_threads_, &finished_}) {
            for (auto& thread : *threads) {
                thread.detach();
            }
        }
    }

    void start() {
        try {
            for (std::size_t i = 0; i < num_threads; ++i) {
                MutexLock lock{mutex_};
                add_worker(slots_[i]);
            }
        } catch (...) {
            shutdown();
            throw;
        }
    }

    void post(std::coroutine_handle<> coroutine) {
        if (here_ == this && own_->queue.push(coroutine)) {
            // No other thread has to know unless this one will not come to it soon.
            if (sleepers_.load(std::memory_order_relaxed) > 0 && needs_others(*own_)) {
                wake_one();
            }
            return;
        }
        bool wake{};
        {
            MutexLock lock{mutex_};
            outside_.push_back(coroutine);
            num_outside_.store(outside_.size(), std::memory_order_relaxed);
            // A worker that searches finds it without being woken.
            wake = sleepers_.load(std::memory_order_relaxed) > 0
                   && searching_.load(std::memory_order_relaxed) == 0;
            if (num_workers_ == 0) {  // shut down: a late one
                try {
                    add_worker(slots_.front());
                } catch (...) {
                    outside_.pop_back();
                    num_outside_.store(outside_.size(), std::memory_order_relaxed);
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
        timers->stop();
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

    void begin_outside() noexcept { outside_waits_.fetch_add(1); }
    void end_outside() {
        // Whether all stand still has to be looked at again.
        if (outside_waits_.fetch_sub(1) == 1 && has_networks_.load(std::memory_order_relaxed)) {
            wake_one();
        }
    }

    void add_network(std::weak_ptr<RunningNetwork> network) {
        MutexLock const lock{mutex_};
        std::erase_if(networks_, [](auto const& other) { return other.expired(); });
        networks_.push_back(std::move(network));
        has_networks_.store(true, std::memory_order_relaxed);
    }

    [[nodiscard]] std::vector<std::shared_ptr<RunningNetwork>> networks() const {
        MutexLock const lock{mutex_};
        return running_networks();
    }

    void look_for_standstill() {
        MutexLock const lock{mutex_};
        (void)tell_standstill(0);
    }

    [[nodiscard]] bool runs_this_thread() const noexcept { return here_ == this; }

    [[nodiscard]] std::size_t num_blocking_threads() const {
        MutexLock lock{mutex_};
        return num_blocking_;
    }

    std::size_t num_threads{0};
    std::shared_ptr<Timers> const timers = std::make_shared<Timers>();

  private:
    void add_worker(Worker& worker) RAPIDSMPF_REQUIRES(mutex_) {
        workers_.emplace_back([self = shared_from_this(), &worker] { self->work(worker); });
        ++num_workers_;
    }

    // Whether a worker that has queued a coroutine has to wake another.
    [[nodiscard]] bool needs_others(Worker const& worker) noexcept {
        if (worker.busy_long.load(std::memory_order_relaxed)) {
            return searching_.load(std::memory_order_relaxed) == 0;
        }
        auto nobody = Watch::nobody;
        return watch_.load(std::memory_order_relaxed) == Watch::nobody
               && watch_.compare_exchange_strong(nobody, Watch::wanted, std::memory_order_relaxed);
    }

    void wake_one() {
        {
            // So that one that is about to sleep is either seen or sees what was queued.
            MutexLock const lock{mutex_};
        }
        work_.notify_one();
    }

    void work(Worker& worker) {
        here_ = this;
        own_ = &worker;
        auto since = Clock::now();
        for (std::uint64_t turn = 0;; ++turn) {
            auto coroutine = next(worker, turn);
            if (!coroutine) {
                worker.busy_long.store(false, std::memory_order_relaxed);
                coroutine = find(worker);
                if (!coroutine) {
                    break;
                }
                turn = 0;
                since = Clock::now();
            }
            worker.turns.store(worker.turns.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            coroutine.resume();
            if (turn % turns_timed == turns_timed - 1) {
                auto const now = Clock::now();
                auto const is_long = (now - since) / static_cast<int>(turns_timed) > worth_sharing;
                since = now;
                worker.busy_long.store(is_long, std::memory_order_relaxed);
            }
        }
        here_ = nullptr;
        own_ = nullptr;
    }

    // What this worker does next without looking for it; null: nothing.
    [[nodiscard]] std::coroutine_handle<> next(Worker& worker, std::uint64_t turn) {
        if (turn % turns_between_outside == 0) {
            if (auto coroutine = take_outside()) {
                return coroutine;
            }
        }
        if (auto coroutine = worker.queue.pop()) {
            return coroutine;
        }
        return take_outside();
    }

    [[nodiscard]] std::coroutine_handle<> take_outside() {
        if (num_outside_.load(std::memory_order_relaxed) == 0) {
            return {};
        }
        MutexLock const lock{mutex_};
        return pop_outside();
    }

    [[nodiscard]] std::coroutine_handle<> pop_outside() RAPIDSMPF_REQUIRES(mutex_) {
        if (outside_.empty()) {
            return {};
        }
        auto coroutine = outside_.front();
        outside_.pop_front();
        num_outside_.store(outside_.size(), std::memory_order_relaxed);
        return coroutine;
    }

    // Takes a coroutine from the queue of a worker whose turns are long. This worker's turns then count as long, too, until
    // they have been timed: otherwise other workers would not take the coroutines that it wakes from this queue.
    [[nodiscard]] std::coroutine_handle<> take_from_busy(Worker& worker) {
        for (auto& other : slots_) {
            if (&other != &worker && other.busy_long.load(std::memory_order_relaxed)) {
                if (auto coroutine = other.queue.pop()) {
                    worker.busy_long.store(true, std::memory_order_relaxed);
                    return coroutine;
                }
            }
        }
        return {};
    }

    // Before the executor ends: the worker of the queue may be waiting for what is in it.
    [[nodiscard]] std::coroutine_handle<> take_from_any() {
        for (auto& other : slots_) {
            if (auto coroutine = other.queue.pop()) {
                return coroutine;
            }
        }
        return {};
    }

    [[nodiscard]] std::vector<std::shared_ptr<RunningNetwork>> running_networks() const
        RAPIDSMPF_REQUIRES(mutex_) {
        std::vector<std::shared_ptr<RunningNetwork>> running;
        for (auto const& network : networks_) {
            if (auto alive = network.lock()) {
                running.push_back(std::move(alive));
            }
        }
        return running;
    }

    // If nothing is on its way and all workers sleep but so many: the turns that have begun, which grow when that has changed.
    [[nodiscard]] std::optional<std::uint64_t> still_since(std::size_t awake) RAPIDSMPF_REQUIRES(mutex_) {
        if (stop_ || pending_blocking_ > 0 || outside_waits_.load() > 0 || !outside_.empty()
            || sleepers_.load(std::memory_order_relaxed) + awake != num_workers_) {
            return std::nullopt;
        }
        std::uint64_t turns = 0;
        for (auto const& worker : slots_) {
            turns += worker.turns.load(std::memory_order_relaxed);
        }
        return turns;
    }

    // Tells the networks if all is still but so many workers, one of which this is. Those who look again when nothing has run since
    // are not told. Whether it did.
    [[nodiscard]] bool tell_standstill(std::size_t awake) RAPIDSMPF_REQUIRES(mutex_) {
        if (networks_.empty()) {
            return false;
        }
        auto const turns = still_since(awake);
        if (!turns || (awake > 0 && std::exchange(told_turns_, *turns) == *turns)) {
            return false;
        }
        auto running = running_networks();
        if (running.empty()) {
            networks_.clear();
            has_networks_.store(false, std::memory_order_relaxed);
            return false;
        }
        MutexUnlock const unlocked{mutex_};
        auto const is_still = [this, awake, turns] {
            MutexLock const lock{mutex_};
            return still_since(awake) == turns;
        };
        for (auto const& network : running) {
            network->on_standstill(is_still);
        }
        running.clear();  // one may end with this
        return true;
    }

    void note_turns() RAPIDSMPF_REQUIRES(mutex_) {
        for (auto& worker : slots_) {
            worker.seen = worker.turns.load(std::memory_order_relaxed);
        }
    }

    // From the queue of one that has not begun another turn since it was looked at the last time.
    [[nodiscard]] std::coroutine_handle<> take_from_stuck(bool& any_turns) RAPIDSMPF_REQUIRES(mutex_) {
        std::coroutine_handle<> found;
        for (auto& other : slots_) {
            auto const turns = other.turns.load(std::memory_order_relaxed);
            any_turns = any_turns || turns != other.seen || other.queue.size() > 0;
            if (turns == other.seen && !found) {
                found = other.queue.pop();
            }
            other.seen = turns;
        }
        return found;
    }

    // Waits for work; null when the executor ends.
    [[nodiscard]] std::coroutine_handle<> find(Worker& worker) {
        if (auto coroutine = search(worker)) {
            return coroutine;
        }
        UniqueLock lock{mutex_};
        bool watching = false;
        bool may_watch = true;
        int quiet = 0;
        std::coroutine_handle<> found;
        for (;;) {
            found = pop_outside();
            if (!found) {
                found = stop_ ? take_from_any() : take_from_busy(worker);
            }
            if (found || (stop_ && pending_blocking_ == 0)) {
                break;
            }
            if (!watching && may_watch && watch_.load(std::memory_order_relaxed) != Watch::held
                && num_workers_ > 1) {
                watching = true;
                watch_.store(Watch::held, std::memory_order_relaxed);
                quiet = 0;
                note_turns();
            }
            if (tell_standstill(1)) {
                found = worker.queue.pop();  // what that has woken
                if (found) {
                    break;
                }
                continue;
            }
            sleepers_.fetch_add(1, std::memory_order_relaxed);
            if (watching) {
                auto const status = work_.wait_for(lock, watch_pause);
                sleepers_.fetch_sub(1, std::memory_order_relaxed);
                if (status == std::cv_status::timeout) {
                    bool any_turns = false;
                    found = take_from_stuck(any_turns);
                    quiet = any_turns ? 0 : quiet + 1;
                    if (found) {
                        break;
                    }
                    if (quiet == quiet_looks) {
                        // Everything is looked at once more first: the time may have run out just when a thread notified.
                        watching = false;
                        may_watch = false;
                        watch_.store(Watch::nobody, std::memory_order_relaxed);
                    }
                }
            } else {
                auto const since = Clock::now();
                work_.wait(lock);
                sleepers_.fetch_sub(1, std::memory_order_relaxed);
                worker.short_sleeps.slept(Clock::now() - since, !outside_.empty());
                may_watch = true;
            }
        }
        if (watching) {
            // Another takes the duty over: what is queued behind a coroutine that blocks may be what this one will wait for.
            auto const is_handed_over = found && sleepers_.load(std::memory_order_relaxed) > 0;
            watch_.store(is_handed_over ? Watch::wanted : Watch::nobody, std::memory_order_relaxed);
            if (is_handed_over) {
                work_.notify_one();
            }
        }
        if (!found) {
            --num_workers_;
        }
        return found;
    }

    // Spins for a short time before this worker sleeps, if other workers have long turns or if work from outside has lately come
    // about that soon. To find work by spinning takes less time than to be woken.
    [[nodiscard]] std::coroutine_handle<> search(Worker& worker) {
        auto const expects_outside = worker.short_sleeps.should_look();
        if (num_threads == 1 && !expects_outside) {
            return {};
        }
        searching_.fetch_add(1, std::memory_order_relaxed);
        std::coroutine_handle<> found;
        auto const end = Clock::now() + rapidsmpf::detail::ShortSleeps::look_time;
        do {
            found = take_outside();
            if (!found) {
                found = take_from_busy(worker);
            }
        } while (!found && (expects_outside || any_busy(worker)) && Clock::now() < end);
        searching_.fetch_sub(1, std::memory_order_relaxed);
        worker.short_sleeps.found(expects_outside && found);
        if (found && num_outside_.load(std::memory_order_relaxed) > 0
            && sleepers_.load(std::memory_order_relaxed) > 0) {
            wake_one();  // no thread was woken for what came meanwhile
        }
        return found;
    }

    [[nodiscard]] bool any_busy(Worker const& worker) const noexcept {
        return std::ranges::any_of(slots_, [&](Worker const& other) {
            return &other != &worker && other.busy_long.load(std::memory_order_relaxed);
        });
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
    // Whose worker this thread is.
    static thread_local Core const* here_;
    static thread_local Worker* own_;

    HomeProcess home_;
    mutable Mutex mutex_;
    ConditionVariable work_;
    std::vector<Worker> slots_;
    std::deque<std::coroutine_handle<>> outside_ RAPIDSMPF_GUARDED_BY(mutex_);
    // Written under mutex_, read without it for a hint.
    std::atomic<std::size_t> num_outside_{0};
    std::atomic<std::size_t> sleepers_{0};
    std::atomic<Watch> watch_{Watch::nobody};
    std::atomic<int> searching_{0};
    std::atomic<std::size_t> outside_waits_{0};
    std::atomic<bool> has_networks_{false};
    std::vector<std::weak_ptr<RunningNetwork>> networks_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t told_turns_ RAPIDSMPF_GUARDED_BY(mutex_){0};  // that had begun when the networks were told
    std::size_t num_workers_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::list<std::thread> workers_ RAPIDSMPF_GUARDED_BY(mutex_);

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
thread_local Executor::Core const* Executor::Core::here_{nullptr};
thread_local Executor::Core::Worker* Executor::Core::own_{nullptr};

Executor::Executor(std::size_t num_threads) {
    RAPIDSMPF_EXPECTS(
        num_threads > 0,
        "an executor needs at least one thread (num_streaming_threads must be greater than 0)",
        std::invalid_argument);
    core_ = std::make_shared<Core>(num_threads);
    core_->start();
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
Executor::Poster Executor::poster() const {
    return [core = core_](std::coroutine_handle<> coroutine) { core->post(coroutine); };
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
Executor::OutsideWait::OutsideWait(std::shared_ptr<Core> core) noexcept : core_{std::move(core)} {
    core_->begin_outside();
}
Executor::OutsideWait& Executor::OutsideWait::operator=(OutsideWait&& other) noexcept {
    if (this != &other) {
        OutsideWait const ended{std::move(*this)};
        core_ = std::move(other.core_);
    }
    return *this;
}
Executor::OutsideWait::~OutsideWait() {
    if (core_) {
        core_->end_outside();
    }
}
Executor::OutsideWait Executor::outside_wait() const {
    return OutsideWait{core_};
}
void Executor::add_network(std::weak_ptr<RunningNetwork> network) {
    core_->add_network(std::move(network));
}
std::vector<std::shared_ptr<RunningNetwork>> Executor::networks() const {
    return core_->networks();
}
void Executor::look_for_standstill() {
    core_->look_for_standstill();
}
Timers& Executor::timers() {
    return *core_->timers;
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
