#include <rapidsmpf/core/progress_thread.hpp>

#include <algorithm>
#include <chrono>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include <poll.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf {

namespace {
// A lost wake-up costs at most this much: a bound, not a polling interval.
constexpr std::chrono::milliseconds longest_park{100};
// Rounds without progress before parking: a message that is about to arrive is taken without a sleep.
constexpr int idle_rounds_before_park = 100;
}  // namespace

// What the thread works on.
class ProgressThread::Loop {
  public:
    explicit Loop(std::shared_ptr<Statistics> statistics)
        : statistics_{
              statistics ? std::move(statistics) : std::make_shared<Statistics>(Statistics::Enabled::no)} {}

    FunctionId add_function(Function function);
    void remove_function(FunctionId id);
    void wake() noexcept;
    SourceId add_event_source(int descriptor, std::function<bool()> arm);
    void remove_event_source(SourceId id);
    void stop();
    void run();
    [[nodiscard]] std::shared_ptr<Statistics> const& statistics() const noexcept { return statistics_; }
    [[nodiscard]] bool is_current() const noexcept { return thread_.load() == std::this_thread::get_id(); }

  private:
    struct Entry {
        FunctionId id;
        Function function;
    };
    struct EventSource {
        EventSource(SourceId id_, int descriptor_, std::function<bool()> arm_)
            : id{id_}, descriptor{descriptor_}, arm{std::move(arm_)} {}
        SourceId id;
        int descriptor;
        std::function<bool()> arm;
    };
    void go_round();
    void wait_for_work(std::uint64_t seen_wakes);
    void park(std::vector<std::shared_ptr<EventSource const>> const& sources);
    [[nodiscard]] std::chrono::nanoseconds park_time() const;

    std::shared_ptr<Statistics> statistics_;
    std::atomic<std::thread::id> thread_{};
    std::optional<Clock::time_point> again_;  // touched by that thread only

    Mutex mutex_;
    ConditionVariable changed_;
    std::list<Entry> added_ RAPIDSMPF_GUARDED_BY(mutex_);  // waiting to be taken into the loop
    // Touched by the loop thread, under the mutex except while running one.
    std::list<Entry> functions_ RAPIDSMPF_GUARDED_BY(mutex_);
    FunctionId next_id_ RAPIDSMPF_GUARDED_BY(mutex_){1};
    FunctionId running_id_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::list<FunctionId> removals_ RAPIDSMPF_GUARDED_BY(mutex_);  // asked for while the function ran
    std::vector<std::shared_ptr<EventSource const>> sources_ RAPIDSMPF_GUARDED_BY(mutex_);
    SourceId next_source_ RAPIDSMPF_GUARDED_BY(mutex_){1};
    std::uint64_t parks_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    bool stop_ RAPIDSMPF_GUARDED_BY(mutex_){false};

    EventDescriptor wake_event_;  // ends the park
    std::atomic<std::uint64_t> wakes_{0};
    std::atomic<bool> parked_{false};
    std::atomic<bool> signalled_{false};  // this park has been ended: who comes after need not
};

ProgressThread::ProgressThread(std::shared_ptr<Statistics> statistics)
    : loop_{std::make_shared<Loop>(std::move(statistics))}, running_{true} {
    thread_ = std::make_unique<std::thread>([loop = loop_] { loop->run(); });
}

ProgressThread::~ProgressThread() {
    if (!home_.is_here()) {
        // There is no thread to be joined or detached, and it may have held any lock.
        static_cast<void>(thread_.release());
        return;
    }
    stop();
    if (thread_->joinable()) {
        thread_->detach();  // this is that thread
    }
}

void ProgressThread::stop() {
    if (!home_.is_here()) {
        return;
    }
    loop_->stop();
    if (thread_->joinable() && !is_current()) {
        thread_->join();
    }
    running_ = false;
}

ProgressThread::TickResult ProgressThread::TickResult::idle(Waits waits) noexcept {
    TickResult result;
    result.waits = waits;
    return result;
}

ProgressThread::TickResult ProgressThread::TickResult::busy() noexcept {
    return busy_if(true);
}

ProgressThread::TickResult ProgressThread::TickResult::done() noexcept {
    TickResult result;
    result.finished = true;
    return result;
}

ProgressThread::TickResult ProgressThread::TickResult::busy_if(bool made_progress) noexcept {
    TickResult result;
    result.made_progress = made_progress;
    return result;
}

ProgressThread::TickResult& ProgressThread::TickResult::operator|=(TickResult const& other) noexcept {
    made_progress = made_progress || other.made_progress;
    in_flight = in_flight || other.in_flight;
    finished = finished || other.finished;
    waits = std::max(waits, other.waits);
    if (other.wake_at) {
        wake_at = std::min(wake_at.value_or(*other.wake_at), *other.wake_at);
    }
    return *this;
}

ProgressThread::FunctionId ProgressThread::add_function(Function function) {
    return loop_->add_function(std::move(function));
}

void ProgressThread::remove_function(FunctionId id) {
    loop_->remove_function(id);
}

void ProgressThread::wake() noexcept {
    loop_->wake();
}

ProgressThread::SourceId ProgressThread::add_event_source(int descriptor, std::function<bool()> arm) {
    return loop_->add_event_source(descriptor, std::move(arm));
}

void ProgressThread::remove_event_source(SourceId id) {
    loop_->remove_event_source(id);
}

std::shared_ptr<Statistics> const& ProgressThread::statistics() const noexcept {
    return loop_->statistics();
}

bool ProgressThread::is_current() const noexcept {
    return loop_->is_current();
}

void ProgressThread::Loop::stop() {
    {
        MutexLock lock{mutex_};
        stop_ = true;
    }
    wake();
}

ProgressThread::FunctionId ProgressThread::Loop::add_function(Function function) {
    FunctionId id{0};
    {
        MutexLock lock{mutex_};
        id = next_id_++;
        added_.push_back(Entry{id, std::move(function)});
    }
    wake();
    return id;
}

void ProgressThread::Loop::remove_function(FunctionId id) {
    std::list<Entry> dropped;  // destroyed after the lock: a function's captures may be heavy
    UniqueLock lock{mutex_};
    auto const take = [&](std::list<Entry>& from) {
        auto const found =
            std::find_if(from.begin(), from.end(), [&](Entry const& entry) { return entry.id == id; });
        if (found != from.end()) {
            dropped.splice(dropped.end(), from, found);
        }
    };
    take(added_);
    if (is_current()) {
        if (running_id_ != id) {
            take(functions_);
        }
        return;
    }
    if (running_id_ != id) {
        take(functions_);
        return;
    }
    // It is running: the loop drops it as soon as it returns.
    removals_.push_back(id);
    changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) {
        return std::find(removals_.begin(), removals_.end(), id) == removals_.end();
    });
}

void ProgressThread::Loop::wake() noexcept {
    // Pairs with wait_for_work(): either we see parked_, or the thread sees the new count before it parks.
    wakes_.fetch_add(1);
    if (parked_.load() && !signalled_.exchange(true)) {
        wake_event_.signal();
    }
}

ProgressThread::SourceId ProgressThread::Loop::add_event_source(int descriptor, std::function<bool()> arm) {
    SourceId id{0};
    {
        MutexLock lock{mutex_};
        id = next_source_++;
        sources_.push_back(std::make_shared<EventSource const>(id, descriptor, std::move(arm)));
    }
    wake();  // a park in progress does not know it
    return id;
}

void ProgressThread::Loop::remove_event_source(SourceId id) {
    UniqueLock lock{mutex_};
    std::erase_if(sources_, [&](auto const& source) { return source->id == id; });
    if (is_current()) {
        return;
    }
    // A park in progress may still use it.
    if (parked_) {
        wake();
        auto const round = parks_;
        changed_.wait(
            lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return !parked_ || parks_ != round || stop_; });
    }
}

void ProgressThread::Loop::wait_for_work(std::uint64_t seen_wakes) {
    UniqueLock lock{mutex_};
    signalled_.store(false);
    parked_.store(true);
    if (!stop_ && added_.empty() && wakes_.load() == seen_wakes) {
        auto const sources = sources_;
        lock.unlock();
        park(sources);
        lock.lock();
    }
    ++parks_;
    parked_.store(false);
    changed_.notify_all();
}

void ProgressThread::Loop::park(std::vector<std::shared_ptr<EventSource const>> const& sources) {
    std::vector<pollfd> waiting;
    waiting.reserve(sources.size() + 1);
    waiting.push_back({wake_event_.get(), POLLIN, 0});
    for (auto const& source : sources) {
        if (!source->arm()) {
            return;
        }
        waiting.push_back({source->descriptor, POLLIN, 0});
    }
    auto const time = park_time();
    auto const seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
    timespec const timeout{seconds.count(), (time - seconds).count()};
    ::ppoll(waiting.data(), waiting.size(), &timeout, nullptr);
    if (waiting.front().revents != 0) {
        wake_event_.drain();
    }
}

std::chrono::nanoseconds ProgressThread::Loop::park_time() const {
    if (!again_) {
        return longest_park;
    }
    return std::clamp<std::chrono::nanoseconds>(
        *again_ - Clock::now(), std::chrono::nanoseconds{0}, longest_park);
}

void ProgressThread::Loop::run() {
    thread_ = std::this_thread::get_id();
    go_round();
    thread_ = std::thread::id{};  // numbers of threads are used again
}

void ProgressThread::Loop::go_round() {
    int idle_rounds = 0;
    std::uint64_t seen_wakes = 0;
    for (;;) {
        TickResult found;
        {
            ScopedTimer const timer{*statistics_, statistic::id("progress-thread-round")};
            UniqueLock lock{mutex_};
            if (stop_) {
                return;
            }
            functions_.splice(functions_.end(), added_);
            for (auto entry = functions_.begin(); entry != functions_.end();) {
                auto const id = entry->id;
                running_id_ = id;
                lock.unlock();
                auto const result = entry->function();
                lock.lock();
                running_id_ = 0;
                // The function may have removed others, but never itself, so `entry` is still valid.
                auto const here = entry++;
                auto const removal = std::find(removals_.begin(), removals_.end(), id);
                if (result.finished || removal != removals_.end()) {
                    std::list<Entry> dropped;
                    dropped.splice(dropped.end(), functions_, here);
                    lock.unlock();
                    dropped.clear();
                    lock.lock();
                    if (removal != removals_.end()) {
                        removals_.erase(removal);
                        changed_.notify_all();
                    }
                }
                found |= result;
            }
        }
        // A wake-up that brought no work is no reason to stay awake: only a round that did something is.
        auto const wakes = wakes_.load();
        int const enough = found.waits == TickResult::Waits::relaxed ? 1 : idle_rounds_before_park;
        again_ = found.wake_at;
        if (found.made_progress || found.in_flight || found.finished) {
            idle_rounds = 0;
        } else if (++idle_rounds >= enough && wakes == seen_wakes) {
            wait_for_work(seen_wakes);
        }
        seen_wakes = wakes;
    }
}

}  // namespace rapidsmpf
