// What a UcxxCommunicator is made of. ucxx_impl.cpp: messages, failures, its beginning and end;
// ucxx_membership.cpp: joining, the barrier and the other messages that it sends on its own account.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/communicator/detail/closed_peers.hpp>
#include <rapidsmpf/communicator/detail/liveness.hpp>
#include <rapidsmpf/communicator/ucxx.hpp>
#include <rapidsmpf/core/detail/token.hpp>
#include <rapidsmpf/core/mutex.hpp>

#include "communicator/ucxx_control.hpp"
#include "communicator/ucxx_inbox.hpp"
#include "communicator/ucxx_request.hpp"
#include "communicator/ucxx_transport.hpp"

namespace rapidsmpf {

class UcxxCommunicator::Impl {
  public:
    Impl(
        UcxxCommunicator& owner, Rank rank, Rank nranks, Token const& token,
        std::shared_ptr<::ucxx::Worker> worker)
        : rank_{rank},
          nranks_{nranks},
          token_{token},
          owner_{owner},
          transport_{std::make_shared<detail::UcxTransport>(
              std::move(worker), nranks, detail::ucx_tag_key(token),
              [&owner] { owner.progress_thread()->wake(); })},
          inbox_{*transport_},
          closed_peers_{nranks} {}

    [[nodiscard]] Rank rank() const noexcept { return rank_; }
    [[nodiscard]] Rank nranks() const noexcept { return nranks_; }
    [[nodiscard]] Token const& token() const noexcept { return token_; }
    [[nodiscard]] detail::UcxTransport& transport() noexcept { return *transport_; }

    void connect_all(std::vector<Address> const& addresses);
    // Returns the root's invitation.
    [[nodiscard]] Address ask_to_join(Address const& root_address, std::chrono::milliseconds timeout);
    // On the root, before start().
    void invite_with(std::vector<std::uint8_t> invitation) {
        MutexLock const lock{mutex_};
        invitation_ = std::move(invitation);
    }
    void start(std::unique_ptr<Liveness> liveness);
    void finish() noexcept;

    [[nodiscard]] std::unique_ptr<Request> send(
        void const* bytes, std::size_t size, ucs_memory_type_t memory_type,
        std::shared_ptr<void const> keep_alive, Rank destination, Tag tag);
    [[nodiscard]] std::unique_ptr<Request> receive(
        void* bytes, std::size_t size, ucs_memory_type_t memory_type, std::shared_ptr<void const> keep_alive,
        Rank source, Tag tag);
    [[nodiscard]] std::optional<Arrived> receive_any(Tag tag);
    bool progress();
    void abort(std::string const& reason);
    void report_protocol_violation(Rank culprit, std::string const& reason);
    void barrier(std::optional<std::chrono::milliseconds> timeout, std::stop_token const& stop);
    [[nodiscard]] std::vector<std::string> transports() const;

  private:
    void check_peer(Rank peer) const;
    // Without a liveness channel: tells all ranks of a failure that this one has found.
    void tell_by_message(RankFailure const& failure);
    void send_control(Rank destination, std::vector<std::uint8_t> message);
    bool handle_control();
    void on_control(Rank source, std::vector<std::uint8_t> const& message);
    void on_join(detail::JoinMessage const& join);
    void on_table(detail::TableMessage const& table);
    void on_peer_closed(Rank rank);
    [[nodiscard]] std::chrono::milliseconds close_patience() const;
    [[nodiscard]] std::string missing_at_barrier(std::uint64_t number) const RAPIDSMPF_REQUIRES(mutex_);

    Rank rank_;
    Rank const nranks_;
    Token const token_;
    UcxxCommunicator& owner_;
    std::shared_ptr<detail::UcxTransport> transport_;
    detail::UcxInbox inbox_;
    std::shared_ptr<detail::FailureDetector> failure_detector_{std::make_shared<detail::FailureDetector>()};
    std::unique_ptr<Liveness> liveness_;
    ListenerId listener_{0};
    ProgressThread::FunctionId function_{0};
    ProgressThread::SourceId source_{0};

    detail::ClosedPeers closed_peers_;
    std::atomic<bool> told_by_message_{false};

    mutable Mutex mutex_;
    ConditionVariable changed_;
    // Joining. The root collects addresses; the others wait for their rank, then for the table.
    std::vector<Address> joined_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool connected_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::string refused_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::vector<std::uint8_t> invitation_ RAPIDSMPF_GUARDED_BY(mutex_);  // the root's, to all
    // Barriers are numbered from 1.
    std::uint64_t barriers_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::uint64_t released_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::map<std::uint64_t, std::set<Rank>> arrived_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf
