// What ranks ask of the coordinator: values by key, gathers, and leaving.
#include <utility>

#include <rapidsmpf/bootstrap/detail/server.hpp>

namespace rapidsmpf::bootstrap {

void CoordinatorServer::on_put(Connection const& connection, Put put) {
    auto& session = sessions_[connection.session];
    auto const [first, last] = session.gets.equal_range(put.key);
    std::vector<Waiting> waiting;
    for (auto entry = first; entry != last; ++entry) {
        waiting.push_back(entry->second);
    }
    session.gets.erase(first, last);
    for (auto const& waiter : waiting) {
        send(waiter.connection, Reply{waiter.request, std::vector<Bytes>{put.value}}.encode());
    }
    session.values.insert_or_assign(std::move(put.key), std::move(put.value));
}

void CoordinatorServer::on_get(ConnectionId id, Connection& connection, Get get) {
    auto& session = sessions_[connection.session];
    if (auto const found = session.values.find(get.key); found != session.values.end()) {
        send(id, Reply{get.request, std::vector<Bytes>{found->second}}.encode());
        return;
    }
    session.gets.emplace(
        std::move(get.key),
        Waiting{id, get.request, Clock::now() + std::chrono::milliseconds{get.timeout_ms}});
}

void CoordinatorServer::on_gather(ConnectionId id, Connection& connection, Gather gather) {
    auto& session = sessions_[connection.session];
    auto const number = connection.gathers++;
    auto& pending = session.gathers[number];
    pending.values.insert_or_assign(connection.rank, std::move(gather.value));
    pending.waiting.emplace_back(
        id, gather.request, Clock::now() + std::chrono::milliseconds{gather.timeout_ms});
    finish_gather(session, number);
    // Copied: settling may drop connections, and with the last of them nothing else changes here.
    auto const left = session.left;
    for (auto const rank : left) {
        settle_gathers_without(session, rank);
    }
}

void CoordinatorServer::finish_gather(Session& session, std::uint64_t number) {
    auto const found = session.gathers.find(number);
    if (found == session.gathers.end() || found->second.values.size() < static_cast<std::size_t>(nranks_)) {
        return;
    }
    auto const pending = std::move(found->second);
    session.gathers.erase(found);
    std::vector<Bytes> values;
    for (auto const& [rank, value] : pending.values) {
        values.push_back(value);
    }
    for (auto const& waiter : pending.waiting) {
        Bytes reply;
        try {
            reply = Reply{waiter.request, values}.encode();
        } catch (FormatError const&) {
            reply =
                Reply{
                    waiter.request, Reply::Status::impossible,
                    "the values of all ranks together are too large"}
                    .encode();
        }
        send(waiter.connection, reply);
    }
}

void CoordinatorServer::settle_gathers_without(Session& session, std::int32_t rank) {
    for (auto& [number, pending] : session.gathers) {
        if (pending.values.contains(rank)) {
            continue;
        }
        auto const waiting = std::exchange(pending.waiting, {});
        for (auto const& waiter : waiting) {
            send(
                waiter.connection,
                Reply{
                    waiter.request, Reply::Status::impossible,
                    "rank " + std::to_string(rank) + " has closed its communicator and will not take part"}
                    .encode());
        }
    }
}

void CoordinatorServer::on_bye(ConnectionId id, Connection& connection) {
    if (connection.stage == Stage::member) {
        auto const rank = connection.rank;
        auto const index = connection.session;
        auto& session = sessions_[index];
        session.left.insert(rank);
        connection.stage = Stage::closing;
        std::vector<ConnectionId> others;
        for (auto const& [other, peer] : connections_) {
            if (peer.stage == Stage::member && peer.session == index) {
                others.push_back(other);
            }
        }
        for (auto const other : others) {
            send(other, Left{rank}.encode());
        }
        settle_gathers_without(session, rank);
        if (session.left.size() == static_cast<std::size_t>(nranks_)) {
            sessions_.erase(index);
        }
    }
    close_gently(id);
}

void CoordinatorServer::expire_requests(Clock::time_point now) {
    for (auto& [index, session] : sessions_) {
        std::vector<std::pair<ConnectionId, Bytes>> replies;
        std::erase_if(session.gets, [&](auto const& entry) {
            if (entry.second.deadline > now) {
                return false;
            }
            replies.emplace_back(
                entry.second.connection,
                Reply{
                    entry.second.request, Reply::Status::timeout,
                    "no rank has put the key '" + entry.first + "'"}
                    .encode());
            return true;
        });
        for (auto& [number, pending] : session.gathers) {
            auto const missing = missing_from(pending);
            std::erase_if(pending.waiting, [&](Waiting const& waiter) {
                if (waiter.deadline > now) {
                    return false;
                }
                replies.emplace_back(
                    waiter.connection,
                    Reply{waiter.request, Reply::Status::timeout, list_ranks(missing) + " did not come"}
                        .encode());
                return true;
            });
        }
        for (auto const& [id, bytes] : replies) {
            send(id, bytes);
        }
    }
}

std::vector<std::int32_t> CoordinatorServer::missing_from(PendingGather const& pending) const {
    std::vector<std::int32_t> missing;
    for (std::int32_t rank = 0; rank < nranks_; ++rank) {
        if (!pending.values.contains(rank)) {
            missing.push_back(rank);
        }
    }
    return missing;
}

}  // namespace rapidsmpf::bootstrap
