// The UCXX communicator for Python.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/interrupt.hpp>
#include <ucxx/api.h>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/communicator/ucxx.hpp>

namespace rapidsmpf::python {

using Bytes = std::vector<std::uint8_t>;

// The owner of the worker at an address that Python's UCXWorker gave (0: none). A pointer instead of a cimport of ucxx,
// whose import changes the environment of the process.
[[nodiscard]] inline std::shared_ptr<::ucxx::Worker> worker_at(std::uintptr_t address) {
    if (address == 0) {
        return nullptr;
    }
    auto* const worker =
        reinterpret_cast<::ucxx::Worker*>(address);  // NOLINT: from Python's UCXWorker.ucxx_ptr
    return std::dynamic_pointer_cast<::ucxx::Worker>(worker->shared_from_this());
}

// must_be_ours: the address has to be one that get_root_ucxx_address() gave, not UCX's bare one.
[[nodiscard]] inline std::shared_ptr<Communicator> join_ucxx(
    Rank nranks, std::uintptr_t worker, bool has_root, bool must_be_ours, Bytes root_address,
    config::Options options, std::shared_ptr<ProgressThread> progress_thread) {
    std::optional<Bytes> root;
    if (has_root) {
        RAPIDSMPF_EXPECTS(
            !must_be_ours || is_sealed_ucxx_address(root_address),
            "these " + std::to_string(root_address.size())
                + " bytes are not the address of a root: use what get_root_ucxx_address() gives",
            std::invalid_argument);
        root = std::move(root_address);
    }
    return bootstrap::join_ucxx_comm(
        nranks, worker_at(worker), root, std::move(options), std::move(progress_thread));
}

[[nodiscard]] inline UcxxCommunicator& as_ucxx(std::shared_ptr<Communicator> const& comm) {
    auto* const ucxx = dynamic_cast<UcxxCommunicator*>(comm.get());
    RAPIDSMPF_EXPECTS(
        ucxx != nullptr, "this needs a UCXX communicator, not " + comm->str(), std::invalid_argument);
    return *ucxx;
}

[[nodiscard]] inline Bytes ucxx_address(std::shared_ptr<Communicator> const& comm) {
    return as_ucxx(comm).worker_address();
}

// The caller does not hold the GIL.
inline void ucxx_barrier(std::shared_ptr<Communicator> const& comm, double seconds) {
    auto& ucxx = as_ucxx(comm);
    run_until_stopped([&](std::stop_token const& stop) { ucxx.barrier(to_timeout(seconds), stop); });
}

}  // namespace rapidsmpf::python
