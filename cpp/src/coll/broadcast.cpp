#include <rapidsmpf/coll/broadcast.hpp>

#include <stdexcept>
#include <string>
#include <utility>

#include "coll/per_rank.hpp"

namespace rapidsmpf::coll {

Broadcast::Broadcast(
    std::shared_ptr<Communicator> comm, OpId op, Rank root, std::vector<std::uint8_t> const& bytes,
    std::shared_ptr<BufferResource> br)
    : comm_{std::move(comm)}, root_{root}, br_{br ? std::move(br) : BufferResource::make()} {
    auto& ranks = require_comm(comm_, "a broadcast");
    require_rank(ranks, root, "the root of a broadcast,");
    operation_ = exchange::Operation::open(
        ranks, br_, plan_per_rank(ranks, "broadcast", op, exchange::Settings::for_device(Device::current())));
    if (comm_->rank() == root) {
        // Metadata marks the chunk: there is one even without bytes.
        operation_->insert_for_all(0, PackedData{{1}, host_copy(*br_, std::as_bytes(std::span{bytes}))});
    }
    operation_->insert_finished();
}

Broadcast::~Broadcast() = default;

std::vector<std::uint8_t> Broadcast::wait_and_extract(Timeout timeout) {
    auto const mine = static_cast<PartitionId>(comm_->rank());
    operation_->wait_complete(mine, timeout);
    RAPIDSMPF_EXPECTS(
        !std::exchange(extracted_, true), "the bytes of " + operation_->str() + " have been taken",
        std::logic_error);
    auto chunks = operation_->extract(mine);
    if (chunks.size() != 1 || chunks.front().source != root_) {
        std::string senders;
        for (auto const& chunk : chunks) {
            senders += (senders.empty() ? "" : ", ") + std::to_string(chunk.source);
        }
        throw std::invalid_argument{
            "the ranks disagree about the root of " + operation_->str() + ": here it is rank "
            + std::to_string(root_) + ", but "
            + (senders.empty() ? "no rank takes itself for it" : "for itself it is rank " + senders)};
    }
    auto const data = to_host(*br_, std::move(chunks.front().data.data));
    auto const bytes = data->host_bytes();
    auto const* const begin = reinterpret_cast<std::uint8_t const*>(bytes.data());
    return {begin, begin + bytes.size()};
}

std::vector<std::uint8_t> broadcast_bytes(
    std::shared_ptr<Communicator> const& comm, OpId op, Rank root, std::vector<std::uint8_t> const& bytes,
    Timeout timeout, std::shared_ptr<BufferResource> br) {
    return Broadcast{comm, op, root, bytes, std::move(br)}.wait_and_extract(timeout);
}

void Broadcast::tell_when_complete(std::function<void()> told) {
    operation_->tell_when_complete(static_cast<PartitionId>(comm_->rank()), std::move(told));
}

}  // namespace rapidsmpf::coll
