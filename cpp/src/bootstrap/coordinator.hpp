// A rank's connection to the coordinator: values for the other ranks, waiting for them, and word of their end.
//
// One connection is one session (see server.hpp): the n-th of every rank belong together. One thread per
// connection blocks on the socket and delivers what arrives. It owns the socket; a fork of this process neither
// uses the connection nor says goodbye on it. All methods are thread-safe; they throw RankFailedError once a
// failure is known.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>
#include <rapidsmpf/communicator/detail/liveness.hpp>
#include <rapidsmpf/core/detail/token.hpp>

namespace rapidsmpf::bootstrap {

// Where the coordinator is and who this process is.
struct Membership {
    Membership(SocketAddress address_, Token token_, Rank rank_, Rank nranks_)
        : address{std::move(address_)}, token{token_}, rank{rank_}, nranks{nranks_} {}
    // What rrun has put in the environment. Throws std::runtime_error when it has not.
    [[nodiscard]] static Membership from_environment();

    SocketAddress address;
    Token token;
    Rank rank;
    Rank nranks;
};

// The value of a variable that holds a rank or a number of ranks. Throws std::runtime_error.
[[nodiscard]] Rank rank_variable(char const* name);

class Coordinator final : public Liveness {
  public:
    // Connects and waits to be let in. Throws SystemError, TimeoutError, or std::runtime_error when refused.
    Coordinator(Membership const& membership, std::chrono::milliseconds timeout);
    // Says goodbye if nothing else was said.
    ~Coordinator() override;

    [[nodiscard]] Rank rank() const noexcept { return rank_; }
    [[nodiscard]] Rank nranks() const noexcept { return nranks_; }

    // Makes a value of at most 16 MiB known to all ranks of the session.
    void put(std::string const& key, Bytes value);
    // The value of a key; waits until some rank puts it. Throws TimeoutError.
    [[nodiscard]] Bytes get(std::string const& key, std::chrono::milliseconds timeout);
    // The values of all ranks, by rank; waits until all have called it. The n-th calls of the ranks belong
    // together. Throws TimeoutError naming the missing ranks, std::runtime_error when one has left.
    [[nodiscard]] std::vector<Bytes> gather(Bytes value, std::chrono::milliseconds timeout);
    // Returns when all ranks have called it.
    void barrier(std::chrono::milliseconds timeout);

    void start(Events events) override;
    void stop() override;
    void abort(std::string const& reason) override;
    void report_protocol_violation(Rank culprit, std::string const& reason) override;
    void graceful_close(std::chrono::milliseconds patience) override;

    // Reports, on a connection of its own, that this rank gives up, or that it has to because of another. Throws
    // SystemError or TimeoutError.
    static void report_abort(
        Membership const& membership, std::string const& reason, std::chrono::milliseconds timeout,
        std::optional<Rank> culprit = {});

  private:
    struct State;
    void give_up(Abort const& message);
    [[nodiscard]] std::vector<Bytes> ask(
        std::uint64_t request, Bytes const& message, std::string const& what,
        std::chrono::milliseconds timeout);

    Rank rank_;
    Rank nranks_;
    std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace rapidsmpf::bootstrap
