// Every rank gives any number of chunks and gets those of all ranks.
//
// Life time, threading and errors are those of the Shuffler (see there): the handle never blocks when it is
// destroyed. An id may be used again once wait_and_extract() has returned or the handle is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>

namespace rapidsmpf::coll {

enum class Ordered : bool { no = false, yes = true };

class AllGather {
  public:
    // Throws std::invalid_argument when the operation id is in use on this rank or out of range.
    AllGather(
        std::shared_ptr<Communicator> comm, OpId op, std::shared_ptr<BufferResource> br,
        exchange::Settings const& settings = exchange::Settings::for_device(Device::current()));
    ~AllGather();
    AllGather(AllGather const&) = delete;
    AllGather& operator=(AllGather const&) = delete;

    // Gives a chunk (an empty one is a chunk, too). `sequence` orders this rank's chunks. Throws
    // std::logic_error after insert_finished().
    void insert(std::uint64_t sequence, PackedData chunk);
    // This rank gives nothing more. Throws std::logic_error when called twice.
    void insert_finished();

    // Waits for all chunks of all ranks, its own included, and takes them out; ordered: by (rank, sequence).
    // Chunks that extract_ready() took are not among them. Throws TimeoutError naming the ranks that are missing.
    [[nodiscard]] std::vector<PackedData> wait_and_extract(
        Ordered ordered = Ordered::yes, Timeout timeout = {});
    // Calls `told` once, when wait_and_extract() would not wait any more, be it for an error; at once if that is so. On any thread,
    // with locks held: it must only wake a waiter. For waits without a thread (streaming/collectives.hpp).
    void tell_when_complete(std::function<void()> told);
    // Takes out what has arrived, in no order. Never waits.
    [[nodiscard]] std::vector<PackedData> extract_ready();
    // Whether everything of every rank has arrived.
    [[nodiscard]] bool finished() const;

    // What destroying this does, with a reason for the others: if this rank has not finished inserting, every later call here
    // and on other ranks raises it. Nothing happens if it has. Never blocks.
    void give_up(std::string const& reason);

    [[nodiscard]] std::shared_ptr<Communicator> const& comm() const noexcept { return comm_; }
    [[nodiscard]] OpId op() const noexcept { return op_; }

  private:
    std::shared_ptr<Communicator> comm_;
    OpId op_;
    std::shared_ptr<exchange::Operation> operation_;
};

// Gives each rank the bytes of every rank, by rank. Blocks; for small things.
[[nodiscard]] std::vector<std::vector<std::uint8_t>> allgather_bytes(
    std::shared_ptr<Communicator> const& comm, OpId op, std::vector<std::uint8_t> bytes,
    Timeout timeout = {});

}  // namespace rapidsmpf::coll

namespace rapidsmpf {
using coll::AllGather;
using coll::Ordered;
}  // namespace rapidsmpf
