// Whether the ranks are there: a process that is stopped, or a machine that is gone, closes no connection.
//
// Each member is asked now and then, and a thread of its own answers, whatever else the rank does. What counts is how
// often it did not, and not the clock: when this process, too, was stopped for a while, no rank has missed an answer.
#include <utility>
#include <vector>

#include <rapidsmpf/bootstrap/detail/server.hpp>
#include <rapidsmpf/core/detail/option_table.hpp>

namespace rapidsmpf::bootstrap {

std::optional<std::chrono::milliseconds> silence_limit(config::Options const& options) {
    auto const seconds = config::get_optional_seconds(options, "liveness_timeout");
    if (!seconds) {
        return std::nullopt;
    }
    return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>{*seconds});
}

void CoordinatorServer::expect_answers(Connection& connection) const {
    if (settings_.silence_limit) {
        connection.deadline = Clock::now() + *settings_.silence_limit / pings_in_silence;
    }
}

void CoordinatorServer::ask_members(Clock::time_point now) {
    if (failure_ || !settings_.silence_limit) {
        return;
    }
    std::vector<ConnectionId> due;
    for (auto const& [id, connection] : connections_) {
        if (connection.stage == Stage::member && connection.deadline <= now) {
            due.push_back(id);
        }
    }
    for (auto const id : due) {
        auto const found = connections_.find(id);
        if (found == connections_.end()) {
            continue;
        }
        auto& connection = found->second;
        if (connection.unanswered >= pings_in_silence) {
            fail(
                Failure{
                    connection.rank, connection.host, connection.pid,
                    "it has not answered for " + std::to_string(settings_.silence_limit->count() / 1000)
                        + " s (the option liveness_timeout): its process is stopped or cannot run, or its "
                          "machine or "
                          "the network is gone"},
                Tell::everyone);
            return;
        }
        ++connection.unanswered;
        expect_answers(connection);
        send(id, Ping::encode());
    }
}

}  // namespace rapidsmpf::bootstrap
