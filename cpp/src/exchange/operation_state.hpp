// What an operation's users and the progress thread share: the data of one collective call on one rank, and its mutex.
//
// Users insert, wait and extract (operation.cpp); the progress thread takes what was inserted and brings what has come
// (operation_core.cpp). Both hold the mutex for that only: never while bytes are copied or messages written, nor while
// anything is called that may come back here.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/core/statistics.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "exchange/bundler.hpp"
#include "exchange/closing_state.hpp"
#include "exchange/insertions.hpp"
#include "exchange/local_partitions.hpp"
#include "exchange/partition_store.hpp"
#include "exchange/piece_unpacker.hpp"
#include "exchange/stall.hpp"
#include "exchange/waker.hpp"

namespace rapidsmpf::exchange {

struct OperationState {
    OperationState(Communicator& comm_, std::shared_ptr<BufferResource> br_, Operation::Plan plan_);
    OperationState(OperationState const&) = delete;
    OperationState& operator=(OperationState const&) = delete;

    // "shuffle 3", "shuffle 3 on rank 0"
    [[nodiscard]] std::string name() const { return plan.kind + " " + std::to_string(plan.op); }
    [[nodiscard]] std::string str() const { return name() + " on rank " + std::to_string(rank); }

    // Any thread, without the mutex.
    void abandon(Rank origin, std::string const& reason, FinalKind kind, std::exception_ptr error = nullptr)
        RAPIDSMPF_EXCLUDES(mutex);
    // The communicator has failed, or goes.
    void cut_off(RankFailure const& failure) RAPIDSMPF_EXCLUDES(mutex);
    // Whether nothing that was inserted is still to be sent (or never will be), and nothing that was asked for is
    // still to come.
    [[nodiscard]] bool flushed() const RAPIDSMPF_EXCLUDES(mutex);

    void abandon_locked(Final const& last_message, std::exception_ptr error) RAPIDSMPF_REQUIRES(mutex);
    // Results are not wanted any more.
    void discard_results_locked() RAPIDSMPF_REQUIRES(mutex);
    // Throws what ended the operation.
    void check_usable() const RAPIDSMPF_REQUIRES(mutex) { closing.check(comm, name(), str()); }
    // The same, unless a partition is complete and there.
    void check_extractable(PartitionStore::Index index) const RAPIDSMPF_REQUIRES(mutex) {
        if (closing.is_discarded() || !store.is_complete(index)) {
            check_usable();
        }
    }
    // Whether everything inserted has been sent, or never will be.
    [[nodiscard]] bool is_sent() const RAPIDSMPF_REQUIRES(mutex) {
        return closing.stage() == ClosingState::Stage::cut_off || progress.all_sent;
    }

    // A listener that is to be told of a partition; without one: of any.
    struct Watcher {
        std::optional<PartitionStore::Index> index;
        std::function<void()> told;
    };
    void watch(Watcher watcher) RAPIDSMPF_REQUIRES(mutex);
    [[nodiscard]] bool is_over(Watcher const& watcher) RAPIDSMPF_REQUIRES(mutex);
    // Something has changed that users may wait for.
    void notify() RAPIDSMPF_REQUIRES(mutex);

    // The place of a partition of this rank. Throws std::out_of_range, std::invalid_argument.
    [[nodiscard]] LocalPartitions::Index require_local(PartitionId partition) const;
    void check_partition(PartitionId partition) const;

    // Constant.
    Communicator& comm;
    std::shared_ptr<BufferResource> const br;
    Operation::Plan const plan;
    Rank const rank;
    LocalPartitions const local;
    Statistics::Id const payload_send;
    Bundler const bundler;
    PieceUnpacker const unpacker;
    std::shared_ptr<Waker> const waker;

    // Set before the communicator closes: ask for nothing more from other ranks.
    std::atomic<bool> stops_granting{false};

    // How far the progress thread has come.
    struct Progress {
        bool all_sent{false};
        bool in_flight{false};  // something was asked for, and has not come
        bool closed{false};     // all last messages are exchanged
        std::vector<std::uint64_t>
            backlog;  // by rank: chunks taken from what was inserted and still to be sent
        friend bool operator==(Progress const&, Progress const&) = default;
    };

    mutable Mutex mutex;
    ConditionVariable changed;  // by notify()
    std::vector<Watcher> watchers RAPIDSMPF_GUARDED_BY(mutex);
    Insertions inserted RAPIDSMPF_GUARDED_BY(mutex);
    PartitionStore store RAPIDSMPF_GUARDED_BY(mutex);
    ClosingState closing RAPIDSMPF_GUARDED_BY(mutex);
    Progress progress RAPIDSMPF_GUARDED_BY(mutex);
    std::optional<Stall> stall RAPIDSMPF_GUARDED_BY(mutex);
    bool is_id_released RAPIDSMPF_GUARDED_BY(mutex){false};
};

}  // namespace rapidsmpf::exchange
