// Mutexes that say what they guard.
//
// Mutex, MutexLock, UniqueLock and ConditionVariable are std::mutex, std::lock_guard, std::unique_lock and
// std::condition_variable, and cost the same. The macros say which members a mutex guards and which functions are called
// with it held; clang checks them (scripts/lint_locks.py, part of `make lint`), other compilers see nothing.
//
//     class Counter {
//       public:
//         void add() {
//             MutexLock const lock{mutex_};
//             add_locked();
//         }
//
//       private:
//         void add_locked() RAPIDSMPF_REQUIRES(mutex_) { ++count_; }
//
//         Mutex mutex_;
//         int count_ RAPIDSMPF_GUARDED_BY(mutex_){0};
//     };
//
// The condition of a wait is a lambda, which the analysis reads as a function of its own:
//
//     changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return count_ > 0; });
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#if defined(__clang__) && !defined(__CUDACC__)
#define RAPIDSMPF_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define RAPIDSMPF_THREAD_ANNOTATION(x)
#endif

// Of a member: it is read and written under the mutex only. PT_: what the pointer points to is.
#define RAPIDSMPF_GUARDED_BY(...) RAPIDSMPF_THREAD_ANNOTATION(guarded_by(__VA_ARGS__))
#define RAPIDSMPF_PT_GUARDED_BY(...) RAPIDSMPF_THREAD_ANNOTATION(pt_guarded_by(__VA_ARGS__))
// Of a function: its caller holds the mutex, before and after.
#define RAPIDSMPF_REQUIRES(...) RAPIDSMPF_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// Of a function: its caller does not hold the mutex, because it takes it itself, or waits for another thread that does.
#define RAPIDSMPF_EXCLUDES(...) RAPIDSMPF_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// Of a mutex: it is taken before, after that one where both are held.
#define RAPIDSMPF_ACQUIRED_BEFORE(...) RAPIDSMPF_THREAD_ANNOTATION(acquired_before(__VA_ARGS__))
#define RAPIDSMPF_ACQUIRED_AFTER(...) RAPIDSMPF_THREAD_ANNOTATION(acquired_after(__VA_ARGS__))
// Of a function that locks, unlocks, or tries to.
#define RAPIDSMPF_ACQUIRE(...) RAPIDSMPF_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RAPIDSMPF_RELEASE(...) RAPIDSMPF_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define RAPIDSMPF_TRY_ACQUIRE(...) RAPIDSMPF_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
// Of a function that returns a mutex: which one.
#define RAPIDSMPF_RETURN_CAPABILITY(x) RAPIDSMPF_THREAD_ANNOTATION(lock_returned(x))
// Of a class: a mutex, and what locks one for as long as it lives.
#define RAPIDSMPF_CAPABILITY(name) RAPIDSMPF_THREAD_ANNOTATION(capability(name))
#define RAPIDSMPF_SCOPED_CAPABILITY RAPIDSMPF_THREAD_ANNOTATION(scoped_lockable)
#define RAPIDSMPF_ASSERT_CAPABILITY(x) RAPIDSMPF_THREAD_ANNOTATION(assert_capability(x))
// Of a function that the analysis cannot follow. A comment says why it is right.
#define RAPIDSMPF_NO_THREAD_SAFETY_ANALYSIS RAPIDSMPF_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace rapidsmpf {

class RAPIDSMPF_CAPABILITY("mutex") Mutex {
  public:
    Mutex() = default;
    Mutex(Mutex const&) = delete;
    Mutex& operator=(Mutex const&) = delete;

    void lock() RAPIDSMPF_ACQUIRE() { mutex_.lock(); }
    void unlock() RAPIDSMPF_RELEASE() { mutex_.unlock(); }
    [[nodiscard]] bool try_lock() RAPIDSMPF_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

    // Tells the analysis that this thread holds the mutex, where it cannot see that. Does nothing.
    void assert_held() const RAPIDSMPF_ASSERT_CAPABILITY(this) {}

  private:
    friend class UniqueLock;
    std::mutex mutex_;
};

// Holds a mutex as long as it lives.
class RAPIDSMPF_SCOPED_CAPABILITY MutexLock {
  public:
    explicit MutexLock(Mutex& mutex) RAPIDSMPF_ACQUIRE(mutex) : mutex_{mutex} { mutex_.lock(); }
    ~MutexLock() RAPIDSMPF_RELEASE() { mutex_.unlock(); }
    MutexLock(MutexLock const&) = delete;
    MutexLock& operator=(MutexLock const&) = delete;

  private:
    Mutex& mutex_;
};

// The same, but may unlock meanwhile, and wait on a ConditionVariable.
class RAPIDSMPF_SCOPED_CAPABILITY UniqueLock {
  public:
    explicit UniqueLock(Mutex& mutex) RAPIDSMPF_ACQUIRE(mutex) : lock_{mutex.mutex_} {}
    // Takes over a mutex that the caller has locked.
    UniqueLock(Mutex& mutex, std::adopt_lock_t adopt) RAPIDSMPF_REQUIRES(mutex)
        : lock_{mutex.mutex_, adopt} {}
    ~UniqueLock() RAPIDSMPF_RELEASE() = default;
    UniqueLock(UniqueLock const&) = delete;
    UniqueLock& operator=(UniqueLock const&) = delete;

    void lock() RAPIDSMPF_ACQUIRE() { lock_.lock(); }
    void unlock() RAPIDSMPF_RELEASE() { lock_.unlock(); }
    [[nodiscard]] bool owns_lock() const noexcept { return lock_.owns_lock(); }

  private:
    friend class ConditionVariable;
    std::unique_lock<std::mutex> lock_;
};

// Lets go of a mutex that the caller holds, as long as it lives.
class RAPIDSMPF_SCOPED_CAPABILITY MutexUnlock {
  public:
    explicit MutexUnlock(Mutex& mutex) RAPIDSMPF_RELEASE(mutex) : mutex_{mutex} { mutex_.unlock(); }
    ~MutexUnlock() RAPIDSMPF_RELEASE() { mutex_.lock(); }
    MutexUnlock(MutexUnlock const&) = delete;
    MutexUnlock& operator=(MutexUnlock const&) = delete;

  private:
    Mutex& mutex_;
};

// The mutex is held before and after a wait, and while the condition is asked.
class ConditionVariable {
  public:
    void notify_one() noexcept { changed_.notify_one(); }
    void notify_all() noexcept { changed_.notify_all(); }

    void wait(UniqueLock& lock) { changed_.wait(lock.lock_); }
    template <typename Condition>
    void wait(UniqueLock& lock, Condition condition) {
        changed_.wait(lock.lock_, std::move(condition));
    }
    template <typename Rep, typename Period>
    std::cv_status wait_for(UniqueLock& lock, std::chrono::duration<Rep, Period> const& time) {
        return changed_.wait_for(lock.lock_, time);
    }
    template <typename Rep, typename Period, typename Condition>
    bool wait_for(UniqueLock& lock, std::chrono::duration<Rep, Period> const& time, Condition condition) {
        return changed_.wait_for(lock.lock_, time, std::move(condition));
    }
    template <typename Clock, typename Duration>
    std::cv_status wait_until(UniqueLock& lock, std::chrono::time_point<Clock, Duration> const& time) {
        return changed_.wait_until(lock.lock_, time);
    }
    template <typename Clock, typename Duration, typename Condition>
    bool wait_until(
        UniqueLock& lock, std::chrono::time_point<Clock, Duration> const& time, Condition condition) {
        return changed_.wait_until(lock.lock_, time, std::move(condition));
    }

  private:
    std::condition_variable changed_;
};

}  // namespace rapidsmpf
