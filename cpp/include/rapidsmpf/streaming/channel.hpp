// A bounded queue of messages between actors: any number of producers and of consumers, with back-pressure.
//
// How a channel ends:
//   finish()    called by a producer after its last message. What is queued is still received, then receive()
//               gives nothing.
//   shutdown()  called by a consumer that reads no more. What is queued is dropped; send() returns false, so
//               that producers stop, and shut their own inputs in turn.
//   cancel(e)   something failed. What is queued is dropped, and every pending and later operation throws e:
//               neither side can mistake the failure for a regular end.
//
// Messages of one producer arrive in the order in which it sent them. Waiting senders and receivers are served
// first come, first served; coroutines that waited are resumed on a thread of the executor. The blocking variants are
// for threads that run no coroutines. All methods are thread-safe. The channel must outlive every
// operation on it: coroutines hold it by shared_ptr.
//
// Queued messages belong to the channel. With a BufferResource what waits is under its arbiter: packed data and Buffers may be moved
// to lower tiers, DISK in the end, what is queued last first; tables are packed and moved when memory is short. A receiver gets
// a message with its bytes in memory, and waits like any other receiver while they are read back.
//
// Beside its messages a channel has others, metadata(): what is said about their stream (a schema, how it is partitioned).
// They may be sent and received at any time, sending them never waits, and they end with the channel at the latest.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/streaming/cancellation.hpp>
#include <rapidsmpf/streaming/executor.hpp>
#include <rapidsmpf/streaming/message.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

// How much a channel holds before send() waits: a number of messages, and of bytes by their content
// descriptions. A message larger than the byte limit is let in alone.
class ChannelCapacity {
  public:
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
    static constexpr std::size_t default_messages = 4;

    // Throws std::invalid_argument when `messages` is zero.
    explicit ChannelCapacity(std::size_t messages = default_messages, std::size_t bytes = unlimited);
    [[nodiscard]] std::size_t messages() const noexcept { return messages_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  private:
    std::size_t messages_;
    std::size_t bytes_;
};

class NetworkTrace;

class Channel {
    struct Use;
    struct Waiter;
    struct WaiterList;

  public:
    static constexpr int spill_priority = -1;  // after the collectives: what they hold is needed later

    // `resource` may be null: then queued messages stay where they are.
    explicit Channel(
        std::shared_ptr<Executor> executor, ChannelCapacity capacity = ChannelCapacity{},
        std::shared_ptr<BufferResource> resource = nullptr);
    ~Channel();
    Channel(Channel const&) = delete;
    Channel& operator=(Channel const&) = delete;

    class SendAwaiter;
    class ReceiveAwaiter;
    class DrainAwaiter;
    class CallbackOperation;

    // co_await send(m): waits for room; true when the channel took the message, false when it was shut down.
    // Throws std::logic_error after finish(), std::invalid_argument for an empty message, what cancel() was given.
    [[nodiscard]] SendAwaiter send(Message&& message);
    // co_await receive(): the next message; nothing when the producers have finished or the channel was shut down.
    // Throws what cancel() was given.
    [[nodiscard]] ReceiveAwaiter receive();
    // co_await drain(): finish(), then waits until all messages were received or the channel was shut down. Throws
    // what cancel() was given.
    [[nodiscard]] DrainAwaiter drain();

    // The same for threads that may block. Throw std::logic_error on a thread of the executor.
    bool send_blocking(Message message);
    [[nodiscard]] std::optional<Message> receive_blocking();
    void drain_blocking();

    // Takes a message if there is one now. Nothing does not mean the end. Throws what cancel() was given.
    [[nodiscard]] std::optional<Message> try_receive();

    // The channel of what is said about the messages; without limit. finish() of this one finishes it too, and so do
    // shutdown() and cancel(); its own finish() says that no more metadata comes.
    [[nodiscard]] Channel& metadata();

    void finish();
    void shutdown();
    // Only the first error counts. Throws std::invalid_argument when it is null.
    void cancel(std::exception_ptr error);

    // Cancelled when the channel is shut (with a CancelledError) or cancelled: for producers that wait for something else, which
    // is not needed then.
    [[nodiscard]] CancellationToken closed();

    // Threads that are no actors of a network send to it (receive from it): then the network asks for no producer (consumer) among
    // its actors, and does not take their silence for a standstill. Before the network begins.
    void set_outside_producer();
    void set_outside_consumer();

    // What it is doing now, and what it has done.
    struct State {
        std::size_t messages;  // queued
        std::size_t bytes;
        std::size_t senders;  // that wait for room
        std::size_t receivers;
        std::size_t drainers;
        std::uint64_t sent;  // messages taken so far
        std::uint64_t sent_bytes;
        std::uint64_t sent_rows;
        bool is_finished;
        bool is_closed;
        bool has_outside_producer;
        bool has_outside_consumer;
    };
    [[nodiscard]] State state() const;

    // For this repository: what an actor has sent to it and received from it.
    struct Share {
        std::uint64_t sent;
        std::uint64_t sent_rows;
        std::uint64_t sent_bytes;
        std::uint64_t received;
        std::uint64_t received_rows;
        std::uint64_t received_bytes;
        std::int64_t for_room;  // nanoseconds that it has waited
        std::int64_t for_input;
        bool waits_for_room;
        bool waits_for_end;
        bool waits_for_input;
    };
    [[nodiscard]] Share share_of(std::uint64_t actor) const;
    // For this repository: `trace` records the channel's operations from now on; null: none does.
    void set_trace(std::shared_ptr<NetworkTrace> trace);
    // For this repository: names it in traces. Of this process, never zero, never used again.
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

    // Messages and bytes queued now (what waits in senders excluded).
    [[nodiscard]] std::size_t size() const;
    [[nodiscard]] std::size_t bytes() const;
    [[nodiscard]] bool is_finished() const;
    // Shut down or cancelled.
    [[nodiscard]] bool is_closed() const;
    [[nodiscard]] ChannelCapacity capacity() const noexcept { return capacity_; }
    [[nodiscard]] std::shared_ptr<Executor> const& executor() const noexcept { return executor_; }

    // Moves queued messages that the arbiter cannot move by itself (tables, types with a spill() of their own) to a lower tier until
    // `amount` bytes are freed; returns how many were.
    std::size_t spill(std::size_t amount);

  private:
    enum class Outcome : std::uint8_t { pending, done, ended, failed };
    enum class Action : std::uint8_t { send, receive, drain };

    // One call, in the frame of its coroutine or on the stack of its thread. While it waits it is in one
    // of the lists; the thread that removes it completes and wakes it.
    struct Waiter {
        explicit Waiter(Action action_) noexcept : action{action_} {}
        Waiter(Action action_, Message&& message_) noexcept : action{action_}, message{std::move(message_)} {}
        Action action;
        Outcome outcome{Outcome::pending};
        Message message;  // to send, or received
        std::exception_ptr error;
        std::coroutine_handle<> coroutine;       // either this is woken
        ConditionVariable* parked{nullptr};      // or this
        void (*done)(void*) noexcept {nullptr};  // or this is called, with `whom`
        void* whom{nullptr};
        Waiter* next{nullptr};
        Use* use{nullptr};          // whose account it is on, if anyone's
        void const* lane{nullptr};  // which part of theirs it is
        std::int64_t since{0};      // when its wait began, if it waits
        std::int64_t begun{0};      // exactly, if it is traced
    };
    // First in, first out; owns nothing.
    struct WaiterList {
        [[nodiscard]] bool empty() const noexcept { return first == nullptr; }
        void push(Waiter& waiter) noexcept;
        [[nodiscard]] Waiter& pop() noexcept;
        [[nodiscard]] std::size_t size() const noexcept;
        // Whether it was there.
        bool remove(Waiter const& waiter) noexcept;
        Waiter* first{nullptr};
        Waiter* last{nullptr};
    };
    struct Entry;  // a message that waits
    // Messages that wait, in order; stay where they are. Owns them, and keeps the memory of some for those to come.
    class EntryList {
      public:
        EntryList() noexcept = default;
        EntryList(EntryList&& other) noexcept;
        EntryList(EntryList const&) = delete;
        EntryList& operator=(EntryList const&) = delete;
        ~EntryList();
        [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
        [[nodiscard]] std::size_t size() const noexcept { return size_; }
        [[nodiscard]] Entry& front() noexcept { return *first_; }
        [[nodiscard]] Entry* last() noexcept { return last_; }
        Entry& push_back(Message&& message);
        Entry& push_front(Message&& message);
        [[nodiscard]] Message pop_front() noexcept;
        // All of them.
        [[nodiscard]] EntryList take() noexcept { return std::move(*this); }

      private:
        static constexpr std::size_t most_spare = 16;
        [[nodiscard]] Entry& make(Message&& message);

        Entry* first_{nullptr};
        Entry* last_{nullptr};
        Entry* spare_{nullptr};
        std::size_t size_{0};
        std::size_t num_spare_{0};
    };

    [[noreturn]] static void throw_empty();
    // Completes the call or queues it. Whether it has to wait.
    [[nodiscard]] bool start_or_wait(
        Waiter& waiter, std::coroutine_handle<> coroutine, detail::ActorPart part);
    void run_blocking(Waiter& waiter);
    // Takes it out of its list; false when it was settled.
    [[nodiscard]] bool withdraw(Waiter& waiter);
    // Puts back what was received, before all else.
    void put_back(Waiter& waiter);
    static void rethrow(Waiter& waiter) {
        if (waiter.error) {
            std::rethrow_exception(std::exchange(waiter.error, nullptr));
        }
    }

    // Returns the counts of an actor at one end of this channel; creates them at its first use.
    [[nodiscard]] Use& use_of(Activity const& activity, Action action) RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] Use& find_use(std::uint64_t actor, Action action) RAPIDSMPF_REQUIRES(mutex_);
    // `message` comes over by this call, which has ended.
    void count(Waiter const& waiter, Message const& message, std::size_t bytes) noexcept
        RAPIDSMPF_REQUIRES(mutex_);
    // The message that this call has received goes back to the queue.
    void discount(Waiter const& waiter) noexcept RAPIDSMPF_REQUIRES(mutex_);
    // The call waits from now on, and no longer.
    void begin_wait(Waiter& waiter) noexcept RAPIDSMPF_REQUIRES(mutex_);
    void end_wait(Waiter& waiter) noexcept RAPIDSMPF_REQUIRES(mutex_);
    // It has ended, with a message or without; for those that are on an account, if there is a trace.
    void trace(Waiter const& waiter, Message const* message) noexcept RAPIDSMPF_REQUIRES(mutex_);

    // They put the waiters to be woken in `woken`.
    [[nodiscard]] bool try_start(Waiter& waiter, WaiterList& woken) RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] bool try_now(Waiter& waiter, WaiterList& woken) RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] bool has_room(Message const& message) const noexcept RAPIDSMPF_REQUIRES(mutex_);
    // Whether there is a message to hand out. Gives the first its payload back; if that cannot be read, the channel fails.
    [[nodiscard]] bool can_pop(WaiterList& woken) RAPIDSMPF_REQUIRES(mutex_);
    // Gives the first its payload back, if it is parked. False when that takes time, or fails.
    [[nodiscard]] bool restore_front(WaiterList& woken) RAPIDSMPF_REQUIRES(mutex_);
    // Hands the first out to a call, which has ended with it.
    void pop(Waiter& receiver) noexcept RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] Message pop() noexcept RAPIDSMPF_REQUIRES(mutex_);
    // Lets the message of a call in, which has ended with that.
    void push(Waiter& sender) RAPIDSMPF_REQUIRES(mutex_);
    // Has the arbiter know of what waits.
    void park(Entry& entry) RAPIDSMPF_REQUIRES(mutex_);
    void match(WaiterList& woken) RAPIDSMPF_REQUIRES(mutex_);
    void settle(Waiter& waiter, Outcome outcome, WaiterList& woken) noexcept RAPIDSMPF_REQUIRES(mutex_);
    void settle_all(WaiterList& list, Outcome outcome, WaiterList& woken) noexcept RAPIDSMPF_REQUIRES(mutex_);
    [[nodiscard]] EntryList close(UniqueLock& lock, Outcome outcome, WaiterList& woken)
        RAPIDSMPF_REQUIRES(mutex_);
    // The bytes of a message that waits have been moved.
    void on_moved();
    void cancel_closed(std::exception_ptr error);
    // Resumes coroutines; the lock need not be held.
    void wake(WaiterList& woken) {
        if (!woken.empty()) {
            wake_all(woken);
        }
    }
    void wake_all(WaiterList& woken);

    std::uint64_t const id_;
    std::shared_ptr<Executor> executor_;
    ChannelCapacity capacity_;
    std::shared_ptr<BufferResource> resource_;
    SpillManager::SpillFunctionId spill_function_{0};
    class Moves;
    std::shared_ptr<Moves> moves_;  // hears of moves of what waits

    mutable Mutex mutex_;
    EntryList queue_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::size_t bytes_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    WaiterList senders_ RAPIDSMPF_GUARDED_BY(mutex_);
    WaiterList receivers_ RAPIDSMPF_GUARDED_BY(mutex_);
    WaiterList drainers_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool finished_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    bool shut_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::shared_ptr<Channel> metadata_ RAPIDSMPF_GUARDED_BY(mutex_);  // made when it is first asked for
    std::optional<Executor::OutsideWait> restoring_
        RAPIDSMPF_GUARDED_BY(mutex_);  // the first is being read back
    std::uint64_t sent_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::uint64_t sent_bytes_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::uint64_t sent_rows_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    // By actor and end.
    std::vector<std::unique_ptr<Use>> uses_ RAPIDSMPF_GUARDED_BY(mutex_);
    Use* last_sender_ RAPIDSMPF_GUARDED_BY(mutex_){nullptr};  // among uses_
    Use* last_receiver_ RAPIDSMPF_GUARDED_BY(mutex_){nullptr};
    std::shared_ptr<NetworkTrace> trace_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool outside_producer_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    bool outside_consumer_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::optional<CancellationSource> closed_ RAPIDSMPF_GUARDED_BY(mutex_);  // likewise
    // In queue_; stays there, untouched, until the spill has ended.
    Entry* spilling_ RAPIDSMPF_GUARDED_BY(mutex_){nullptr};
    ConditionVariable spilled_;

  public:
    class SendAwaiter {
      public:
        SendAwaiter(Channel& channel, Message&& message) noexcept
            : channel_{&channel}, waiter_{Action::send, std::move(message)} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        template <typename Promise>
        [[gnu::noinline]] bool await_suspend(std::coroutine_handle<Promise> coroutine) {
            return channel_->start_or_wait(waiter_, coroutine, detail::actor_part_of(coroutine));
        }
        bool await_resume() {
            rethrow(waiter_);
            return waiter_.outcome == Outcome::done;
        }

      private:
        Channel* channel_;
        Waiter waiter_;
    };

    class ReceiveAwaiter {
      public:
        explicit ReceiveAwaiter(Channel& channel) noexcept : channel_{&channel}, waiter_{Action::receive} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        template <typename Promise>
        [[gnu::noinline]] bool await_suspend(std::coroutine_handle<Promise> coroutine) {
            return channel_->start_or_wait(waiter_, coroutine, detail::actor_part_of(coroutine));
        }
        std::optional<Message> await_resume() {
            rethrow(waiter_);
            if (waiter_.outcome == Outcome::ended) {
                return std::nullopt;
            }
            return std::move(waiter_.message);
        }

      private:
        Channel* channel_;
        Waiter waiter_;
    };

    class DrainAwaiter {
      public:
        explicit DrainAwaiter(Channel& channel) noexcept : channel_{&channel}, waiter_{Action::drain} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        template <typename Promise>
        [[gnu::noinline]] bool await_suspend(std::coroutine_handle<Promise> coroutine) {
            return channel_->start_or_wait(waiter_, coroutine, detail::actor_part_of(coroutine));
        }
        void await_resume() { rethrow(waiter_); }

      private:
        Channel* channel_;
        Waiter waiter_;
    };

    // An operation of someone who is neither a coroutine nor a thread that may wait, such as another language's event
    // loop: a function is told when it has ended.
    class CallbackOperation {
      public:
        // Called once if start() returned true, on whatever thread ends the operation, possibly under the channel's lock:
        // must not throw, block, or use the channel. From then on the operation may be destroyed.
        using Done = void (*)(void* whom) noexcept;

        // The channel must outlive this. An empty message: throws std::invalid_argument.
        [[nodiscard]] static CallbackOperation send(Channel& channel, Message message);
        [[nodiscard]] static CallbackOperation receive(Channel& channel) noexcept;
        [[nodiscard]] static CallbackOperation drain(Channel& channel) noexcept;

        // For this repository: it is an actor's. Before start(); the account must live as long as this.
        void set_activity(Activity* activity) noexcept { activity_ = activity; }
        // Whether it has to wait. Once; must not be moved afterwards. Throws like the awaitable ones.
        [[nodiscard]] bool start(Done done, void* whom);
        // Gives up waiting. False when it was too late: `done` was, or will be, called.
        [[nodiscard]] bool withdraw();
        // When it has ended. send: whether the channel took the message; drain: true. Throws what cancel() was given.
        [[nodiscard]] bool succeeded();
        // The received message; nothing at the end. Throws what cancel() was given.
        [[nodiscard]] std::optional<Message> take();
        // What was received is not wanted: the next receiver gets it.
        void put_back();

      private:
        CallbackOperation(Channel& channel, Waiter waiter) noexcept
            : channel_{&channel}, waiter_{std::move(waiter)} {}
        Channel* channel_;
        Waiter waiter_;
        Activity* activity_{nullptr};
    };
};

inline Channel::SendAwaiter Channel::send(Message&& message) {
    if (message.empty()) {
        throw_empty();
    }
    return SendAwaiter{*this, std::move(message)};
}

inline Channel::ReceiveAwaiter Channel::receive() {
    return ReceiveAwaiter{*this};
}

inline Channel::DrainAwaiter Channel::drain() {
    return DrainAwaiter{*this};
}

using ChannelPtr = std::shared_ptr<Channel>;

}  // namespace rapidsmpf::streaming
