// The communicator of one rank, without a peer. Collectives work on it without a transport.
#pragma once

#include <memory>

#include <rapidsmpf/communicator/communicator.hpp>

namespace rapidsmpf {

class SingleCommunicator final : public Communicator {
  public:
    // progress_thread: shared with others, or null for one of its own.
    explicit SingleCommunicator(
        config::Options options = config::Options{},
        std::shared_ptr<ProgressThread> progress_thread = nullptr);
    ~SingleCommunicator() override;

    [[nodiscard]] Rank rank() const noexcept override { return 0; }
    [[nodiscard]] Rank nranks() const noexcept override { return 1; }
    [[nodiscard]] std::string str() const override { return "SingleCommunicator(rank=0, nranks=1)"; }

    // There is no other rank: these throw std::invalid_argument.
    [[nodiscard]] std::unique_ptr<Request> send(
        std::vector<std::uint8_t> message, Rank destination, Tag tag) override;
    [[nodiscard]] std::unique_ptr<Request> send(
        std::shared_ptr<Buffer const> buffer, std::size_t offset, std::size_t size, Rank destination,
        Tag tag) override;
    [[nodiscard]] std::unique_ptr<Request> recv(
        std::shared_ptr<Buffer> buffer, std::size_t offset, std::size_t size, Rank source, Tag tag) override;

    [[nodiscard]] std::optional<Arrived> recv_any(Tag) override { return std::nullopt; }
    bool progress() override { return false; }
};

}  // namespace rapidsmpf
