// One collective operation on one rank: moves chunks between the ranks, by partition, and knows when a
// partition is complete. What the chunks mean, and who wants them, is the business of coll/.
//
// How a chunk travels, from rank A to rank B (wire.hpp has the messages):
//   1. insert() gives it a sequence number and puts it into A's outbox for B; small ones of one call as a bundle.
//   2. On its next tick A sends B one control message with everything it has for it. Small chunks travel in it
//      as long as A's eager credit lasts; others are announced in frames: sizes and metadata only.
//   3. B queues the frame. When the receive budget has room B allocates memory for it in the best tier that
//      has room, and grants the frame. Until then A's chunks may be spilled.
//   4. The payload travels by the transport that the two ranks use (transport.hpp): A writes it to where B granted
//      it and says so; or it sends messages, the small chunks of the frame gathered in one.
//   5. B puts the chunks into its store, where they may be spilled, and releases the budget. It does not wait
//      for anyone to extract them: so no rank's progress depends on what a user does, and nothing deadlocks.
// insert_finished() sends the number of chunks of each partition: B knows when it has them all.
//
// Closing. A's last message to B (`final`) follows when A has sent B everything and B's chunks for A have all
// come. When an operation has sent and received all last messages it is closed, and the dispatcher drops it. An
// operation that is abandoned (its handle was destroyed early, an exception inside it) sends a last message
// that says so: the other ranks' operations raise that and pass it on, so every rank ends, and every id is free.
//
// A rank that closes its communicator in good order has sent all that its finished operations held. Who still
// lacks something of it then (it never began the operation) raises RankFailedError, and passes that on in the same
// way. What others still had for it is dropped: it does not want it any more.
//
// Memory. Chunks are SpillableBuffers: the arbiter of the buffer resource moves them down, to disk in the end,
// while they wait to be sent or to be extracted. A frame is granted when there is memory for it; when there is
// none it waits in line while others' chunks are spilled. Who inserts waits, too, while memory is overbooked.
//
// Who does what. An Operation is what users call, on any thread. Its OperationState, in src/exchange, is what users and the
// progress thread share, under a mutex that neither holds for long: what was inserted, what has come, how it ends. The
// OperationCore belongs to the progress thread and has no lock: SendPath and ReceivePath, and the last messages. No call out
// of any of them is made under the mutex that may come back: not one that waits for memory, not Communicator::fail().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/exchange/settings.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

struct OperationState;

class Operation final {
  public:
    using Timeout = std::optional<std::chrono::milliseconds>;

    // Whether what was inserted may wait a moment for more, so that many chunks cost the progress threads no more than one.
    // For ranks that insert many, and that no rank waits for before they have finished.
    enum class Coalescing : std::uint8_t { no, yes };

    struct Plan {
        Plan() {}          // user-written: travels through coroutines, not an aggregate
        std::string kind;  // for people and statistics: "shuffle", "allgather"
        OpId op{0};
        PartitionId total{0};
        std::function<Rank(PartitionId)> owner;
        Coalescing coalescing{Coalescing::no};
        // If set, called once for each partition of this rank when it is complete: on the progress thread, without
        // the lock, not after release() has begun. It may insert and extract. What it throws fails the operation.
        std::function<void(Operation&, PartitionId)> completed;
        Settings settings;
    };
    // A chunk as it is extracted.
    struct Chunk {
        Chunk(Rank source_, std::uint64_t sequence_, PackedData data_)
            : source{source_}, sequence{sequence_}, data{std::move(data_)} {}
        Rank source;
        std::uint64_t sequence;
        PackedData data;
    };

    // Claims the operation id and begins. What is returned is the user's handle: when its last copy goes, the operation is
    // released, also out of a constructor that throws. The communicator must live until then. Throws
    // std::invalid_argument, RankFailedError.
    [[nodiscard]] static std::shared_ptr<Operation> open(
        Communicator& comm, std::shared_ptr<BufferResource> br, Plan plan);
    explicit Operation(std::shared_ptr<OperationState> state);
    ~Operation();
    Operation(Operation const&) = delete;
    Operation& operator=(Operation const&) = delete;

    // Chunks for partitions, one for each at most. Throws std::out_of_range, std::logic_error as Shuffler::insert().
    void insert(std::vector<std::pair<PartitionId, PackedData>> chunks);
    // One chunk for the one partition that each rank owns, with the caller's sequence number.
    void insert_for_all(std::uint64_t sequence, PackedData chunk);
    void insert_finished(std::vector<PartitionId> const& partitions);
    void insert_finished();
    [[nodiscard]] bool all_inserted() const;

    [[nodiscard]] PartitionId wait_any(Timeout timeout);
    void wait_on(PartitionId partition, Timeout timeout);
    // Waits without marking the partition as waited for.
    void wait_complete(PartitionId partition, Timeout timeout);
    // The same without a thread that waits: `told` is called once, when wait_complete() (wait_any()) would not wait any more,
    // be it for an error; at once if that is so. On any thread, under the lock of this operation: it must only wake a thread.
    void tell_when_complete(PartitionId partition, std::function<void()> told);
    void tell_when_any(std::function<void()> told);
    // What is there (of one source, or of all), by (source, sequence).
    [[nodiscard]] std::vector<Chunk> extract(PartitionId partition, std::optional<Rank> source = {});
    // How many chunks have come from each rank so far.
    [[nodiscard]] std::vector<std::uint64_t> received(PartitionId partition) const;
    [[nodiscard]] bool all_complete() const;
    [[nodiscard]] bool all_extracted() const;
    [[nodiscard]] std::vector<PartitionId> const& local_partitions() const noexcept;
    [[nodiscard]] std::string str() const;

    // Moves data that waits, here or elsewhere in the buffer resource, from DEVICE to a lower tier until `amount`
    // bytes are freed; returns how many were.
    std::size_t spill(std::size_t amount);

    // See Shuffler::shutdown().
    void shutdown(Timeout timeout);
    // What the end of the handle does, for those that do it earlier: lets the operation end by itself, or abandons it. Never
    // blocks on other ranks. Only the first call counts.
    void release() noexcept;
    // The id may be used by another operation from now on; release() implies it. Only for what is complete.
    void release_id() noexcept;
    // Every later call here and on the other ranks raises `reason`.
    void abandon(std::string const& reason);

  private:
    // Waits for memory when there is less than none.
    void make_room(std::int64_t available);

    std::shared_ptr<OperationState> state_;
};

}  // namespace rapidsmpf::exchange
