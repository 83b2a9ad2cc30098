#include <rapidsmpf/mpi/mpi.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include <mpi.h>

#include <rapidsmpf/bootstrap/detail/hosted.hpp>
#include <rapidsmpf/communicator/detail/lifetime.hpp>
#include <rapidsmpf/communicator/detail/liveness.hpp>
#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/logger.hpp>

#include "mpi/mpi_check.hpp"
#include "mpi/mpi_communicator.hpp"

namespace rapidsmpf {

namespace {

using bootstrap::HostedCoordinator;
using bootstrap::Invitation;

constexpr std::chrono::seconds connect_timeout{30};

std::size_t chunk_bytes(config::Options const& options) {
    auto const bytes = config::get_bytes(options, "mpi_chunk_bytes");
    RAPIDSMPF_EXPECTS(
        bytes > 0 && bytes <= std::numeric_limits<int>::max(),
        "mpi_chunk_bytes must be between 1 and 2147483647, not " + std::to_string(bytes),
        std::invalid_argument);
    return static_cast<std::size_t>(bytes);
}

void check_initialised() {
    RAPIDSMPF_EXPECTS(
        mpi_is_initialized(), "MPI is not initialised, or finalised already", std::runtime_error);
    int level = MPI_THREAD_SINGLE;
    RAPIDSMPF_MPI(Query_thread, &level);
    RAPIDSMPF_EXPECTS(
        level == MPI_THREAD_MULTIPLE,
        "MPI was initialised without MPI_THREAD_MULTIPLE, which a communicator's progress thread needs: call "
        "MPI_Init_thread with it; with mpi4py, set mpi4py.rc.thread_level = 'multiple' (its default) before "
        "importing mpi4py.MPI",
        std::runtime_error);
}

MPI_Comm intracommunicator(std::int64_t handle) {
    auto const comm = MPI_Comm_f2c(static_cast<MPI_Fint>(handle));
    RAPIDSMPF_EXPECTS(comm != MPI_COMM_NULL, "this is MPI_COMM_NULL", std::invalid_argument);
    int inter = 0;
    RAPIDSMPF_MPI(Comm_test_inter, comm, &inter);
    RAPIDSMPF_EXPECTS(
        inter == 0, "an intercommunicator cannot be used: merge it to an intracommunicator",
        std::invalid_argument);
    return comm;
}

// The duplicate, freed unless the caller takes it over.
class Duplicate {
  public:
    explicit Duplicate(MPI_Comm original) {
        RAPIDSMPF_MPI(Comm_dup, original, &comm_);
        RAPIDSMPF_MPI(Comm_set_errhandler, comm_, MPI_ERRORS_RETURN);
    }
    ~Duplicate() {
        if (comm_ != MPI_COMM_NULL) {
            MPI_Comm_free(&comm_);
        }
    }
    Duplicate(Duplicate const&) = delete;
    Duplicate& operator=(Duplicate const&) = delete;
    [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }
    [[nodiscard]] MPI_Comm take() noexcept { return std::exchange(comm_, MPI_COMM_NULL); }

  private:
    MPI_Comm comm_{MPI_COMM_NULL};
};

bool is_on_one_host(MPI_Comm comm) {
    MPI_Comm host = MPI_COMM_NULL;
    RAPIDSMPF_MPI(Comm_split_type, comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    int here = 0;
    int all = 0;
    RAPIDSMPF_MPI(Comm_size, host, &here);
    RAPIDSMPF_MPI(Comm_size, comm, &all);
    RAPIDSMPF_MPI(Comm_free, &host);
    // The answer has to be the same on all ranks.
    int one = here == all ? 1 : 0;
    RAPIDSMPF_MPI(Allreduce, MPI_IN_PLACE, &one, 1, MPI_INT, MPI_MIN, comm);
    return one == 1;
}

std::string interface_for(bool one_host, config::Options const& options) {
    auto const asked = config::get_text(options, "coordinator_host");
    if (asked.empty()) {
        return one_host ? "127.0.0.1" : bootstrap::own_address();
    }
    return asked;
}

// Every rank learns whether all succeeded: none is left waiting for one that gave up.
void agree(MPI_Comm comm, std::string const& own_error) {
    int ok = own_error.empty() ? 1 : 0;
    RAPIDSMPF_MPI(Allreduce, MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, comm);
    RAPIDSMPF_EXPECTS(own_error.empty(), own_error, std::runtime_error);
    RAPIDSMPF_EXPECTS(
        ok == 1, "another rank could not make the communicator; its error says why", std::runtime_error);
}

std::unique_ptr<Liveness> make_liveness(MPI_Comm comm, config::Options options) {
    int rank = 0;
    int nranks = 0;
    RAPIDSMPF_MPI(Comm_rank, comm, &rank);
    RAPIDSMPF_MPI(Comm_size, comm, &nranks);
    bool const one_host = is_on_one_host(comm);
    std::unique_ptr<HostedCoordinator> host;
    bootstrap::Bytes bytes;
    std::string error;
    if (rank == 0) {
        try {
            // Shared with the host's thread.
            auto const logger = std::make_shared<Logger>(options, 0);
            host = std::make_unique<HostedCoordinator>(
                nranks, interface_for(one_host, options),
                [logger](std::string const& text) { logger->info(text); }, options);
            bytes = host->invitation().encode();
        } catch (std::exception const& caught) {
            error = caught.what();
        }
    }
    agree(comm, error);
    auto size = static_cast<int>(bytes.size());
    RAPIDSMPF_MPI(Bcast, &size, 1, MPI_INT, 0, comm);
    bytes.resize(static_cast<std::size_t>(size));
    RAPIDSMPF_MPI(Bcast, bytes.data(), size, MPI_BYTE, 0, comm);
    std::unique_ptr<Liveness> liveness;
    try {
        liveness = bootstrap::accept_invitation(
            Invitation::decode(bytes), rank, nranks, std::move(host), connect_timeout);
    } catch (std::exception const& caught) {
        error = caught.what();
    }
    agree(comm, error);
    return liveness;
}

}  // namespace

std::shared_ptr<Communicator> make_mpi_communicator(
    std::int64_t handle, config::Options options, std::shared_ptr<ProgressThread> progress_thread) {
    check_initialised();
    auto const chunk = chunk_bytes(options);
    Duplicate duplicate{intracommunicator(handle)};
    int nranks = 0;
    RAPIDSMPF_MPI(Comm_size, duplicate.get(), &nranks);
    auto liveness = nranks > 1 ? make_liveness(duplicate.get(), options) : nullptr;
    return detail::make_communicator<detail::MpiCommunicator>(
        duplicate.take(), chunk, std::move(liveness), std::move(options), std::move(progress_thread));
}

std::string mpi_library_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
    int length = 0;
    RAPIDSMPF_MPI(Get_library_version, text.data(), &length);
    return std::string{text.data()};
}

bool mpi_is_initialized() {
    int initialized = 0;
    int finalized = 0;
    RAPIDSMPF_MPI(Initialized, &initialized);
    RAPIDSMPF_MPI(Finalized, &finalized);
    return initialized != 0 && finalized == 0;
}

}  // namespace rapidsmpf
