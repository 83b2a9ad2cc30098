// Communicators over UCXX that are made by hand: the root's address travels by other means (Dask, Ray, a file).
#pragma once

#include <memory>
#include <optional>

#include <rapidsmpf/communicator/ucxx.hpp>
#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/progress_thread.hpp>

namespace rapidsmpf::bootstrap {

// As UcxxCommunicator::join(), and ranks notice the end of others: the root hosts a coordinator, on the interface
// with the IPv4 address of the option "coordinator_host" (default 127.0.0.1: for ranks on its own host; those of
// other hosts warn that they go without).
[[nodiscard]] std::shared_ptr<UcxxCommunicator> join_ucxx_comm(
    Rank nranks, std::shared_ptr<::ucxx::Worker> worker,
    std::optional<UcxxCommunicator::Address> const& root_address, config::Options options = config::Options{},
    std::shared_ptr<ProgressThread> progress_thread = nullptr);

}  // namespace rapidsmpf::bootstrap
