// The communicator over MPI, in a library of its own (librapidsmpf_mpi) that is built where an MPI is found: MPI has no
// binary interface that all implementations share, so nothing else may depend on it.
//
// It works on a duplicate of the caller's MPI communicator, so that its messages are separate from the caller's, and needs
// MPI_THREAD_MULTIPLE: its progress thread calls MPI beside the caller's threads. Every message begins with a header
// on one MPI tag, which carries small messages whole; the bytes of others follow under an MPI tag of their own, in
// pieces of at most "mpi_chunk_bytes" (default 1 GiB, as counts are ints), so neither the size of a message nor the range
// of our tags depends on the implementation.
//
// MPI has nothing to wait on: while nothing moves the progress thread looks at ever longer intervals, up to 1 ms
// while something is in flight here and up to 20 ms otherwise. Device memory is staged through the host.
//
// Lost ranks are noticed through a coordinator that rank 0 hosts (bootstrap/detail/hosted.hpp), as far as the MPI launcher
// does not end the whole job itself. MPI_Finalize closes communicators that are still open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/progress_thread.hpp>

namespace rapidsmpf {

// A communicator of the processes of an MPI intracommunicator, with the same ranks; `handle` is its MPI_Comm_c2f().
// Collective. A null progress thread: a new one is made. Options: "mpi_chunk_bytes"; "coordinator_host", the IPv4
// address on which rank 0 listens when the ranks are on several hosts (default: that of its first network interface).
//
// Throws std::runtime_error when MPI is not initialised, or without MPI_THREAD_MULTIPLE, or when a call of MPI fails;
// std::invalid_argument for a handle of something else.
[[nodiscard]] std::shared_ptr<Communicator> make_mpi_communicator(
    std::int64_t handle, config::Options options = config::Options{},
    std::shared_ptr<ProgressThread> progress_thread = nullptr);

// What MPI_Get_library_version says, and whether that library is initialised: to find out whether two parts of a
// process use the same.
[[nodiscard]] std::string mpi_library_version();
[[nodiscard]] bool mpi_is_initialized();

}  // namespace rapidsmpf
