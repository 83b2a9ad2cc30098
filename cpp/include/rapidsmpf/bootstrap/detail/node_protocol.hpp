// What the launchers of a job on several hosts say to each other, over the coordinator's port and in its frames.
//
// One launcher is the head: it owns the coordinator. Those that start ranks are its nodes, one per host or more. A node
// opens a connection with Hello (Role::node, its number, its number of ranks), is told by Begin which ranks it starts,
// and reports each end. Stop asks it to end its ranks, Finish ends the node itself. Everything that is read is checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>

namespace rapidsmpf::bootstrap {

// To a node, when all are there: start these ranks.
struct Begin {
    Begin(std::int32_t first_rank_, std::int32_t nranks_) : first_rank{first_rank_}, nranks{nranks_} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Begin decode(std::span<std::uint8_t const> payload);

    std::int32_t first_rank;
    std::int32_t nranks;  // of the job
};

// To a node: pass this signal on to the ranks.
struct PassSignal {
    explicit PassSignal(std::int32_t signal_) : signal{signal_} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static PassSignal decode(std::span<std::uint8_t const> payload);

    std::int32_t signal;
};

// To a node: the job has failed; the ranks have this long to end by themselves.
struct Stop {
    explicit Stop(std::chrono::milliseconds grace_) : grace{grace_} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Stop decode(std::span<std::uint8_t const> payload);

    std::chrono::milliseconds grace;
};

// To a node: all ranks of the job have ended; this is the job's exit code.
struct Finish {
    explicit Finish(std::int32_t exit_code_) : exit_code{exit_code_} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Finish decode(std::span<std::uint8_t const> payload);

    std::int32_t exit_code;
};

// Of a node: how one of its ranks ended.
struct RankEnded {
    RankEnded(
        std::int32_t rank_, std::int64_t pid_, std::string host_, std::int32_t exit_code_, std::string how_)
        : rank{rank_}, pid{pid_}, host{std::move(host_)}, exit_code{exit_code_}, how{std::move(how_)} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static RankEnded decode(std::span<std::uint8_t const> payload);

    std::int32_t rank;
    std::int64_t pid;
    std::string host;
    std::int32_t exit_code;  // 128 + the signal's number
    std::string how;         // "exited with code 3"
};

// Of a node: it cannot start its ranks.
struct NodeFailed {
    NodeFailed(std::int32_t exit_code_, std::string reason_)
        : exit_code{exit_code_}, reason{std::move(reason_)} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static NodeFailed decode(std::span<std::uint8_t const> payload);

    std::int32_t exit_code;
    std::string reason;
};

}  // namespace rapidsmpf::bootstrap
