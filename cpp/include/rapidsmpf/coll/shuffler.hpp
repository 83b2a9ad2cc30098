// All-to-all exchange of partitioned data between the ranks of a communicator.
//
// Every rank makes a Shuffler with the same operation id and number of partitions, inserts chunks for any
// partition, says when it has inserted the last one, and takes out the partitions that it owns. A partition
// is complete as soon as every rank has finished it and its chunks have arrived, whatever the others do.
//
// Ownership: inserted buffers belong to the Shuffler until they are sent or extracted. They are allocated in
// the tier they came in; while they wait (to be sent, or to be extracted) the BufferResource may have them
// moved from DEVICE to HOST.
//
// Life time. A Shuffler is a handle. Destroying it never blocks: an operation whose insertions are all
// finished goes on sending in the background; one that is not is abandoned, and the waits of the other ranks
// raise an error that says so. Both ends of every pair close the operation with a last message each, and
// messages after it belong to the next operation with that id: so an id may be used again as soon as the
// handle is gone, at any time relative to the other ranks, as long as all ranks use it in the same order.
//
// Threading: every method may be called from any thread. Errors: once the communicator has failed, every
// pending and later call (other than the destructor and shutdown) raises RankFailedError; an error inside
// the operation is raised by all its later calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/exchange/settings.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

namespace rapidsmpf::exchange {
class Operation;
}

namespace rapidsmpf::coll {

using PartitionId = std::uint32_t;
// How long a wait may take; none: for ever.
using Timeout = std::optional<std::chrono::milliseconds>;

// Which rank owns partition p of n on r ranks.
enum class PartitionAssignment : std::uint8_t {
    round_robin,  // p % r
    contiguous,   // p * r / n: rank order is partition order
};

// partition < total, nranks > 0.
[[nodiscard]] Rank partition_owner(
    PartitionId partition, std::uint32_t total, Rank nranks, PartitionAssignment assignment) noexcept;

class Shuffler {
  public:
    // Throws std::invalid_argument when the operation id is in use on this rank or out of range, or
    // total_partitions is zero.
    Shuffler(
        std::shared_ptr<Communicator> comm, OpId op, std::uint32_t total_partitions,
        std::shared_ptr<BufferResource> br, PartitionAssignment assignment = PartitionAssignment::round_robin,
        exchange::Settings const& settings = exchange::Settings::for_device(Device::current()));
    ~Shuffler();
    Shuffler(Shuffler const&) = delete;
    Shuffler& operator=(Shuffler const&) = delete;

    // Takes the chunks, one for each partition at most; empty ones are skipped. They should ascend by partition, as
    // partition_and_pack makes them: what is needed at the same time then lies side by side, here and where it goes. All or
    // nothing: throws std::out_of_range for a partition that does not exist and std::logic_error for one that this rank has
    // finished.
    void insert(std::vector<std::pair<PartitionId, PackedData>> chunks);
    // The same, in the order of their partitions.
    void insert(std::unordered_map<PartitionId, PackedData> chunks);
    void insert(PartitionId partition, PackedData chunk);

    // This rank will insert nothing more into these partitions. All or nothing: throws std::out_of_range for a
    // partition that does not exist, std::logic_error for one finished before or an empty list.
    void insert_finished(std::vector<PartitionId> const& partitions);
    // The same for every partition that is not finished yet; a no-op when there is none.
    void insert_finished();

    // Waits for a partition of this rank to be complete and returns it; each is returned once. Throws
    // std::out_of_range when all have been waited for, TimeoutError naming what is missing.
    [[nodiscard]] PartitionId wait_any(Timeout timeout = {});
    // Waits for this partition. Throws std::out_of_range when it does not exist or has been waited for,
    // std::invalid_argument when another rank owns it, TimeoutError.
    void wait_on(PartitionId partition, Timeout timeout = {});
    // Calls `told` once, when wait_any(), or wait_on(partition), would not wait any more, be it for an error; at once if that is so. On any thread,
    // with locks held: it must only wake a waiter. For waits without a thread (streaming/collectives.hpp).
    void tell_when_any(std::function<void()> told);
    void tell_when_complete(PartitionId partition, std::function<void()> told);
    // Takes out the chunks of a partition of this rank that are there, by (source rank, order of insertion
    // there): all of them once it is complete, what has arrived before that. Never waits. What has been taken
    // is not returned again. Throws as wait_on().
    [[nodiscard]] std::vector<PackedData> extract(PartitionId partition);

    // Whether every partition of this rank is complete and has been extracted.
    [[nodiscard]] bool finished() const;
    // The partitions that this rank owns, ascending.
    [[nodiscard]] std::vector<PartitionId> const& local_partitions() const noexcept { return local_; }
    [[nodiscard]] Rank owner(PartitionId partition) const;
    // All partitions, those of a rank side by side. As long as this object lives, tables with as many partitions
    // in the memory of its BufferResource have them in this order (PartitionOrderHint), so that those of a rank move as one.
    [[nodiscard]] std::vector<PartitionId> const& by_owner() const noexcept { return *by_owner_; }
    [[nodiscard]] std::uint32_t total_partitions() const noexcept { return total_; }
    [[nodiscard]] std::shared_ptr<Communicator> const& comm() const noexcept { return comm_; }
    [[nodiscard]] OpId op() const noexcept { return op_; }

    // Moves waiting chunks from DEVICE to HOST until `amount` bytes are freed (none: all); returns how many were.
    std::size_t spill(std::optional<std::size_t> amount = {});

    // Ends the use of this object: waits until what this rank inserted has been sent, if all insertions are
    // finished; abandons the operation if not. Chunks not extracted are dropped. Idempotent. Throws
    // TimeoutError (and may be called again), RankFailedError if a rank fails meanwhile; quiet when there was
    // an error before.
    void shutdown(Timeout timeout = {});

    // What destroying this does, with a reason for the others: if this rank has not finished all insertions, every later call
    // here and on other ranks raises it. Nothing happens if it has. Never blocks.
    void give_up(std::string const& reason);

    [[nodiscard]] std::string str() const;

  private:
    std::shared_ptr<Communicator> comm_;
    OpId op_;
    std::uint32_t total_;
    PartitionAssignment assignment_;
    std::vector<PartitionId> local_;
    std::shared_ptr<std::vector<PartitionId> const> by_owner_;
    std::shared_ptr<exchange::Operation> operation_;
};

}  // namespace rapidsmpf::coll

namespace rapidsmpf {
using coll::PartitionAssignment;
using coll::PartitionId;
using coll::Shuffler;
}  // namespace rapidsmpf
