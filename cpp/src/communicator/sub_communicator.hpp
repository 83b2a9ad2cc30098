// The view of some ranks of a communicator that split() makes. See split.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>

namespace rapidsmpf::detail {

class SubCommunicator final : public Communicator {
  public:
    // `transport` is no sub-communicator; members[r] is the rank there of rank r; `context` is reserved in its SplitState, and
    // freed with this object.
    SubCommunicator(
        std::shared_ptr<Communicator> transport, std::vector<Rank> members, Rank rank, ContextId context);
    // Tells the other members that this one has left.
    ~SubCommunicator() override;

    [[nodiscard]] std::shared_ptr<Communicator> const& transport() const noexcept { return transport_; }
    [[nodiscard]] ContextId context() const noexcept { return context_; }
    // The rank in the transport.
    [[nodiscard]] Rank member(Rank rank) const { return members_.at(static_cast<std::size_t>(rank)); }

    [[nodiscard]] Rank rank() const noexcept override { return rank_; }
    [[nodiscard]] Rank nranks() const noexcept override { return static_cast<Rank>(members_.size()); }
    [[nodiscard]] std::string str() const override;

    [[nodiscard]] std::unique_ptr<Request> send(
        std::vector<std::uint8_t> message, Rank destination, Tag tag) override;
    [[nodiscard]] std::unique_ptr<Request> send(
        std::shared_ptr<Buffer const> buffer, std::size_t offset, std::size_t size, Rank destination,
        Tag tag) override;
    [[nodiscard]] std::unique_ptr<Request> recv(
        std::shared_ptr<Buffer> buffer, std::size_t offset, std::size_t size, Rank source, Tag tag) override;
    [[nodiscard]] std::optional<Arrived> recv_any(Tag tag) override;
    bool progress() override { return transport_->progress(); }

    [[nodiscard]] std::optional<RankFailure> failure() const override;
    void abort(std::string const& reason) override;
    void report_protocol_violation(Rank culprit, std::string const& reason) override;
    [[nodiscard]] bool has_closed(Rank rank) const override;
    [[nodiscard]] std::optional<Rank> first_closed() const override;

  private:
    [[nodiscard]] Rank peer(Rank rank) const;
    [[nodiscard]] std::optional<Rank> rank_of(Rank member) const;
    [[nodiscard]] RankFailure translate(RankFailure const& failure) const;
    [[nodiscard]] bool take_goodbyes();

    std::shared_ptr<Communicator> transport_;
    std::vector<Rank> members_;
    Rank rank_;
    ContextId context_;
    ListenerId listener_{0};
    ProgressThread::FunctionId function_{0};
};

}  // namespace rapidsmpf::detail
