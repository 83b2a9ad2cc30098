// The UCX side of UcxxCommunicator: a worker, one endpoint per rank, and the sends and receives in flight.
//
// Every operation in flight is registered here until UCX has completed it, together with what keeps its bytes
// alive: dropping the handle of an operation never frees memory that UCX may still touch. UCX calls back under its
// own lock, so nothing here holds a lock of ours while it calls UCX.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ucp/api/ucp.h>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace ucxx {
class Worker;
}

namespace rapidsmpf::detail {

class UcxRegistry;

// A send or receive that was handed to UCX.
class UcxOperation {
  public:
    enum class Kind : std::uint8_t { send, receive };
    UcxOperation(
        std::shared_ptr<UcxRegistry> registry, Kind kind, Rank peer, std::shared_ptr<void const> keep_alive)
        : registry_{std::move(registry)}, kind_{kind}, peer_{peer}, keep_alive_{std::move(keep_alive)} {}
    ~UcxOperation();
    UcxOperation(UcxOperation const&) = delete;
    UcxOperation& operator=(UcxOperation const&) = delete;

    [[nodiscard]] bool is_complete() const noexcept {
        return status_.load(std::memory_order_acquire) != UCS_INPROGRESS;
    }
    // Meaningful once complete.
    [[nodiscard]] ucs_status_t status() const noexcept { return status_.load(std::memory_order_acquire); }
    [[nodiscard]] std::size_t received_size() const noexcept { return received_size_; }
    [[nodiscard]] Kind kind() const noexcept { return kind_; }
    [[nodiscard]] Rank peer() const noexcept { return peer_; }

  private:
    friend class UcxTransport;
    friend class UcxRegistry;
    std::shared_ptr<UcxRegistry> registry_;  // a cycle while UCX has the operation
    Kind kind_;
    Rank peer_;
    std::shared_ptr<void const> keep_alive_;
    std::size_t received_size_{0};
    std::atomic<ucs_status_t> status_{UCS_INPROGRESS};
    std::atomic<void*> request_{nullptr};                       // UCX's, freed with this object
    std::list<std::shared_ptr<UcxOperation>>::iterator place_;  // in the registry, until complete
};

using UcxOperationPtr = std::shared_ptr<UcxOperation>;

// The operations that UCX has. Its lock is the only one that is taken inside UCX's callbacks.
class UcxRegistry {
  public:
    void add(UcxOperationPtr const& operation);
    void complete(UcxOperation& operation, ucs_status_t status, std::size_t received_size);
    // Lets go of what has completed; not done in the callback, because what it keeps alive may be anything.
    // Returns whether there was something.
    bool release_completed();
    [[nodiscard]] std::vector<UcxOperationPtr> in_flight() const;
    // The worker is gone, and its requests with it: nothing will call back.
    void retire();
    // The worker lives on, but release_completed() is no longer called: callbacks release.
    void orphan();
    [[nodiscard]] bool is_retired() const noexcept { return retired_.load(std::memory_order_acquire); }

  private:
    mutable Mutex mutex_;
    std::list<UcxOperationPtr> in_flight_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::list<UcxOperationPtr> completed_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool orphaned_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::atomic<bool> retired_{false};
};

// A message that has arrived (or begun to) and was taken out of UCX's queue.
struct UcxMessage {
    UcxMessage(std::uint64_t tag_, std::size_t size_, ucp_tag_message_h handle_)
        : tag{tag_}, size{size_}, handle{handle_} {}
    std::uint64_t tag;
    std::size_t size;
    ucp_tag_message_h handle;
};

class UcxTransport {
  public:
    // Every tag is combined with `tag_key` (ucxx_control.hpp) on its way to UCX, and back. `on_in_flight` is called after
    // an operation was posted that UCX has to be driven for.
    UcxTransport(
        std::shared_ptr<::ucxx::Worker> worker, Rank nranks, std::uint64_t tag_key,
        std::function<void()> on_in_flight);
    // Frees what it can without waiting for anyone.
    ~UcxTransport();
    UcxTransport(UcxTransport const&) = delete;
    UcxTransport& operator=(UcxTransport const&) = delete;

    [[nodiscard]] std::shared_ptr<::ucxx::Worker> const& worker() const noexcept { return worker_; }

    // Makes rank `peer` reachable. Throws std::runtime_error.
    void connect(Rank peer, std::span<std::uint8_t const> address);
    [[nodiscard]] bool is_connected(Rank peer) const;
    // Makes it an endpoint for one message to someone who has no rank (yet).
    [[nodiscard]] ucp_ep_h connect_unranked(std::span<std::uint8_t const> address);

    // The names of the UCX transports that carry messages to a rank; empty when not connected.
    [[nodiscard]] std::vector<std::string> transports_to(Rank peer) const;
    // Whether messages to a rank go through shared memory.
    [[nodiscard]] bool shares_memory_with(Rank peer) const;

    // What goes wrong is the operation's status, also when UCX refuses at once. Sending throws std::logic_error
    // when the peer is not connected.
    [[nodiscard]] UcxOperationPtr send(
        Rank peer, std::uint64_t tag, void const* bytes, std::size_t size, ucs_memory_type_t memory_type,
        std::shared_ptr<void const> keep_alive);
    UcxOperationPtr send_to(
        ucp_ep_h endpoint, Rank peer, std::uint64_t tag, void const* bytes, std::size_t size,
        ucs_memory_type_t memory_type, std::shared_ptr<void const> keep_alive);
    [[nodiscard]] UcxOperationPtr receive(
        Rank peer, std::uint64_t tag, void* bytes, std::size_t size, ucs_memory_type_t memory_type,
        std::shared_ptr<void const> keep_alive);
    [[nodiscard]] UcxOperationPtr receive(
        Rank peer, UcxMessage const& message, void* bytes, std::shared_ptr<void const> keep_alive);
    // Takes the first waiting message whose tag agrees in the bits of `mask`.
    [[nodiscard]] std::optional<UcxMessage> probe(std::uint64_t tag, std::uint64_t mask);
    // Cancels a receive that has not begun; it completes with UCS_ERR_CANCELED.
    void cancel(UcxOperation& operation);

    // Returns whether anything moved.
    bool progress();
    // The descriptor that becomes readable, once armed, when progress() has something to do.
    [[nodiscard]] int event_descriptor() const noexcept { return event_descriptor_; }
    // False: progress() has something to do now.
    [[nodiscard]] bool arm();

    // Operations that UCX has not completed.
    [[nodiscard]] std::size_t in_flight(UcxOperation::Kind kind) const;
    [[nodiscard]] std::size_t in_flight_with(Rank peer) const;
    void cancel_receives();

    // Drives the worker until all sends, but those to ranks that have left, are complete, and then a moment longer
    // for what a network still holds in this process; gives up at the deadline or when `stop` says so. Returns
    // whether all sends were complete.
    bool drain(
        std::chrono::steady_clock::time_point deadline, std::function<bool(Rank)> const& has_closed,
        std::function<bool()> const& stop);
    // Waits, driving the worker as in drain(), until `done` says so; returns whether it did.
    bool drive_until(std::chrono::steady_clock::time_point deadline, std::function<bool()> const& done);

  private:
    static void on_sent(void* request, ucs_status_t status, void* user_data);
    static void on_received(
        void* request, ucs_status_t status, ucp_tag_recv_info_t const* info, void* user_data);
    [[nodiscard]] ucp_ep_h make_endpoint(std::span<std::uint8_t const> address);
    [[nodiscard]] UcxOperationPtr enlist(
        UcxOperation::Kind kind, Rank peer, std::shared_ptr<void const> keep_alive);
    // What UCX returned for an operation that was enlisted before.
    void settle(UcxOperationPtr const& operation, ucs_status_ptr_t answer, std::size_t received_size);
    void discard_unreceived();
    [[nodiscard]] UcxOperationPtr flush(ucp_ep_h endpoint, Rank peer);
    void close_endpoints();

    std::shared_ptr<::ucxx::Worker> worker_;
    ucp_worker_h handle_;
    std::uint64_t tag_key_;
    std::function<void()> on_in_flight_;
    int event_descriptor_{-1};
    std::vector<std::atomic<ucp_ep_h>> endpoints_;  // by rank; null: not connected
    std::vector<std::atomic<bool>> sent_to_;        // by rank
    Mutex unranked_mutex_;
    std::vector<ucp_ep_h> unranked_ RAPIDSMPF_GUARDED_BY(unranked_mutex_);

    std::shared_ptr<UcxRegistry> registry_{std::make_shared<UcxRegistry>()};
};

// "Destination is unreachable" and so on.
[[nodiscard]] std::string ucx_error_text(ucs_status_t status);

}  // namespace rapidsmpf::detail
