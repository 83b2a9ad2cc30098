// Gives every rank the bytes of one of them, the root. For small things: a plan, a few options.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>

namespace rapidsmpf::coll {

// Life time and errors are those of the Shuffler.
class Broadcast {
  public:
    // `bytes`: the root's; those of the others are not looked at. `br`: whose budget the bytes on their way count in; null: a
    // resource of its own, which has no limit. Throws std::invalid_argument when the operation id is in use on this rank or out of
    // range, or there is no such rank as the root.
    Broadcast(
        std::shared_ptr<Communicator> comm, OpId op, Rank root, std::vector<std::uint8_t> const& bytes,
        std::shared_ptr<BufferResource> br = nullptr);
    ~Broadcast();
    Broadcast(Broadcast const&) = delete;
    Broadcast& operator=(Broadcast const&) = delete;

    // Waits until every rank has begun it, not only the root: so ranks that disagree about the root all throw
    // std::invalid_argument. Once: std::logic_error after it has returned. Throws TimeoutError naming the ranks that
    // are missing, RankFailedError.
    [[nodiscard]] std::vector<std::uint8_t> wait_and_extract(Timeout timeout = {});

    // Calls `told` once, when wait_and_extract() would not wait any more, be it for an error; at once if that is so. On any thread,
    // with locks held: it must only wake a waiter. For waits without a thread (streaming/collectives.hpp).
    void tell_when_complete(std::function<void()> told);

  private:
    std::shared_ptr<Communicator> comm_;
    Rank root_;
    std::shared_ptr<BufferResource> br_;
    bool extracted_{false};
    std::shared_ptr<exchange::Operation> operation_;  // last: goes before what its callbacks use
};

[[nodiscard]] std::vector<std::uint8_t> broadcast_bytes(
    std::shared_ptr<Communicator> const& comm, OpId op, Rank root, std::vector<std::uint8_t> const& bytes,
    Timeout timeout = {}, std::shared_ptr<BufferResource> br = nullptr);

}  // namespace rapidsmpf::coll

namespace rapidsmpf {
using coll::Broadcast;
}  // namespace rapidsmpf
