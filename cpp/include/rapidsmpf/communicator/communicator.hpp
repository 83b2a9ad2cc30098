// A set of processes (ranks) that can send each other bytes.
//
// This is the transport seam under exchange/: point-to-point messages, matched by (source, tag), never
// overtaking each other per (source, tag). It is independent of chunks, credits and partitions. Backends:
// single (one rank), loopback (N ranks as threads of one process, with injected faults, for tests), ucxx, and mpi,
// which is a library of its own. split.hpp makes communicators of some of the ranks of another.
//
// Threading: every method may be called from any thread; a backend that is not thread-safe inside takes its
// own lock. Messages move only while someone calls progress(), which the communicator's ProgressThread does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeindex>
#include <typeinfo>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/fork.hpp>
#include <rapidsmpf/core/logger.hpp>
#include <rapidsmpf/core/progress_thread.hpp>
#include <rapidsmpf/memory/buffer.hpp>

namespace rapidsmpf {

namespace detail {
class SplitState;
}

using Rank = std::int32_t;
// Names a collective operation; the same on all ranks that take part.
using OpId = std::int32_t;
// Keeps the messages of the communicators that share a transport apart: 0 is the transport's own communicator, the
// others are what split() made of it.
using ContextId = std::uint16_t;

// What a message belongs to: the operation and, within it, a stage (kind of message). The operation max_op_id is
// the library's own: its stages are 0 control messages of exchange/, 1 split(), 2 the goodbye of a
// sub-communicator.
class Tag {
  public:
    static constexpr int stage_bits = 3;
    static constexpr int op_bits = 28;
    static constexpr int context_bits = 12;
    // All that a transport has to carry of value().
    static constexpr int bits = stage_bits + op_bits + context_bits;
    static constexpr OpId max_op_id = (OpId{1} << op_bits) - 1;
    static constexpr ContextId max_context = (ContextId{1} << context_bits) - 1;

    // Throws std::invalid_argument when op or stage is out of range.
    Tag(OpId op, std::uint32_t stage);
    // The same tag in another context; this one has to be in context 0. Throws std::invalid_argument.
    [[nodiscard]] Tag in_context(ContextId context) const;
    [[nodiscard]] std::uint64_t value() const noexcept { return value_; }
    [[nodiscard]] OpId op() const noexcept { return static_cast<OpId>((value_ >> stage_bits) & max_op_id); }
    [[nodiscard]] ContextId context() const noexcept {
        return static_cast<ContextId>(value_ >> (stage_bits + op_bits));
    }
    friend bool operator==(Tag, Tag) noexcept = default;

  private:
    std::uint64_t value_;
};

// Why a communicator became unusable.
struct RankFailure {
    RankFailure(Rank rank_, std::string host_, std::int64_t pid_, std::string reason_)
        : rank{rank_}, host{std::move(host_)}, pid{pid_}, reason{std::move(reason_)} {}
    Rank rank;
    std::string host;
    std::int64_t pid;
    std::string reason;
    [[noreturn]] void raise() const { throw RankFailedError{rank, host, pid, reason}; }
};

class Communicator {
  public:
    // A send or receive in flight. Destroying it before completion cancels the receive, or leaves the send
    // to finish by itself with its bytes kept alive.
    class Request {
      public:
        virtual ~Request() = default;
        // Whether it is complete; after true the bytes are sent or received. Throws std::runtime_error when the
        // transport failed.
        [[nodiscard]] virtual bool test() = 0;
    };

    // A message that arrived unasked (see recv_any).
    struct Arrived {
        Arrived(Rank source_, std::vector<std::uint8_t> bytes_) : source{source_}, bytes{std::move(bytes_)} {}
        Rank source;
        std::vector<std::uint8_t> bytes;
    };

    virtual ~Communicator() = default;
    Communicator(Communicator const&) = delete;
    Communicator& operator=(Communicator const&) = delete;

    [[nodiscard]] virtual Rank rank() const noexcept = 0;
    [[nodiscard]] virtual Rank nranks() const noexcept = 0;
    // For people: backend, rank, nranks, transports.
    [[nodiscard]] virtual std::string str() const = 0;

    // Sends small host bytes; completes when the transport has them (often at once). Sending to oneself is not
    // supported: throws std::invalid_argument.
    [[nodiscard]] virtual std::unique_ptr<Request> send(
        std::vector<std::uint8_t> message, Rank destination, Tag tag) = 0;
    // Sends bytes [offset, offset + size) of a buffer whose writes are done (is_ready()); the buffer is kept
    // alive until completion. Messages may be larger than 2 GiB.
    [[nodiscard]] virtual std::unique_ptr<Request> send(
        std::shared_ptr<Buffer const> buffer, std::size_t offset, std::size_t size, Rank destination,
        Tag tag) = 0;
    // Receives into bytes [offset, offset + size) of `buffer` the next message of `source` with `tag`, which must
    // have exactly that size.
    [[nodiscard]] virtual std::unique_ptr<Request> recv(
        std::shared_ptr<Buffer> buffer, std::size_t offset, std::size_t size, Rank source, Tag tag) = 0;
    // The next small message with `tag` from any rank, if one has arrived whole. Per source in order.
    [[nodiscard]] virtual std::optional<Arrived> recv_any(Tag tag) = 0;

    // Moves messages; returns whether anything happened. Called by the progress thread.
    virtual bool progress() = 0;

    [[nodiscard]] Logger const& logger() const noexcept { return logger_; }
    // What it was made with.
    [[nodiscard]] config::Options const& options() const noexcept { return options_; }
    [[nodiscard]] std::shared_ptr<ProgressThread> const& progress_thread() const noexcept {
        return progress_thread_;
    }

    // The failure that made this communicator unusable, if any.
    [[nodiscard]] virtual std::optional<RankFailure> failure() const;
    // Throws RankFailedError if the communicator failed, std::runtime_error in a fork.
    void check() const;
    // Throws std::runtime_error in a fork of the process that made it, which cannot use it.
    void check_process() const { home_.require("communicator"); }
    // Whether this is a fork of that process.
    [[nodiscard]] bool is_in_fork() const noexcept { return !home_.is_here(); }
    // Records that a rank failed (the first report counts), tells the listeners and wakes the progress thread.
    // Called by the backend and by bootstrap's liveness channel.
    void fail(RankFailure failure);
    // Tells the other ranks that this one gives up, as far as the backend can; then fails locally.
    virtual void abort(std::string const& reason);
    // The same when another rank is at fault, by what it sent: all ranks, that one too, fail with `culprit` named.
    // Negative: no rank; then it is abort().
    virtual void report_protocol_violation(Rank culprit, std::string const& reason);

    // Called once with the failure, from whatever thread reports it; at once if there is one already.
    using FailureListener = std::function<void(RankFailure const&)>;
    using ListenerId = std::uint64_t;
    ListenerId add_failure_listener(FailureListener listener);
    // After it returns the listener is not running and will not be called.
    void remove_failure_listener(ListenerId id);

    // An object that a higher room keeps with the communicator (the operation dispatcher of exchange/), one of each type.
    // The first call makes it; it lives until the communicator retires.
    template <typename T>
    [[nodiscard]] std::shared_ptr<T> attached(std::function<std::shared_ptr<T>()> const& make) {
        return std::static_pointer_cast<T>(attached(typeid(T), make));
    }

    // Whether a rank has closed its communicator in good order, as far as this one has heard. Its last messages
    // may still be on their way.
    [[nodiscard]] virtual bool has_closed(Rank rank) const;
    // Some rank that has, if any.
    [[nodiscard]] virtual std::optional<Rank> first_closed() const;

    // Operation ids in use on this rank: claiming one that is in use throws std::invalid_argument.
    void claim_op(OpId op);
    void release_op(OpId op) noexcept;

    // What split() knows of its earlier calls on this communicator; made by the first call.
    [[nodiscard]] std::shared_ptr<detail::SplitState> split_state();

  protected:
    // For backends: another rank has closed its communicator in good order.
    void note_closed(Rank rank);
    Communicator(config::Options options, std::shared_ptr<ProgressThread> progress_thread);
    // The first thing that a backend's destructor does, while the backend still works: drops what is
    // attached, which may send (for a bounded time) what finished operations left in the background.
    void retire() noexcept;
    Logger logger_;

  private:
    struct State;
    [[nodiscard]] std::shared_ptr<void> attached(
        std::type_index type, std::function<std::shared_ptr<void>()> const& make);

    HomeProcess home_;
    config::Options options_;
    std::shared_ptr<ProgressThread> progress_thread_;
    std::shared_ptr<State> state_;
};

}  // namespace rapidsmpf
