// The communicator behind make_mpi_communicator(). mpi_communicator.cpp: messages, failures, the end; mpi.cpp: how
// the ranks come together.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/communicator/detail/closed_peers.hpp>
#include <rapidsmpf/communicator/detail/failure_detector.hpp>
#include <rapidsmpf/communicator/detail/liveness.hpp>

#include "mpi/mpi_transport.hpp"
#include "mpi/poll_pace.hpp"

namespace rapidsmpf::detail {

class MpiCommunicator final : public Communicator {
  public:
    // `comm`: see MpiTransport. `liveness` may be null.
    MpiCommunicator(
        MPI_Comm comm, std::size_t chunk_bytes, std::unique_ptr<Liveness> liveness, config::Options options,
        std::shared_ptr<ProgressThread> progress_thread);
    // Delivers what is still being sent (for at most a few seconds, not at all after a failure) and leaves.
    ~MpiCommunicator() override;

    [[nodiscard]] Rank rank() const noexcept override { return transport_->rank(); }
    [[nodiscard]] Rank nranks() const noexcept override { return transport_->nranks(); }
    [[nodiscard]] std::string str() const override;

    [[nodiscard]] std::unique_ptr<Request> send(
        std::vector<std::uint8_t> message, Rank destination, Tag tag) override;
    [[nodiscard]] std::unique_ptr<Request> send(
        std::shared_ptr<Buffer const> buffer, std::size_t offset, std::size_t size, Rank destination,
        Tag tag) override;
    [[nodiscard]] std::unique_ptr<Request> recv(
        std::shared_ptr<Buffer> buffer, std::size_t offset, std::size_t size, Rank source, Tag tag) override;
    [[nodiscard]] std::optional<Arrived> recv_any(Tag tag) override;
    bool progress() override;
    void abort(std::string const& reason) override;
    void report_protocol_violation(Rank culprit, std::string const& reason) override;

  private:
    [[nodiscard]] std::unique_ptr<Request> send_bytes(
        void const* bytes, std::size_t size, std::shared_ptr<void const> keep_alive, Rank destination,
        Tag tag);
    [[nodiscard]] MpiOperationPtr or_never(Rank peer, std::function<MpiOperationPtr()> const& post);
    void check_peer(Rank peer) const;
    void on_peer_closed(Rank rank);
    void posted();
    // Ends all that has to do with MPI; the second call does nothing. By the destructor, or by MPI_Finalize.
    void close() noexcept;
    static int on_finalize(MPI_Comm comm, int keyval, void* attribute, void* extra);

    std::shared_ptr<MpiTransport> transport_;
    std::shared_ptr<FailureDetector> failure_detector_{std::make_shared<FailureDetector>()};
    std::unique_ptr<Liveness> liveness_;
    PollPace pace_;
    ListenerId listener_{0};
    ProgressThread::FunctionId function_{0};
    ProgressThread::SourceId source_{0};
    int finalize_keyval_{MPI_KEYVAL_INVALID};
    std::once_flag closed_;

    ClosedPeers closed_peers_;
};

}  // namespace rapidsmpf::detail
