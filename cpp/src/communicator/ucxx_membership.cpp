#include <algorithm>
#include <exception>

#include <rapidsmpf/core/error.hpp>

#include "communicator/ucxx_impl.hpp"

namespace rapidsmpf {

namespace {

using Clock = std::chrono::steady_clock;
using detail::ControlKind;

}  // namespace

void UcxxCommunicator::Impl::connect_all(std::vector<Address> const& addresses) {
    for (Rank peer = 0; peer < nranks_; ++peer) {
        if (peer != rank_ && !transport_->is_connected(peer)) {
            transport_->connect(peer, addresses.at(static_cast<std::size_t>(peer)));
        }
    }
    MutexLock const lock{mutex_};
    connected_ = true;
    changed_.notify_all();
}

// As a rank other than the root, before start(): this thread drives the worker.
UcxxCommunicator::Address UcxxCommunicator::Impl::ask_to_join(
    Address const& root_address, std::chrono::milliseconds timeout) {
    transport_->connect(detail::root, root_address);
    send_control(
        detail::root,
        detail::JoinMessage{nranks_, ucxx_worker_address(*transport_->worker())}.encode(token_));
    auto const answered = transport_->drive_until(Clock::now() + timeout, [&] {
        handle_control();
        MutexLock const lock{mutex_};
        return rank_ != detail::no_rank || !refused_.empty();
    });
    MutexLock const lock{mutex_};
    RAPIDSMPF_EXPECTS(
        refused_.empty(), "the root of the communicator refuses this process: " + refused_,
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        answered,
        "the root of the communicator did not answer within " + std::to_string(timeout.count())
            + " ms: is its process alive, and its address the right one?",
        TimeoutError);
    return invitation_;
}

void UcxxCommunicator::Impl::send_control(Rank destination, std::vector<std::uint8_t> message) {
    auto bytes = std::make_shared<std::vector<std::uint8_t> const>(std::move(message));
    static_cast<void>(transport_->send(
        destination, detail::ucx_control_tag(rank_), bytes->data(), bytes->size(), UCS_MEMORY_TYPE_HOST,
        bytes));
}

bool UcxxCommunicator::Impl::handle_control() {
    bool any = false;
    try {
        while (auto const message = inbox_.take(detail::control_bit)) {
            any = true;
            try {
                on_control(message->source, message->bytes);
            } catch (std::exception const& error) {
                // Malformed, or the address of a process that cannot be reached: it does not get in.
                owner_.logger().warn(
                    "ignored a message of "
                    + (message->source == detail::no_rank ? "a process without a rank"
                                                          : "rank " + std::to_string(message->source))
                    + ": " + error.what());
            }
        }
    } catch (detail::UcxReceiveError const& error) {
        failure_detector_->suspect(error.source(), error.what());
    }
    return any;
}

void UcxxCommunicator::Impl::on_control(Rank source, std::vector<std::uint8_t> const& message) {
    switch (detail::control_kind(message)) {
        case ControlKind::join:
            on_join(detail::JoinMessage::decode(message, token_));
            return;
        case ControlKind::assign: {
            auto assign = detail::AssignMessage::decode(message);
            auto const assigned = assign.rank;
            RAPIDSMPF_EXPECTS(
                assigned > detail::root && assigned < nranks_, "rank out of range", FormatError);
            MutexLock const lock{mutex_};
            RAPIDSMPF_EXPECTS(rank_ == detail::no_rank, "a second rank", FormatError);
            rank_ = assigned;
            invitation_ = std::move(assign.invitation);
            return;
        }
        case ControlKind::refuse: {
            MutexLock const lock{mutex_};
            refused_ = detail::RefuseMessage::decode(message).reason;
            return;
        }
        case ControlKind::table:
            on_table(detail::TableMessage::decode(message));
            return;
        case ControlKind::arrive: {
            auto const barrier = detail::BarrierMessage::decode(message);
            MutexLock const lock{mutex_};
            arrived_[barrier.number].insert(source);
            changed_.notify_all();
            return;
        }
        case ControlKind::release: {
            auto const barrier = detail::BarrierMessage::decode(message);
            MutexLock const lock{mutex_};
            released_ = std::max(released_, barrier.number);
            changed_.notify_all();
            return;
        }
        case ControlKind::abort:
            owner_.fail(detail::AbortMessage::decode(message).failure);
            return;
    }
}

void UcxxCommunicator::Impl::on_join(detail::JoinMessage const& join) {
    std::string refusal;
    {
        MutexLock const lock{mutex_};
        if (rank_ != detail::root || joined_.empty()) {
            refusal = "its address is not that of a root";
        } else if (join.nranks != nranks_) {
            refusal = "this process says that there are " + std::to_string(join.nranks) + " ranks, the root "
                      + std::to_string(nranks_);
        } else if (joined_.size() == static_cast<std::size_t>(nranks_)) {
            refusal = "all " + std::to_string(nranks_) + " ranks have joined already";
        }
    }
    if (!refusal.empty()) {
        auto* const endpoint = transport_->connect_unranked(join.address);
        auto bytes = std::make_shared<std::vector<std::uint8_t> const>(
            detail::RefuseMessage{std::move(refusal)}.encode());
        transport_->send_to(
            endpoint, detail::no_rank, detail::ucx_control_tag(rank_), bytes->data(), bytes->size(),
            UCS_MEMORY_TYPE_HOST, bytes);
        return;
    }
    Rank assigned = detail::no_rank;
    std::vector<std::uint8_t> invitation;
    std::optional<detail::TableMessage> table;
    {
        MutexLock const lock{mutex_};
        assigned = static_cast<Rank>(joined_.size());
        transport_->connect(assigned, join.address);
        joined_.push_back(join.address);
        invitation = invitation_;
        if (joined_.size() == static_cast<std::size_t>(nranks_)) {
            table.emplace(joined_);
        }
    }
    send_control(assigned, detail::AssignMessage{assigned, std::move(invitation)}.encode());
    if (table) {
        for (Rank peer = 0; peer < nranks_; ++peer) {
            if (peer != rank_) {
                send_control(peer, table->encode());
            }
        }
        MutexLock const lock{mutex_};
        connected_ = true;
        changed_.notify_all();
    }
}

void UcxxCommunicator::Impl::on_table(detail::TableMessage const& table) {
    RAPIDSMPF_EXPECTS(
        table.addresses.size() == static_cast<std::size_t>(nranks_), "a table of another size", FormatError);
    connect_all(table.addresses);
}

std::string UcxxCommunicator::Impl::missing_at_barrier(std::uint64_t number) const {
    if (rank_ != detail::root) {
        return connected_ ? "some rank has not reached it" : "some rank has not joined";
    }
    std::string missing;
    auto const arrived = arrived_.find(number);
    for (Rank peer = 1; peer < nranks_; ++peer) {
        if (arrived == arrived_.end() || !arrived->second.contains(peer)) {
            missing += (missing.empty() ? "" : ", ") + std::to_string(peer);
        }
    }
    return "not reached by rank(s) " + missing;
}

void UcxxCommunicator::Impl::barrier(
    std::optional<std::chrono::milliseconds> timeout, std::stop_token const& stop) {
    std::uint64_t number = 0;
    {
        MutexLock const lock{mutex_};
        number = ++barriers_;
    }
    if (nranks_ == 1) {
        return;
    }
    failure_detector_->raise_if_set();
    if (rank_ != detail::root) {
        send_control(detail::root, detail::BarrierMessage{ControlKind::arrive, number}.encode());
    }
    std::stop_callback const on_stop{stop, [this] {
                                         MutexLock const lock{mutex_};
                                         changed_.notify_all();
                                     }};
    {
        UniqueLock lock{mutex_};
        auto const reached = [&]() RAPIDSMPF_REQUIRES(mutex_) {
            if (failure_detector_->is_set()) {
                return true;
            }
            if (rank_ != detail::root) {
                return connected_ && released_ >= number;
            }
            auto const arrived = arrived_.find(number);
            return connected_ && arrived != arrived_.end()
                   && arrived->second.size() == static_cast<std::size_t>(nranks_) - 1;
        };
        auto const over = [&]() RAPIDSMPF_REQUIRES(mutex_) { return reached() || stop.stop_requested(); };
        if (!timeout) {
            changed_.wait(lock, over);
        } else if (!changed_.wait_for(lock, *timeout, over)) {
            throw TimeoutError{
                "the barrier did not finish within " + std::to_string(timeout->count())
                + " ms: " + missing_at_barrier(number)};
        }
        if (!reached()) {
            throw TimeoutError{"the barrier was interrupted: " + missing_at_barrier(number)};
        }
        arrived_.erase(number);
    }
    failure_detector_->raise_if_set();
    if (rank_ == detail::root) {
        for (Rank peer = 1; peer < nranks_; ++peer) {
            send_control(peer, detail::BarrierMessage{ControlKind::release, number}.encode());
        }
    }
}

}  // namespace rapidsmpf
