// Each rank sends chunks to the ranks it names and gets those of the ranks it names as sources: for patterns in
// which most pairs have nothing to say to each other, as between neighbours.
//
// Rank b is among the destinations of a exactly if a is among the sources of b. It is checked: the ranks still tell
// each other, in one small message per pair, whether they have something; in return a list that is wrong is an error
// and not a hang.
//
// Life time, threading and errors are those of the Shuffler (see there).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>

namespace rapidsmpf::coll {

class SparseAlltoall {
  public:
    // `sources`, `destinations`: ranks, in any order; this rank may be among them. Throws std::invalid_argument when
    // one is no rank or comes twice, or the operation id is in use on this rank or out of range.
    SparseAlltoall(
        std::shared_ptr<Communicator> comm, OpId op, std::shared_ptr<BufferResource> br,
        std::vector<Rank> sources, std::vector<Rank> destinations,
        exchange::Settings const& settings = exchange::Settings::for_device(Device::current()));
    ~SparseAlltoall();
    SparseAlltoall(SparseAlltoall const&) = delete;
    SparseAlltoall& operator=(SparseAlltoall const&) = delete;

    // Gives a chunk (an empty one is a chunk, too). Throws std::invalid_argument for a rank that is not a
    // destination, std::logic_error after insert_finished().
    void insert(Rank destination, PackedData chunk);
    // This rank gives nothing more. Throws std::logic_error when called twice.
    void insert_finished();

    // Waits for all chunks of all sources. Throws std::invalid_argument when the ranks' lists do not agree,
    // TimeoutError naming the ranks that are missing. May be called again.
    void wait(Timeout timeout = {});
    // Calls `told` once, when wait() would not wait any more, be it for an error; at once if that is so. On any thread,
    // with locks held: it must only wake a waiter. For waits without a thread (streaming/collectives.hpp).
    void tell_when_complete(std::function<void()> told);
    // Takes out the chunks of a source in the order of their insertion; none the second time. Throws
    // std::logic_error before wait() has returned, std::invalid_argument for a rank that is not a source.
    [[nodiscard]] std::vector<PackedData> extract(Rank source);
    // Whether everything of every source has arrived.
    [[nodiscard]] bool finished() const;

    [[nodiscard]] std::vector<Rank> const& sources() const noexcept { return sources_; }
    [[nodiscard]] std::vector<Rank> const& destinations() const noexcept { return destinations_; }
    [[nodiscard]] std::shared_ptr<Communicator> const& comm() const noexcept { return comm_; }

  private:
    void check_lists();
    [[nodiscard]] PartitionId mine() const noexcept { return static_cast<PartitionId>(comm_->rank()); }

    std::shared_ptr<Communicator> comm_;
    std::shared_ptr<BufferResource> br_;
    std::vector<Rank> sources_;
    std::vector<Rank> destinations_;
    std::atomic<bool> inserted_{false};
    std::shared_ptr<exchange::Operation> operation_;  // last: goes before what its callbacks use
};

}  // namespace rapidsmpf::coll

namespace rapidsmpf {
using coll::SparseAlltoall;
}  // namespace rapidsmpf
