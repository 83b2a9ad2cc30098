// The communicator between processes, over UCX: shared memory and CMA within a host, TCP or InfiniBand between
// hosts, cuda_ipc between GPUs.
//
// Context, worker and addresses are UCXX objects, so that a worker made in Python can be shared. Endpoints and
// messages go straight to the UCP worker that UCXX wraps: UCXX closes an endpoint by a flush that waits for
// its peer without bound, and a communicator has to close when its peer is dead. Endpoint error handling is
// off, because it forbids shared memory (ten times the bandwidth): a Liveness channel reports lost ranks.
//
// The option "ucxx_progress_mode" says how the progress thread waits: "thread-blocking" (default) parks it on the
// worker's event descriptor when nothing moves, "thread-polling" keeps it looking, for the shortest latency, at the
// price of a core. Progress without a thread ("blocking", "polling") is refused: collectives need the thread.
//
// A message's 64-bit UCX tag holds our Tag above the rank of its sender; the top bit marks the communicator's
// own messages (joining, barrier, abort).
//
// All ranks of a job share a Token. UCX takes connections from every process that reaches its port and speaks its protocol, so every
// tag is combined with the token: a message of a stranger matches no receive of a rank, and is not read. The first
// message of a process that joins begins with the token. docs/security.md says what is left.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/config.hpp>

namespace ucxx {
class Worker;
}

namespace rapidsmpf {

class Liveness;  // communicator/detail/liveness.hpp
class Token;     // core/detail/token.hpp

// Whom a worker has to reach.
enum class UcxxReach : std::uint8_t { anywhere, one_host };

// A worker for a new communicator: for tag messages, with an event descriptor to wait on. When all ranks are on one host
// it has no TCP, and so no port; where the user has set UCX_TLS, it listens on the loopback interface only, unless
// UCX_NET_DEVICES is set, too.
// Throws std::runtime_error when UCX cannot start.
[[nodiscard]] std::shared_ptr<::ucxx::Worker> make_ucxx_worker(UcxxReach reach = UcxxReach::anywhere);
// The bytes by which other processes reach a worker.
[[nodiscard]] std::vector<std::uint8_t> ucxx_worker_address(::ucxx::Worker& worker);

// How the ranks of UcxxCommunicator::join() come by a Liveness. The root sends its `invitation` to each rank that
// it lets in; every rank, the root too, then has `accept` make its Liveness of it. Without an invitation lost peers go
// unnoticed, and so they do on a rank where accept() returns null.
struct JoinLiveness {
    JoinLiveness() {}
    std::vector<std::uint8_t> invitation;  // on the root only
    std::function<std::unique_ptr<Liveness>(Rank rank, std::vector<std::uint8_t> const& invitation)> accept;
};

// Whether bytes are as worker_address() gives them, and not UCX's bare address. Says nothing of their contents.
[[nodiscard]] bool is_sealed_ucxx_address(std::span<std::uint8_t const> bytes);

class UcxxCommunicator final : public Communicator {
  private:
    // Only connect() and join() make one.
    struct Key {
        explicit Key() = default;
    };

  public:
    using Address = std::vector<std::uint8_t>;
    // How the progress thread waits when nothing moves.
    enum class ProgressMode : std::uint8_t { blocking, polling };

    // All peers are known: addresses[r] is rank r's, and `worker` is the one whose address is addresses[rank].
    // `token` is the job's, the same on all ranks. `liveness` may be null: then lost peers go unnoticed.
    [[nodiscard]] static std::shared_ptr<UcxxCommunicator> connect(
        Rank rank, std::vector<Address> const& addresses, Token const& token,
        std::shared_ptr<::ucxx::Worker> worker, std::unique_ptr<Liveness> liveness, config::Options options,
        std::shared_ptr<ProgressThread> progress_thread);

    // Without a root address: the root (rank 0) of a new communicator, which returns at once and takes the
    // others in as they come. With one: asks that root for a rank, in order of arrival, and returns when it has
    // it; throws TimeoutError after the option "ucxx_join_timeout" (default 120 s), std::invalid_argument when
    // the root refuses, or the address is damaged or none. All ranks have to call barrier() before the first
    // message. `worker` may be null: a new one is made, which reaches whom the option "ucxx_reach" says.
    [[nodiscard]] static std::shared_ptr<UcxxCommunicator> join(
        Rank nranks, std::shared_ptr<::ucxx::Worker> worker, std::optional<Address> const& root_address,
        config::Options options, std::shared_ptr<ProgressThread> progress_thread,
        JoinLiveness const& liveness = JoinLiveness());

    // Throws std::invalid_argument for an unknown "ucxx_progress_mode".
    UcxxCommunicator(Key key, config::Options options, std::shared_ptr<ProgressThread> progress_thread);
    // Delivers what is still being sent (for at most a few seconds, not at all after a failure) and leaves.
    ~UcxxCommunicator() override;

    [[nodiscard]] Rank rank() const noexcept override;
    [[nodiscard]] Rank nranks() const noexcept override;
    [[nodiscard]] std::string str() const override;

    [[nodiscard]] std::unique_ptr<Request> send(
        std::vector<std::uint8_t> message, Rank destination, Tag tag) override;
    [[nodiscard]] std::unique_ptr<Request> send(
        std::shared_ptr<Buffer const> buffer, std::size_t offset, std::size_t size, Rank destination,
        Tag tag) override;
    [[nodiscard]] std::unique_ptr<Request> recv(
        std::shared_ptr<Buffer> buffer, std::size_t offset, std::size_t size, Rank source, Tag tag) override;
    [[nodiscard]] std::optional<Arrived> recv_any(Tag tag) override;
    bool progress() override;
    [[nodiscard]] ProgressMode progress_mode() const noexcept { return progress_mode_; }
    void abort(std::string const& reason) override;
    void report_protocol_violation(Rank culprit, std::string const& reason) override;

    // Returns when every rank has called it. Throws RankFailedError, or TimeoutError (which on the root names the
    // missing ranks), at once when `stop` is requested.
    void barrier(
        std::optional<std::chrono::milliseconds> timeout = std::nullopt, std::stop_token const& stop = {});

    // The bytes by which others join() here: UCX's, the token, and a seal that shows when they were damaged. Who has them
    // may join.
    [[nodiscard]] Address worker_address() const;
    [[nodiscard]] std::shared_ptr<::ucxx::Worker> worker() const;

  private:
    class Impl;
    void start(std::unique_ptr<Liveness> liveness);

    ProgressMode progress_mode_;
    std::unique_ptr<Impl> impl_;
};

}  // namespace rapidsmpf
