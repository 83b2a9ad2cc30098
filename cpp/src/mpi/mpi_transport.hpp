// The MPI side of MpiCommunicator: headers, the matching of messages by our tags, and the operations in flight.
//
// One lock guards everything, calls of MPI included: they are made by the progress thread but for a few, so no
// thread waits for it, and the implementation's own locking is not put to the test. What an operation keeps alive is
// released outside the lock. See mpi/mpi.hpp for the protocol.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::detail {

// A send or receive.
class MpiOperation {
  public:
    enum class Kind : std::uint8_t { send, receive };
    MpiOperation(
        Kind kind, Rank peer, std::uint64_t tag, std::size_t size, std::shared_ptr<void const> keep_alive)
        : kind_{kind}, peer_{peer}, tag_{tag}, size_{size}, keep_alive_{std::move(keep_alive)} {}

    [[nodiscard]] bool is_complete() const noexcept { return complete_.load(std::memory_order_acquire); }
    // Once complete: what went wrong; empty: nothing.
    [[nodiscard]] std::string const& error() const noexcept { return error_; }
    [[nodiscard]] Kind kind() const noexcept { return kind_; }
    [[nodiscard]] Rank peer() const noexcept { return peer_; }

  private:
    friend class MpiTransport;
    Kind kind_;
    Rank peer_;
    std::uint64_t tag_;
    std::size_t size_;
    std::byte* target_{nullptr};  // of a receive
    std::shared_ptr<void const> keep_alive_;
    std::size_t pending_{0};  // requests of MPI
    std::string error_;
    std::atomic<bool> complete_{false};
};

using MpiOperationPtr = std::shared_ptr<MpiOperation>;

// A peer broke the protocol.
class MpiProtocolError : public std::runtime_error {
  public:
    MpiProtocolError(Rank peer, std::string const& what) : std::runtime_error{what}, peer_{peer} {}
    [[nodiscard]] Rank peer() const noexcept { return peer_; }

  private:
    Rank peer_;
};

class MpiTransport {
  public:
    // Takes over `comm`, a duplicate on which errors return. `on_posted` is called, outside the lock, after something
    // was posted for which MPI has to be driven.
    MpiTransport(MPI_Comm comm, std::size_t chunk_bytes, std::function<void()> on_posted);
    // close() comes first.
    ~MpiTransport() = default;
    MpiTransport(MpiTransport const&) = delete;
    MpiTransport& operator=(MpiTransport const&) = delete;

    [[nodiscard]] Rank rank() const noexcept { return rank_; }
    [[nodiscard]] Rank nranks() const noexcept { return nranks_; }

    // All throw MpiError, and std::logic_error after close().
    [[nodiscard]] MpiOperationPtr send(
        Rank peer, std::uint64_t tag, void const* bytes, std::size_t size,
        std::shared_ptr<void const> keep_alive);
    [[nodiscard]] MpiOperationPtr receive(
        Rank peer, std::uint64_t tag, std::byte* bytes, std::size_t size,
        std::shared_ptr<void const> keep_alive);
    // A receive that has no message yet takes none any more.
    void cancel(MpiOperation& operation);
    [[nodiscard]] std::optional<Communicator::Arrived> take_any(std::uint64_t tag);

    // Returns whether anything moved. Throws MpiError, MpiProtocolError.
    bool progress();
    [[nodiscard]] bool has_in_flight() const noexcept {
        return in_flight_.load(std::memory_order_relaxed) > 0;
    }
    // Receives from, and sends to, a rank that are not complete.
    [[nodiscard]] std::size_t in_flight_with(Rank peer) const;

    // Waits until all sends but those to ranks that have left are complete; whether they were at the deadline, or
    // when `stop` said so.
    bool drain(
        std::chrono::steady_clock::time_point deadline, std::function<bool(Rank)> const& has_closed,
        std::function<bool()> const& stop);
    // Waits until all ranks have called it, as drain() does.
    bool meet(std::chrono::steady_clock::time_point deadline, std::function<bool()> const& stop);
    // No call of MPI comes after it. What MPI may still touch is left to it for the life of the process. `parted`: all
    // ranks have met and no message is on its way, so that the duplicate can be freed.
    enum class Parted : std::uint8_t { no, yes };
    void close(Parted parted) noexcept;

  private:
    struct Message {
        Message(Rank source_, std::uint64_t size_, int payload_tag_, std::vector<std::uint8_t> bytes_)
            : source{source_}, size{size_}, payload_tag{payload_tag_}, bytes{std::move(bytes_)} {}
        Rank source;
        std::uint64_t size;
        int payload_tag;  // 0: the bytes are here
        std::vector<std::uint8_t> bytes;
        // For take_any(): the bytes on their way.
        MpiOperationPtr coming;
        std::shared_ptr<std::vector<std::uint8_t>> coming_bytes;
    };
    // Messages of one source with one tag, and the receives that wait for them.
    struct Stream {
        std::deque<Message> arrived;
        std::deque<MpiOperationPtr> posted;
    };
    struct Header {
        explicit Header(std::size_t size) : bytes(size) {}
        std::vector<std::uint8_t> bytes;
        MPI_Request request{MPI_REQUEST_NULL};
    };
    using Streams = std::map<std::uint64_t, std::map<Rank, Stream>>;

    void check_open() const RAPIDSMPF_REQUIRES(mutex_);
    void watch(MPI_Request request, MpiOperationPtr const& operation) RAPIDSMPF_REQUIRES(mutex_);
    void complete(MpiOperation& operation, std::string error = {}) RAPIDSMPF_REQUIRES(mutex_);
    void post_receive(
        MpiOperationPtr const& operation, Rank source, int payload_tag, std::byte* bytes, std::size_t size)
        RAPIDSMPF_REQUIRES(mutex_);
    void deliver(MpiOperationPtr const& receive, Message message) RAPIDSMPF_REQUIRES(mutex_);
    // Forgets a stream in which nothing waits.
    void tidy(std::uint64_t tag, Rank source) RAPIDSMPF_REQUIRES(mutex_);
    bool take_in_headers() RAPIDSMPF_REQUIRES(mutex_);
    void on_header(Rank source, std::vector<std::uint8_t> bytes) RAPIDSMPF_REQUIRES(mutex_);
    bool test_requests() RAPIDSMPF_REQUIRES(mutex_);

    [[nodiscard]] bool wait_until(
        std::chrono::steady_clock::time_point deadline, std::function<bool()> const& done);

    MPI_Comm comm_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::size_t const chunk_bytes_;
    std::function<void()> on_posted_;
    Rank rank_{0};
    Rank nranks_{0};
    int largest_tag_{0};
    std::atomic<std::size_t> in_flight_{0};  // operations with requests of MPI

    mutable Mutex mutex_;
    ConditionVariable moved_;
    bool closed_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::vector<int> next_payload_tag_ RAPIDSMPF_GUARDED_BY(mutex_);        // by destination
    std::vector<std::deque<Header>> headers_ RAPIDSMPF_GUARDED_BY(mutex_);  // by source, in order
    std::size_t headers_coming_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    Streams streams_ RAPIDSMPF_GUARDED_BY(mutex_);
    Rank next_source_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::vector<MPI_Request> requests_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::vector<MpiOperationPtr> owners_ RAPIDSMPF_GUARDED_BY(mutex_);  // of requests_
    std::vector<int> tested_ RAPIDSMPF_GUARDED_BY(mutex_);
    // To be dropped outside the lock.
    std::vector<std::shared_ptr<void const>> released_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::detail
