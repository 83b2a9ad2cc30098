// What the collectives with one partition for each rank share: partition r is what rank r gets.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>

namespace rapidsmpf::coll {

[[nodiscard]] inline exchange::Operation::Plan plan_per_rank(
    Communicator const& comm, std::string kind, OpId op, exchange::Settings const& settings) {
    exchange::Operation::Plan plan;
    plan.kind = std::move(kind);
    plan.op = op;
    plan.total = static_cast<exchange::PartitionId>(comm.nranks());
    plan.owner = [](exchange::PartitionId partition) { return static_cast<Rank>(partition); };
    plan.settings = settings;
    return plan;
}

[[nodiscard]] inline Communicator& require_comm(
    std::shared_ptr<Communicator> const& comm, std::string const& kind) {
    RAPIDSMPF_EXPECTS(comm != nullptr, kind + " needs a communicator", std::invalid_argument);
    return *comm;
}

inline void require_rank(Communicator const& comm, Rank rank, std::string const& what) {
    RAPIDSMPF_EXPECTS(
        rank >= 0 && rank < comm.nranks(),
        what + " " + std::to_string(rank) + " is not a rank: there are " + std::to_string(comm.nranks()),
        std::invalid_argument);
}

// The bytes of a chunk for the CPU, wherever they came to lie.
[[nodiscard]] inline std::unique_ptr<Buffer> to_host(BufferResource& br, std::unique_ptr<Buffer> data) {
    data = br.move_to_host_access(std::move(data));
    data->synchronize();
    return data;
}

// A host buffer with these bytes.
[[nodiscard]] inline std::unique_ptr<Buffer> host_copy(BufferResource& br, std::span<std::byte const> bytes) {
    auto data = br.allocate(MemoryType::HOST, bytes.size());
    if (!bytes.empty()) {
        data->write(
            [&](std::byte* to, Stream stream) { br.device().copy(to, bytes.data(), bytes.size(), stream); });
        data->synchronize();
    }
    return data;
}

}  // namespace rapidsmpf::coll
