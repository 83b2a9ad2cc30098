// Operations on channels that an event loop or a thread of Python waits for.
//
// Threads of the executor never take the GIL on the way of a message: what they complete is put into the mailbox of the loop
// that waits for it, and an eventfd wakes that loop once for all that has come together.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/errors.hpp>
#include <rapidsmpf_python/gil.hpp>
#include <rapidsmpf_python/interrupt.hpp>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rapidsmpf/core/detail/short_sleeps.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/channel.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/detail/outside_progress.hpp>
#include <rapidsmpf/streaming/message.hpp>
#include <rapidsmpf/streaming/network.hpp>

namespace rapidsmpf::python {

// Python objects that a loop is to look at. Owns references; shared by the loop and those who put.
class Mailbox : public std::enable_shared_from_this<Mailbox> {
  public:
    Mailbox() : descriptor_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
        if (descriptor_ < 0) {
            throw SystemError{
                "an event loop of a network could not be made: no more file descriptors", errno};
        }
    }
    ~Mailbox() {
        drop(objects_);
        ::close(descriptor_);
    }
    Mailbox(Mailbox const&) = delete;
    Mailbox& operator=(Mailbox const&) = delete;

    // Readable when something was put by another thread than the loop's, which slept.
    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
    // Between them the loop's thread calls the library, and looks for what was put when it is back.
    void enter() noexcept { current() = this; }
    static void leave() noexcept { current() = nullptr; }
    // Takes over a reference. Any thread, without the GIL.
    void put(PyObject* object) noexcept {
        bool first = false;
        {
            UniqueLock lock{mutex_};
            if (closed_) {
                lock.unlock();
                drop({object});
                return;
            }
            first = objects_.empty();
            objects_.push_back(object);
        }
        waiting_.store(true);
        if (first && current() != this && sleeps_.load()) {
            std::uint64_t const one = 1;
            [[maybe_unused]] auto const written = ::write(descriptor_, &one, sizeof one);
        }
    }
    [[nodiscard]] bool has_any() const noexcept { return waiting_.load(std::memory_order_acquire); }

    // The next three are for a loop that reports when it blocks; any other loop counts as blocked always, so that each first object
    // is signalled. look() returns whether there is anything, and spins for a short time for it if that pays; without the GIL.
    [[nodiscard]] bool look() noexcept {
        if (has_any() || !short_sleeps_.should_look()) {
            return has_any();
        }
        auto const end = Clock::now() + ShortSleeps::look_time;
        while (!has_any() && Clock::now() < end) {
        }
        auto const found = has_any();
        short_sleeps_.found(found);
        return found;
    }
    // False: it must not, for there is something.
    [[nodiscard]] bool fall_asleep() noexcept {
        asleep_since_ = Clock::now();
        sleeps_.store(true);
        if (waiting_.load()) {
            sleeps_.store(false);
            return false;
        }
        return true;
    }
    void wake_up() noexcept {
        sleeps_.store(false);
        short_sleeps_.slept(Clock::now() - asleep_since_, has_any());
    }

    // The loop's thread: all objects, whose references the caller takes over.
    [[nodiscard]] std::vector<PyObject*> take() {
        waiting_.store(false, std::memory_order_relaxed);
        MutexLock const lock{mutex_};
        return std::exchange(objects_, {});
    }
    // The loop has ended: what is put from now on is dropped.
    void close() {
        MutexLock const lock{mutex_};
        closed_ = true;
    }
    void clear_signal() noexcept {
        std::uint64_t count = 0;
        [[maybe_unused]] auto const read = ::read(descriptor_, &count, sizeof count);
    }

  private:
    using Clock = std::chrono::steady_clock;
    using ShortSleeps = rapidsmpf::detail::ShortSleeps;

    static void drop(std::vector<PyObject*> const& objects) noexcept {
        if (objects.empty()) {
            return;
        }
        if (WithGil const gil; gil) {
            for (auto* const object : objects) {
                Py_DECREF(object);
            }
        }
    }
    [[nodiscard]] static Mailbox*& current() noexcept {
        thread_local Mailbox* mailbox = nullptr;
        return mailbox;
    }
    int descriptor_;
    std::atomic<bool> waiting_{false};
    std::atomic<bool> sleeps_{true};
    ShortSleeps short_sleeps_;  // the loop's
    Clock::time_point asleep_since_;
    Mutex mutex_;
    std::vector<PyObject*> objects_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool closed_ RAPIDSMPF_GUARDED_BY(mutex_){false};
};

using MailboxPointer = std::shared_ptr<Mailbox>;

// One operation on a channel or its metadata. Owns none of what it is given, which has to live as long.
class ChannelOperation {
  public:
    using Progress = streaming::detail::OutsideProgress;
    enum class Kind : std::uint8_t { send, receive, drain };

    ChannelOperation(streaming::Channel& channel, bool on_metadata, int kind, streaming::Message&& message)
        : channel_{channel},
          operation_{make(
              on_metadata ? channel.metadata() : channel, static_cast<Kind>(kind), std::move(message))} {}
    ChannelOperation(ChannelOperation const&) = delete;
    ChannelOperation& operator=(ChannelOperation const&) = delete;

    // It is an actor's, whose account has messages and waits but for metadata. Before it starts.
    void set_actor(streaming::Activity* activity, Progress* progress, bool on_metadata) noexcept {
        progress_ = progress;
        operation_.set_activity(on_metadata ? nullptr : activity);
    }
    // Whether it has to wait; then `waiter` is put into the mailbox in the end, which takes over a reference.
    [[nodiscard]] bool start_on_loop(Mailbox& mailbox, PyObject* waiter) {
        mailbox_ = &mailbox;
        waiter_ = waiter;
        if (progress_ != nullptr) {
            progress_->begin();  // before it can end
        }
        bool waits = false;
        try {
            waits = operation_.start(
                [](void* whom) noexcept {
                    auto& self = *static_cast<ChannelOperation*>(whom);
                    self.end_progress();
                    // The waiter, and with it this and the mailbox, may be gone as soon as it has been put.
                    auto const box = self.mailbox_->shared_from_this();
                    box->put(self.waiter_);
                },
                this);
        } catch (...) {
            end_progress();
            throw;
        }
        if (!waits) {
            end_progress();
        }
        return waits;
    }
    // Gives up. False: the waiter comes into the mailbox.
    [[nodiscard]] bool withdraw() {
        if (!operation_.withdraw()) {
            return false;
        }
        end_progress();
        return true;
    }

    // On a thread that may wait, without the GIL. In the main thread Ctrl-C ends the wait.
    void run_blocking(bool sees_signals) {
        auto const& executor = *channel_.executor();
        if (executor.runs_this_thread()) {
            throw std::logic_error{"a blocking channel operation would stall a thread of the executor"};
        }
        Blocked blocked{progress_};
        if (!operation_.start([](void* whom) noexcept { static_cast<Blocked*>(whom)->set(); }, &blocked)) {
            return;
        }
        blocked.begin();
        while (!blocked.wait_for(detail::slice)) {
            if (progress_ != nullptr) {
                channel_.executor()->look_for_standstill();
            }
            if (!sees_signals) {
                continue;
            }
            if (auto const error = detail::raised_by_signal()) {
                if (!operation_.withdraw()) {
                    blocked.wait();
                    operation_.put_back();
                }
                throw PythonError{*error};
            }
        }
    }

    [[nodiscard]] bool succeeded() { return operation_.succeeded(); }
    // Whether there is a message.
    [[nodiscard]] bool take(streaming::Message& message) {
        auto taken = operation_.take();
        if (!taken) {
            return false;
        }
        message = std::move(*taken);
        return true;
    }
    void put_back() { operation_.put_back(); }

  private:
    // A thread that waits. Its actor, if it has one, is known to wait between begin() and set().
    class Blocked {
      public:
        explicit Blocked(Progress* progress) noexcept : progress_{progress} {}
        Blocked(Blocked const&) = delete;
        Blocked& operator=(Blocked const&) = delete;
        ~Blocked() { unblock(); }
        // The operation has begun and has to wait; it may have ended by now.
        void begin() noexcept {
            MutexLock const lock{mutex_};
            if (progress_ != nullptr && !set_) {
                progress_->block();
                told_ = true;
            }
        }
        void set() noexcept {
            MutexLock const lock{mutex_};
            unblock();
            set_ = true;
            changed_.notify_one();  // under the lock: the waiter destroys this as soon as it can take it
        }
        void wait() {
            UniqueLock lock{mutex_};
            changed_.wait(lock, [this]() RAPIDSMPF_REQUIRES(mutex_) { return set_; });
        }
        [[nodiscard]] bool wait_for(std::chrono::milliseconds time) {
            UniqueLock lock{mutex_};
            return changed_.wait_for(lock, time, [this]() RAPIDSMPF_REQUIRES(mutex_) { return set_; });
        }

      private:
        void unblock() noexcept {
            if (std::exchange(told_, false)) {
                progress_->unblock();
            }
        }
        Progress* const progress_;  // or null
        bool told_{false};
        Mutex mutex_;
        ConditionVariable changed_;
        bool set_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    };

    [[nodiscard]] static streaming::Channel::CallbackOperation make(
        streaming::Channel& channel, Kind kind, streaming::Message&& message) {
        using Operation = streaming::Channel::CallbackOperation;
        switch (kind) {
            case Kind::send:
                return Operation::send(channel, std::move(message));
            case Kind::receive:
                return Operation::receive(channel);
            case Kind::drain:
                break;
        }
        return Operation::drain(channel);
    }

    void end_progress() noexcept {
        if (progress_ != nullptr) {
            progress_->end();
        }
    }

    streaming::Channel& channel_;
    streaming::Channel::CallbackOperation operation_;
    Progress* progress_{nullptr};
    Mailbox* mailbox_{nullptr};
    PyObject* waiter_{nullptr};
};

[[nodiscard]] inline std::shared_ptr<streaming::detail::OutsideProgress> make_progress() {
    return std::make_shared<streaming::detail::OutsideProgress>();
}

[[nodiscard]] inline streaming::ChannelPtr create_channel(
    streaming::Context const& context, std::size_t messages, std::size_t bytes) {
    return context.create_channel(streaming::ChannelCapacity{messages, bytes});
}

}  // namespace rapidsmpf::python
