#include <rapidsmpf/coll/sparse_alltoall.hpp>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "coll/per_rank.hpp"

namespace rapidsmpf::coll {

namespace {

void check_list(Communicator const& comm, std::vector<Rank> const& ranks, std::string const& what) {
    std::set<Rank> seen;
    for (auto const rank : ranks) {
        require_rank(comm, rank, what);
        RAPIDSMPF_EXPECTS(
            seen.insert(rank).second, what + " " + std::to_string(rank) + " is listed twice",
            std::invalid_argument);
    }
}

bool contains(std::vector<Rank> const& ranks, Rank rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// Travels ahead of the chunks: says that this rank has the other among its destinations.
PackedData greeting(BufferResource& br) {
    return PackedData{{0}, br.allocate(MemoryType::HOST, 0)};
}

// Every chunk has metadata on its way, so that none counts as empty; its first byte is taken off again.
constexpr std::uint8_t chunk_mark = 1;

}  // namespace

SparseAlltoall::SparseAlltoall(
    std::shared_ptr<Communicator> comm, OpId op, std::shared_ptr<BufferResource> br,
    std::vector<Rank> sources, std::vector<Rank> destinations, exchange::Settings const& settings)
    : comm_{std::move(comm)},
      br_{std::move(br)},
      sources_{std::move(sources)},
      destinations_{std::move(destinations)} {
    auto& ranks = require_comm(comm_, "a sparse all-to-all");
    check_list(ranks, sources_, "source");
    check_list(ranks, destinations_, "destination");
    operation_ = exchange::Operation::open(ranks, br_, plan_per_rank(ranks, "sparse-alltoall", op, settings));
    std::vector<PartitionId> others;
    std::vector<std::pair<PartitionId, PackedData>> greetings;
    for (Rank rank = 0; rank < ranks.nranks(); ++rank) {
        auto const partition = static_cast<PartitionId>(rank);
        if (contains(destinations_, rank)) {
            greetings.emplace_back(partition, greeting(*br_));
        } else {
            others.push_back(partition);
        }
    }
    operation_->insert(std::move(greetings));
    if (!others.empty()) {
        operation_->insert_finished(others);
    }
}

SparseAlltoall::~SparseAlltoall() = default;

void SparseAlltoall::insert(Rank destination, PackedData chunk) {
    RAPIDSMPF_EXPECTS(
        contains(destinations_, destination),
        "rank " + std::to_string(destination) + " is not among the destinations of " + operation_->str(),
        std::invalid_argument);
    chunk.metadata.insert(chunk.metadata.begin(), chunk_mark);
    std::vector<std::pair<PartitionId, PackedData>> list;
    list.emplace_back(static_cast<PartitionId>(destination), std::move(chunk));
    operation_->insert(std::move(list));
}

void SparseAlltoall::insert_finished() {
    RAPIDSMPF_EXPECTS(
        !inserted_.exchange(true), operation_->str() + " is finished already", std::logic_error);
    std::vector<PartitionId> partitions;
    for (auto const rank : destinations_) {
        partitions.push_back(static_cast<PartitionId>(rank));
    }
    if (!partitions.empty()) {
        operation_->insert_finished(partitions);
    }
}

void SparseAlltoall::wait(Timeout timeout) {
    operation_->wait_complete(mine(), timeout);
    check_lists();
}

void SparseAlltoall::check_lists() {
    auto const received = operation_->received(mine());
    for (Rank rank = 0; rank < comm_->nranks(); ++rank) {
        bool const sends = received[static_cast<std::size_t>(rank)] > 0;
        if (sends == contains(sources_, rank)) {
            continue;
        }
        auto const here = std::to_string(comm_->rank());
        auto const there = std::to_string(rank);
        auto const text = sends ? "rank " + there + " has rank " + here
                                      + " among its destinations, which does not have it among its sources"
                                : "rank " + here + " has rank " + there
                                      + " among its sources, which does not have it among its destinations";
        operation_->abandon(text);
        throw std::invalid_argument{operation_->str() + ": " + text};
    }
}

std::vector<PackedData> SparseAlltoall::extract(Rank source) {
    RAPIDSMPF_EXPECTS(
        contains(sources_, source),
        "rank " + std::to_string(source) + " is not among the sources of " + operation_->str(),
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        operation_->all_complete(), operation_->str() + " is not complete: wait() for it first",
        std::logic_error);
    std::vector<PackedData> chunks;
    for (auto& chunk : operation_->extract(mine(), source)) {
        RAPIDSMPF_EXPECTS(
            !chunk.data.metadata.empty(), "a chunk of rank " + std::to_string(source) + " has no mark",
            FormatError);
        if (chunk.data.metadata.front() == chunk_mark) {
            chunk.data.metadata.erase(chunk.data.metadata.begin());
            chunks.push_back(std::move(chunk.data));
        }
    }
    return chunks;
}

bool SparseAlltoall::finished() const {
    return operation_->all_complete();
}

void SparseAlltoall::tell_when_complete(std::function<void()> told) {
    operation_->tell_when_complete(static_cast<PartitionId>(comm_->rank()), std::move(told));
}

}  // namespace rapidsmpf::coll
