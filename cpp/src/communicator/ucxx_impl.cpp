#include "communicator/ucxx_impl.hpp"

#include <algorithm>
#include <exception>

#include <unistd.h>

#include <rapidsmpf/core/detail/host_name.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

namespace {

using Clock = std::chrono::steady_clock;
using detail::UcxOperation;
using detail::UcxOperationPtr;

// How long a communicator that is destroyed waits for others to take what it has sent.
constexpr std::chrono::milliseconds goodbye{5000};
// How long it waits, after an abort, for the messages that say so.
constexpr std::chrono::milliseconds last_words{500};
// How long it waits, when it used a network, for the others to leave as well.
constexpr std::chrono::milliseconds network_patience{1000};

}  // namespace

void UcxxCommunicator::Impl::start(std::unique_ptr<Liveness> liveness) {
    if (rank_ == detail::root) {
        MutexLock const lock{mutex_};
        if (!connected_) {
            joined_.push_back(ucxx_worker_address(*transport_->worker()));
            connected_ = nranks_ == 1;
        }
    }
    listener_ = owner_.add_failure_listener([this](RankFailure const& failure) {
        failure_detector_->set(failure);
        MutexLock const lock{mutex_};
        changed_.notify_all();
    });
    liveness_ = std::move(liveness);
    bool const polling = owner_.progress_mode() == ProgressMode::polling;
    function_ = owner_.progress_thread()->add_function(
        [this, polling] { return ProgressThread::TickResult::busy_if(owner_.progress() || polling); });
    source_ = owner_.progress_thread()->add_event_source(
        transport_->event_descriptor(), [transport = transport_.get()] { return transport->arm(); });
    if (liveness_) {
        liveness_->start(
            Liveness::Events{
                [this](RankFailure const& failure) { owner_.fail(failure); },
                [this](Rank rank) { on_peer_closed(rank); }});
    }
}

void UcxxCommunicator::Impl::finish() noexcept {
    if (function_ == 0) {
        return;  // never started
    }
    try {
        if (!failure_detector_->is_set()) {
            bool const delivered = transport_->drain(
                Clock::now() + goodbye, [this](Rank peer) { return closed_peers_.has(peer); },
                [this] { return failure_detector_->is_set(); });
            if (!delivered && !failure_detector_->is_set()) {
                owner_.logger().warn(
                    "the communicator is destroyed with "
                    + std::to_string(transport_->in_flight(UcxOperation::Kind::send))
                    + " messages that other ranks have not received");
            }
        }
        if (told_by_message_.load(std::memory_order_acquire)) {
            // Nothing else tells the others.
            transport_->drain(Clock::now() + last_words, [](Rank) { return false; }, [] { return false; });
        }
        if (liveness_) {
            liveness_->graceful_close(
                failure_detector_->is_set() ? std::chrono::milliseconds{0} : close_patience());
            liveness_->stop();
        }
    } catch (std::exception const& error) {
        owner_.logger().warn(std::string{"while a communicator was destroyed: "} + error.what());
    }
    owner_.progress_thread()->remove_event_source(source_);
    owner_.progress_thread()->remove_function(function_);
    owner_.remove_failure_listener(listener_);
    liveness_.reset();
}

// When a rank closes its end of a network connection, UCX complains at the other end; ranks that leave together
// are spared that. In shared memory the peer's UCX does not notice.
std::chrono::milliseconds UcxxCommunicator::Impl::close_patience() const {
    for (Rank peer = 0; peer < nranks_; ++peer) {
        if (peer != rank_ && transport_->is_connected(peer) && !transport_->shares_memory_with(peer)) {
            return network_patience;
        }
    }
    return std::chrono::milliseconds{0};
}

void UcxxCommunicator::Impl::check_peer(Rank peer) const {
    RAPIDSMPF_EXPECTS(
        peer >= 0 && peer < nranks_ && peer != rank_,
        "rank " + std::to_string(peer) + " is not another rank of a communicator of "
            + std::to_string(nranks_) + ", of which this is rank " + std::to_string(rank_),
        std::invalid_argument);
}

std::unique_ptr<Communicator::Request> UcxxCommunicator::Impl::send(
    void const* bytes, std::size_t size, ucs_memory_type_t memory_type,
    std::shared_ptr<void const> keep_alive, Rank destination, Tag tag) {
    check_peer(destination);
    UcxOperationPtr operation;
    // A rank that left receives no more messages; UCX would write them where no process reads.
    if (!closed_peers_.has(destination)) {
        operation = transport_->send(
            destination, detail::ucx_tag(tag, rank_), bytes, size, memory_type, std::move(keep_alive));
    }
    return std::make_unique<detail::UcxRequest>(transport_, failure_detector_, std::move(operation), size);
}

std::unique_ptr<Communicator::Request> UcxxCommunicator::Impl::receive(
    void* bytes, std::size_t size, ucs_memory_type_t memory_type, std::shared_ptr<void const> keep_alive,
    Rank source, Tag tag) {
    check_peer(source);
    auto operation = transport_->receive(
        source, detail::ucx_tag(tag, source), bytes, size, memory_type, std::move(keep_alive));
    if (closed_peers_.has(source)) {
        closed_peers_.expect_from(source);
    }
    return std::make_unique<detail::UcxRequest>(transport_, failure_detector_, std::move(operation), size);
}

std::optional<Communicator::Arrived> UcxxCommunicator::Impl::receive_any(Tag tag) {
    try {
        return inbox_.take(detail::ucx_tag(tag, 0));
    } catch (detail::UcxReceiveError const& error) {
        failure_detector_->suspect(error.source(), error.what());
        return std::nullopt;
    }
}

bool UcxxCommunicator::Impl::progress() {
    bool moved = transport_->progress();
    moved = handle_control() || moved;
    if (auto failure = closed_peers_.missed([this](Rank rank) { return transport_->in_flight_with(rank); })) {
        owner_.fail(std::move(*failure));
    }
    if (auto const suspicion = failure_detector_->confirmed(liveness_ != nullptr)) {
        owner_.report_protocol_violation(suspicion->peer, suspicion->what);
    }
    return moved;
}

void UcxxCommunicator::Impl::on_peer_closed(Rank rank) {
    if (rank < 0 || rank >= nranks_ || rank == rank_) {
        return;
    }
    closed_peers_.note(rank);
    owner_.note_closed(rank);
    owner_.progress_thread()->wake();
}

void UcxxCommunicator::Impl::abort(std::string const& reason) {
    RankFailure const failure{rank_, host_name(), ::getpid(), reason};
    if (liveness_) {
        liveness_->abort(reason);
    } else {
        tell_by_message(failure);
    }
    owner_.fail(failure);
}

void UcxxCommunicator::Impl::report_protocol_violation(Rank culprit, std::string const& reason) {
    if (culprit < 0) {
        abort(reason);  // no rank is known to be the cause
        return;
    }
    RankFailure const failure{culprit, "", 0, reason};
    if (liveness_) {
        liveness_->report_protocol_violation(culprit, reason);
    } else {
        tell_by_message(failure);
    }
    owner_.fail(failure);
}

void UcxxCommunicator::Impl::tell_by_message(RankFailure const& failure) {
    if (failure_detector_->is_set()) {
        return;
    }
    told_by_message_.store(true, std::memory_order_release);
    auto const message = detail::AbortMessage{failure}.encode();
    for (Rank peer = 0; peer < nranks_; ++peer) {
        if (peer != rank_ && transport_->is_connected(peer)) {
            send_control(peer, message);
        }
    }
}

std::vector<std::string> UcxxCommunicator::Impl::transports() const {
    std::set<std::string> names;
    for (Rank peer = 0; peer < nranks_; ++peer) {
        if (peer != rank_) {
            for (auto& name : transport_->transports_to(peer)) {
                names.insert(std::move(name));
            }
        }
    }
    return {names.begin(), names.end()};
}

}  // namespace rapidsmpf
