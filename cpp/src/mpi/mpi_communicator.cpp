#include "mpi/mpi_communicator.hpp"

#include <exception>
#include <utility>

#include <unistd.h>

#include <rapidsmpf/core/detail/host_name.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/mpi/mpi.hpp>

#include "mpi/mpi_check.hpp"

namespace rapidsmpf::detail {

namespace {

using Clock = std::chrono::steady_clock;

// How long a communicator that is destroyed waits for others to take what it has sent.
constexpr std::chrono::milliseconds goodbye{5000};
// How long it then waits for the others to leave as well: only then can its duplicate be freed.
constexpr std::chrono::milliseconds parting{1000};

void check_range(Buffer const& buffer, std::size_t offset, std::size_t size) {
    RAPIDSMPF_EXPECTS(
        offset <= buffer.size() && size <= buffer.size() - offset, "a message beyond the end of its buffer",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        buffer.mem_type() != MemoryType::DISK, "bytes on disk cannot be sent or received", std::logic_error);
}

// A send or receive, as the user of a communicator holds it.
class MpiRequest final : public Communicator::Request {
  public:
    // `operation` is null for a send that goes nowhere, because its receiver has left. `arrived` is called once, when
    // a receive is complete.
    MpiRequest(
        std::shared_ptr<MpiTransport> const& transport, std::shared_ptr<FailureDetector> failure_detector,
        MpiOperationPtr operation, std::function<void()> arrived = nullptr)
        : transport_{transport},
          failure_detector_{std::move(failure_detector)},
          operation_{std::move(operation)},
          arrived_{std::move(arrived)} {}
    ~MpiRequest() override {
        if (operation_ && operation_->kind() == MpiOperation::Kind::receive && !operation_->is_complete()) {
            if (auto const transport = transport_.lock()) {
                transport->cancel(*operation_);
            }
        }
    }
    MpiRequest(MpiRequest const&) = delete;
    MpiRequest& operator=(MpiRequest const&) = delete;

    [[nodiscard]] bool test() override {
        if (!operation_) {
            return true;
        }
        if (!operation_->is_complete()) {
            failure_detector_->raise_if_set();
            return false;
        }
        if (!operation_->error().empty()) {
            throw std::runtime_error{operation_->error()};
        }
        if (auto const arrived = std::exchange(arrived_, nullptr)) {
            arrived();
        }
        return true;
    }

  private:
    std::weak_ptr<MpiTransport> transport_;
    std::shared_ptr<FailureDetector> failure_detector_;
    MpiOperationPtr operation_;
    std::function<void()> arrived_;
};

}  // namespace

MpiCommunicator::MpiCommunicator(
    MPI_Comm comm, std::size_t chunk_bytes, std::unique_ptr<Liveness> liveness, config::Options options,
    std::shared_ptr<ProgressThread> progress_thread)
    : Communicator{std::move(options), std::move(progress_thread)},
      transport_{std::make_shared<MpiTransport>(comm, chunk_bytes, [this] { posted(); })},
      liveness_{std::move(liveness)},
      closed_peers_{transport_->nranks()} {
    logger_.set_rank(rank());
    // MPI_Finalize begins by deleting the attributes of MPI_COMM_SELF.
    RAPIDSMPF_MPI(
        Comm_create_keyval, MPI_COMM_NULL_COPY_FN, &MpiCommunicator::on_finalize, &finalize_keyval_, nullptr);
    RAPIDSMPF_MPI(Comm_set_attr, MPI_COMM_SELF, finalize_keyval_, this);
    listener_ = add_failure_listener([failure_detector = failure_detector_](RankFailure const& failure) {
        failure_detector->set(failure);
    });
    function_ = this->progress_thread()->add_function(
        [this] { return ProgressThread::TickResult::busy_if(progress()); });
    source_ = this->progress_thread()->add_event_source(pace_.descriptor(), [this] {
        pace_.arm(transport_->has_in_flight());
        return true;
    });
    if (liveness_) {
        liveness_->start(
            Liveness::Events{
                [this](RankFailure const& failure) { fail(failure); },
                [this](Rank rank) { on_peer_closed(rank); }});
    }
}

MpiCommunicator::~MpiCommunicator() {
    close();
}

int MpiCommunicator::on_finalize(MPI_Comm /*comm*/, int /*keyval*/, void* attribute, void* /*extra*/) {
    auto& comm = *static_cast<MpiCommunicator*>(attribute);
    if (comm.is_in_fork()) {
        return MPI_SUCCESS;  // it is the parent's
    }
    if (std::exchange(comm.finalize_keyval_, MPI_KEYVAL_INVALID) == MPI_KEYVAL_INVALID) {
        return MPI_SUCCESS;  // close() deletes it
    }
    comm.close();
    // For what still waits, or is tried later.
    comm.fail(RankFailure{comm.rank(), host_name(), ::getpid(), "MPI was finalised"});
    return MPI_SUCCESS;
}

void MpiCommunicator::close() noexcept {
    std::call_once(closed_, [this] {
        retire();
        bool parted = false;
        try {
            auto const failed = [this] { return failure_detector_->is_set(); };
            if (!failed()) {
                bool const delivered = transport_->drain(
                    Clock::now() + goodbye, [this](Rank peer) { return closed_peers_.has(peer); }, failed);
                if (!delivered && !failed()) {
                    logger().warn(
                        "the communicator is destroyed with messages that other ranks have not received");
                }
                if (liveness_) {
                    liveness_->graceful_close(std::chrono::milliseconds{0});
                }
                parted = delivered && transport_->meet(Clock::now() + parting, failed);
            } else if (liveness_) {
                liveness_->graceful_close(std::chrono::milliseconds{0});
            }
            if (liveness_) {
                liveness_->stop();
            }
        } catch (std::exception const& error) {
            logger().warn(std::string{"while a communicator was destroyed: "} + error.what());
        }
        progress_thread()->remove_event_source(source_);
        progress_thread()->remove_function(function_);
        remove_failure_listener(listener_);
        transport_->close(parted ? MpiTransport::Parted::yes : MpiTransport::Parted::no);
        liveness_.reset();
    });
    // MPI_Finalize deletes it by itself.
    int finalized = 0;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0
        && finalize_keyval_ != MPI_KEYVAL_INVALID) {
        auto keyval = std::exchange(finalize_keyval_, MPI_KEYVAL_INVALID);
        MPI_Comm_delete_attr(MPI_COMM_SELF, keyval);
        MPI_Comm_free_keyval(&keyval);
    }
}

std::string MpiCommunicator::str() const {
    auto const version = mpi_library_version();
    return "MpiCommunicator(rank=" + std::to_string(rank()) + ", nranks=" + std::to_string(nranks())
           + ", mpi=" + version.substr(0, version.find_first_of(",\n")) + ")";
}

void MpiCommunicator::check_peer(Rank peer) const {
    RAPIDSMPF_EXPECTS(
        peer >= 0 && peer < nranks() && peer != rank(),
        "rank " + std::to_string(peer) + " is not another rank of a communicator of "
            + std::to_string(nranks()) + ", of which this is rank " + std::to_string(rank()),
        std::invalid_argument);
}

void MpiCommunicator::posted() {
    pace_.hurry();
    progress_thread()->wake();
}

// What MPI refuses never completes: it ends with the failure that becomes known of it.
MpiOperationPtr MpiCommunicator::or_never(Rank peer, std::function<MpiOperationPtr()> const& post) {
    try {
        return post();
    } catch (MpiError const& error) {
        failure_detector_->suspect(peer, error.what());
        posted();
        return std::make_shared<MpiOperation>(MpiOperation::Kind::send, peer, 0, 0, nullptr);
    }
}

std::unique_ptr<Communicator::Request> MpiCommunicator::send_bytes(
    void const* bytes, std::size_t size, std::shared_ptr<void const> keep_alive, Rank destination, Tag tag) {
    MpiOperationPtr operation;
    // A rank that left receives no more messages.
    if (!closed_peers_.has(destination)) {
        operation = or_never(destination, [&] {
            return transport_->send(destination, tag.value(), bytes, size, std::move(keep_alive));
        });
    }
    return std::make_unique<MpiRequest>(transport_, failure_detector_, std::move(operation));
}

std::unique_ptr<Communicator::Request> MpiCommunicator::send(
    std::vector<std::uint8_t> message, Rank destination, Tag tag) {
    check_peer(destination);
    auto bytes = std::make_shared<std::vector<std::uint8_t> const>(std::move(message));
    auto const* const data = bytes->data();
    auto const size = bytes->size();
    return send_bytes(data, size, std::move(bytes), destination, tag);
}

std::unique_ptr<Communicator::Request> MpiCommunicator::send(
    std::shared_ptr<Buffer const> buffer, std::size_t offset, std::size_t size, Rank destination, Tag tag) {
    check_peer(destination);
    check_range(*buffer, offset, size);
    RAPIDSMPF_EXPECTS(buffer->is_ready(), "the buffer to send is still being written", std::logic_error);
    if (buffer->is_host_accessible()) {
        auto const* const data = buffer->data() + offset;
        return send_bytes(data, size, std::move(buffer), destination, tag);
    }
    auto staged = std::make_shared<std::vector<std::byte>>(size);
    auto& device = buffer->resource()->device();
    device.copy(staged->data(), buffer->data() + offset, size, buffer->stream());
    device.synchronize(buffer->stream());
    auto const* const data = staged->data();
    return send_bytes(data, size, std::move(staged), destination, tag);
}

std::unique_ptr<Communicator::Request> MpiCommunicator::recv(
    std::shared_ptr<Buffer> buffer, std::size_t offset, std::size_t size, Rank source, Tag tag) {
    check_peer(source);
    check_range(*buffer, offset, size);
    // MPI writes in its own time: what may still use the bytes has to be over.
    buffer->synchronize();
    MpiOperationPtr operation;
    std::function<void()> arrived;
    if (buffer->is_host_accessible()) {
        std::byte* data = nullptr;
        buffer->write([&](std::byte* bytes, Stream /*stream*/) { data = bytes + offset; });
        operation = or_never(
            source, [&] { return transport_->receive(source, tag.value(), data, size, std::move(buffer)); });
    } else {
        auto staged = std::make_shared<std::vector<std::byte>>(size);
        auto* const data = staged->data();
        operation =
            or_never(source, [&] { return transport_->receive(source, tag.value(), data, size, staged); });
        arrived = [buffer = std::move(buffer), staged, offset] {
            buffer->write([&](std::byte* bytes, Stream stream) {
                buffer->resource()->device().copy(bytes + offset, staged->data(), staged->size(), stream);
            });
            buffer->synchronize();
        };
    }
    if (closed_peers_.has(source)) {
        closed_peers_.expect_from(source);
    }
    return std::make_unique<MpiRequest>(
        transport_, failure_detector_, std::move(operation), std::move(arrived));
}

std::optional<Communicator::Arrived> MpiCommunicator::recv_any(Tag tag) {
    try {
        return transport_->take_any(tag.value());
    } catch (MpiError const& error) {
        failure_detector_->suspect(-1, error.what());
        return std::nullopt;
    }
}

bool MpiCommunicator::progress() {
    bool moved = false;
    if (pace_.is_due()) {
        try {
            moved = transport_->progress();
        } catch (MpiProtocolError const& error) {
            report_protocol_violation(error.peer(), error.what());
        } catch (MpiError const& error) {
            // MPI does not say whose fault it is; the news of a dead rank may be on its way.
            failure_detector_->suspect(-1, error.what());
        }
        pace_.looked(moved);
    }
    if (auto failure = closed_peers_.missed([this](Rank rank) { return transport_->in_flight_with(rank); })) {
        fail(std::move(*failure));
    }
    if (auto const suspicion = failure_detector_->confirmed(liveness_ != nullptr)) {
        report_protocol_violation(suspicion->peer, suspicion->what);
    }
    return moved;
}

void MpiCommunicator::on_peer_closed(Rank rank) {
    if (rank < 0 || rank >= nranks() || rank == this->rank()) {
        return;
    }
    closed_peers_.note(rank);
    note_closed(rank);
    posted();
}

void MpiCommunicator::abort(std::string const& reason) {
    if (liveness_) {
        liveness_->abort(reason);
    }
    fail(RankFailure{rank(), host_name(), ::getpid(), reason});
}

void MpiCommunicator::report_protocol_violation(Rank culprit, std::string const& reason) {
    if (culprit < 0) {
        abort(reason);  // no rank is known to be the cause
        return;
    }
    if (liveness_) {
        liveness_->report_protocol_violation(culprit, reason);
    }
    fail(RankFailure{culprit, "", 0, reason});
}

}  // namespace rapidsmpf::detail
