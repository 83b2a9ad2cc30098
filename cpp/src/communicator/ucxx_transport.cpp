#include "communicator/ucxx_transport.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <poll.h>
#include <ucxx/api.h>

#include <rapidsmpf/core/error.hpp>

#include "communicator/ucx_log.hpp"
#include "communicator/ucxx_wakeup.hpp"

namespace rapidsmpf::detail {

namespace {

using Clock = std::chrono::steady_clock;

// progress() returns after so many rounds even when there is more: others share the thread.
constexpr int most_rounds = 32;
// While a wait drives the worker itself, it looks at its condition at least so often.
constexpr std::chrono::milliseconds longest_wait{50};
// Before it leaves a worker, the transport discards messages that no receive matched; more than so many stay.
constexpr int most_discarded = 100'000;
constexpr std::chrono::milliseconds close_timeout{500};
constexpr std::chrono::milliseconds flush_timeout{1000};

}  // namespace

std::string ucx_error_text(ucs_status_t status) {
    return ucs_status_string(status);
}

UcxOperation::~UcxOperation() {
    auto* const request = request_.load(std::memory_order_acquire);
    if (request != nullptr && !registry_->is_retired()) {
        ucp_request_free(request);
    }
}

void UcxRegistry::add(UcxOperationPtr const& operation) {
    MutexLock const lock{mutex_};
    operation->place_ = in_flight_.insert(in_flight_.end(), operation);
}

void UcxRegistry::complete(UcxOperation& operation, ucs_status_t status, std::size_t received_size) {
    operation.received_size_ = received_size;
    std::list<UcxOperationPtr> released;  // after the lock; this object may go with it
    MutexLock const lock{mutex_};
    auto& to = orphaned_ ? released : completed_;
    to.splice(to.end(), in_flight_, operation.place_);
    operation.status_.store(status, std::memory_order_release);
}

bool UcxRegistry::release_completed() {
    std::list<UcxOperationPtr> released;
    MutexLock const lock{mutex_};
    released.swap(completed_);
    return !released.empty();
}

std::vector<UcxOperationPtr> UcxRegistry::in_flight() const {
    MutexLock const lock{mutex_};
    return {in_flight_.begin(), in_flight_.end()};
}

void UcxRegistry::retire() {
    retired_.store(true, std::memory_order_release);
    std::list<UcxOperationPtr> released;
    std::list<UcxOperationPtr> cut_off;
    MutexLock const lock{mutex_};
    released.swap(completed_);
    cut_off.swap(in_flight_);
}

void UcxRegistry::orphan() {
    std::list<UcxOperationPtr> released;
    MutexLock const lock{mutex_};
    orphaned_ = true;
    released.swap(completed_);
}

UcxTransport::UcxTransport(
    std::shared_ptr<::ucxx::Worker> worker, Rank nranks, std::uint64_t tag_key,
    std::function<void()> on_in_flight)
    : worker_{std::move(worker)},
      handle_{worker_->getHandle()},
      tag_key_{tag_key},
      on_in_flight_{std::move(on_in_flight)},
      endpoints_(static_cast<std::size_t>(nranks)),
      sent_to_(static_cast<std::size_t>(nranks)) {
    survive_dead_peers();
    drop_empty_wakeups();
    // Stays -1 for a worker that was made without the wake-up feature: it is polled all the time.
    if (ucp_worker_get_efd(handle_, &event_descriptor_) != UCS_OK) {
        event_descriptor_ = -1;
    }
}

UcxTransport::~UcxTransport() {
    // A worker that came from outside lives on, with whatever else its owner does with it.
    bool const own_worker = worker_.use_count() == 1;
    if (own_worker) {
        QuietUcxTeardown const quiet;
        cancel_receives();
        progress();
        // UCXX would receive what is left, and wait for senders that may be dead.
        discard_unreceived();
        worker_.reset();
        registry_->retire();
        return;
    }
    cancel_receives();
    progress();
    close_endpoints();
    registry_->orphan();
    worker_.reset();
    // UCX may still touch the bytes of what is in flight, and call back, for as long as that worker lives: registry
    // and operations keep each other until then.
}

ucp_ep_h UcxTransport::make_endpoint(std::span<std::uint8_t const> address) {
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    parameters.address = reinterpret_cast<ucp_address_t const*>(address.data());
    parameters.err_mode = UCP_ERR_HANDLING_MODE_NONE;  // see the header of the communicator
    ucp_ep_h endpoint = nullptr;
    auto const status = ucp_ep_create(handle_, &parameters, &endpoint);
    if (status != UCS_OK) {
        throw std::runtime_error{"UCX cannot reach another rank: " + ucx_error_text(status)};
    }
    return endpoint;
}

void UcxTransport::connect(Rank peer, std::span<std::uint8_t const> address) {
    endpoints_.at(static_cast<std::size_t>(peer)).store(make_endpoint(address), std::memory_order_release);
    on_in_flight_();  // connecting needs progress
}

bool UcxTransport::is_connected(Rank peer) const {
    return endpoints_.at(static_cast<std::size_t>(peer)).load(std::memory_order_acquire) != nullptr;
}

ucp_ep_h UcxTransport::connect_unranked(std::span<std::uint8_t const> address) {
    auto* const endpoint = make_endpoint(address);
    MutexLock const lock{unranked_mutex_};
    unranked_.push_back(endpoint);
    return endpoint;
}

std::vector<std::string> UcxTransport::transports_to(Rank peer) const {
    auto* const endpoint = endpoints_.at(static_cast<std::size_t>(peer)).load(std::memory_order_acquire);
    if (endpoint == nullptr) {
        return {};
    }
    std::array<ucp_transport_entry_t, 16> entries{};
    ucp_ep_attr_t attributes{};
    attributes.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS;
    attributes.transports.entries = entries.data();
    attributes.transports.num_entries = entries.size();
    attributes.transports.entry_size = sizeof(ucp_transport_entry_t);
    if (ucp_ep_query(endpoint, &attributes) != UCS_OK) {
        return {};
    }
    std::vector<std::string> names;
    for (unsigned i = 0; i < attributes.transports.num_entries; ++i) {
        std::string name{entries.at(i).transport_name};
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            names.push_back(std::move(name));
        }
    }
    return names;
}

bool UcxTransport::shares_memory_with(Rank peer) const {
    auto const names = transports_to(peer);
    return std::any_of(names.begin(), names.end(), [](std::string const& name) {
        return name == "sysv" || name == "posix" || name == "xpmem";
    });
}

UcxOperationPtr UcxTransport::enlist(
    UcxOperation::Kind kind, Rank peer, std::shared_ptr<void const> keep_alive) {
    auto operation = std::make_shared<UcxOperation>(registry_, kind, peer, std::move(keep_alive));
    registry_->add(operation);
    return operation;
}

void UcxTransport::settle(
    UcxOperationPtr const& operation, ucs_status_ptr_t answer, std::size_t received_size) {
    if (answer == nullptr) {
        registry_->complete(*operation, UCS_OK, received_size);
    } else if (UCS_PTR_IS_ERR(answer)) {
        registry_->complete(*operation, UCS_PTR_STATUS(answer), 0);
    } else {
        operation->request_.store(answer, std::memory_order_release);
        on_in_flight_();
    }
}

void UcxTransport::on_sent(void* /*request*/, ucs_status_t status, void* user_data) {
    auto& operation = *static_cast<UcxOperation*>(user_data);
    operation.registry_->complete(operation, status, 0);
}

void UcxTransport::on_received(
    void* /*request*/, ucs_status_t status, ucp_tag_recv_info_t const* info, void* user_data) {
    auto& operation = *static_cast<UcxOperation*>(user_data);
    operation.registry_->complete(operation, status, status == UCS_OK ? info->length : 0);
}

UcxOperationPtr UcxTransport::send(
    Rank peer, std::uint64_t tag, void const* bytes, std::size_t size, ucs_memory_type_t memory_type,
    std::shared_ptr<void const> keep_alive) {
    auto* const endpoint = endpoints_.at(static_cast<std::size_t>(peer)).load(std::memory_order_acquire);
    RAPIDSMPF_EXPECTS(
        endpoint != nullptr,
        "rank " + std::to_string(peer)
            + " is not connected yet: all ranks have to call barrier() before the first message",
        std::logic_error);
    sent_to_[static_cast<std::size_t>(peer)].store(true, std::memory_order_relaxed);
    return send_to(endpoint, peer, tag, bytes, size, memory_type, std::move(keep_alive));
}

UcxOperationPtr UcxTransport::send_to(
    ucp_ep_h endpoint, Rank peer, std::uint64_t tag, void const* bytes, std::size_t size,
    ucs_memory_type_t memory_type, std::shared_ptr<void const> keep_alive) {
    auto operation = enlist(UcxOperation::Kind::send, peer, std::move(keep_alive));
    ucp_request_param_t parameters{};
    parameters.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.cb.send = &UcxTransport::on_sent;
    parameters.user_data = operation.get();
    parameters.memory_type = memory_type;
    settle(operation, ucp_tag_send_nbx(endpoint, bytes, size, tag ^ tag_key_, &parameters), 0);
    return operation;
}

UcxOperationPtr UcxTransport::receive(
    Rank peer, std::uint64_t tag, void* bytes, std::size_t size, ucs_memory_type_t memory_type,
    std::shared_ptr<void const> keep_alive) {
    auto operation = enlist(UcxOperation::Kind::receive, peer, std::move(keep_alive));
    ucp_tag_recv_info_t info{};
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA
                              | UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_RECV_INFO;
    parameters.cb.recv = &UcxTransport::on_received;
    parameters.user_data = operation.get();
    parameters.memory_type = memory_type;
    parameters.recv_info.tag_info = &info;
    constexpr ucp_tag_t whole_tag = ~ucp_tag_t{0};
    auto* const answer = ucp_tag_recv_nbx(handle_, bytes, size, tag ^ tag_key_, whole_tag, &parameters);
    settle(operation, answer, info.length);
    return operation;
}

UcxOperationPtr UcxTransport::receive(
    Rank peer, UcxMessage const& message, void* bytes, std::shared_ptr<void const> keep_alive) {
    auto operation = enlist(UcxOperation::Kind::receive, peer, std::move(keep_alive));
    ucp_tag_recv_info_t info{};
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA
                              | UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_RECV_INFO;
    parameters.cb.recv = &UcxTransport::on_received;
    parameters.user_data = operation.get();
    parameters.memory_type = UCS_MEMORY_TYPE_HOST;
    parameters.recv_info.tag_info = &info;
    auto* const answer = ucp_tag_msg_recv_nbx(handle_, bytes, message.size, message.handle, &parameters);
    settle(operation, answer, message.size);
    return operation;
}

std::optional<UcxMessage> UcxTransport::probe(std::uint64_t tag, std::uint64_t mask) {
    constexpr int remove = 1;
    ucp_tag_recv_info_t info{};
    auto* const message = ucp_tag_probe_nb(handle_, tag ^ tag_key_, mask, remove, &info);
    if (message == nullptr) {
        return std::nullopt;
    }
    return UcxMessage{info.sender_tag ^ tag_key_, info.length, message};
}

void UcxTransport::cancel(UcxOperation& operation) {
    auto* const request = operation.request_.load(std::memory_order_acquire);
    if (request != nullptr && !operation.is_complete()) {
        ucp_request_cancel(handle_, request);
        on_in_flight_();
    }
}

bool UcxTransport::progress() {
    int rounds = 0;
    while (rounds < most_rounds && ucp_worker_progress(handle_) != 0) {
        ++rounds;
    }
    return registry_->release_completed() || rounds > 0;
}

bool UcxTransport::arm() {
    return event_descriptor_ >= 0 && ucp_worker_arm(handle_) == UCS_OK;
}

std::size_t UcxTransport::in_flight(UcxOperation::Kind kind) const {
    auto const operations = registry_->in_flight();
    return static_cast<std::size_t>(std::count_if(
        operations.begin(), operations.end(),
        [&](auto const& operation) { return operation->kind() == kind; }));
}

std::size_t UcxTransport::in_flight_with(Rank peer) const {
    auto const operations = registry_->in_flight();
    return static_cast<std::size_t>(std::count_if(
        operations.begin(), operations.end(),
        [&](auto const& operation) { return operation->peer() == peer; }));
}

void UcxTransport::cancel_receives() {
    for (auto const& operation : registry_->in_flight()) {
        if (operation->kind() == UcxOperation::Kind::receive) {
            cancel(*operation);
        }
    }
}

bool UcxTransport::drive_until(Clock::time_point deadline, std::function<bool()> const& done) {
    for (;;) {
        bool const moved = progress();
        if (done()) {
            return true;
        }
        auto const now = Clock::now();
        if (now >= deadline) {
            return false;
        }
        if (!moved && arm()) {
            auto const left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
            pollfd waiting{event_descriptor_, POLLIN, 0};
            ::poll(&waiting, 1, static_cast<int>(std::min(left, longest_wait).count()));
        }
    }
}

UcxOperationPtr UcxTransport::flush(ucp_ep_h endpoint, Rank peer) {
    auto operation = enlist(UcxOperation::Kind::send, peer, nullptr);
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.cb.send = &UcxTransport::on_sent;
    parameters.user_data = operation.get();
    settle(operation, ucp_ep_flush_nbx(endpoint, &parameters), 0);
    return operation;
}

bool UcxTransport::drain(
    Clock::time_point deadline, std::function<bool(Rank)> const& has_closed,
    std::function<bool()> const& stop) {
    bool stopped = false;
    auto const none_in_flight = [&] {
        stopped = stop();
        if (stopped) {
            return true;
        }
        auto const operations = registry_->in_flight();
        return std::none_of(operations.begin(), operations.end(), [&](auto const& operation) {
            return operation->kind() == UcxOperation::Kind::send
                   && (operation->peer() < 0 || !has_closed(operation->peer()));
        });
    };
    if (!drive_until(deadline, none_in_flight) || stopped) {
        return false;
    }
    // A send is complete when its bytes may be reused. In shared memory its receiver has them then; on a network
    // they may still wait in this process. Only connections that were used are flushed: flushing sets up the
    // others, which takes their ranks' help.
    std::vector<UcxOperationPtr> flushes;
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
        auto const peer = static_cast<Rank>(i);
        auto* const endpoint = endpoints_[i].load(std::memory_order_acquire);
        if (endpoint != nullptr && sent_to_[i].load(std::memory_order_relaxed) && !has_closed(peer)
            && !shares_memory_with(peer)) {
            flushes.push_back(flush(endpoint, peer));
        }
    }
    auto const flushed = [&] {
        stopped = stop();
        return stopped || std::all_of(flushes.begin(), flushes.end(), [&](auto const& operation) {
                   return operation->is_complete() || has_closed(operation->peer());
               });
    };
    // A peer that closes at the same moment may not answer: then it has everything.
    drive_until(std::min(deadline, Clock::now() + flush_timeout), flushed);
    return !stopped;
}

void UcxTransport::discard_unreceived() {
    // A receive without room takes the message off UCX's hands without moving its bytes: it ends at once as
    // truncated, here and, for a large message, at its sender.
    for (int i = 0; i < most_discarded; ++i) {
        auto message = probe(0, 0);
        if (!message) {
            break;
        }
        message->size = 0;
        static_cast<void>(receive(-1, *message, nullptr, nullptr));
    }
    progress();
}

void UcxTransport::close_endpoints() {
    std::vector<UcxOperationPtr> closing;
    std::vector<ucp_ep_h> open;
    {
        MutexLock const lock{unranked_mutex_};
        open = unranked_;
    }
    for (auto& endpoint : endpoints_) {
        open.push_back(endpoint.load(std::memory_order_acquire));
    }
    for (auto* const endpoint : open) {
        if (endpoint == nullptr) {
            continue;
        }
        auto operation = enlist(UcxOperation::Kind::send, -1, nullptr);
        ucp_request_param_t parameters{};
        parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        parameters.cb.send = &UcxTransport::on_sent;
        parameters.user_data = operation.get();
        settle(operation, ucp_ep_close_nbx(endpoint, &parameters), 0);
        closing.push_back(std::move(operation));
    }
    drive_until(Clock::now() + close_timeout, [&] {
        return std::all_of(
            closing.begin(), closing.end(), [](auto const& operation) { return operation->is_complete(); });
    });
}

}  // namespace rapidsmpf::detail
