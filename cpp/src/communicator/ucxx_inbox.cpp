#include "communicator/ucxx_inbox.hpp"

#include <algorithm>
#include <utility>

#include <rapidsmpf/core/error.hpp>

#include "communicator/ucxx_control.hpp"

namespace rapidsmpf::detail {

std::optional<Communicator::Arrived> UcxInbox::take(std::uint64_t tag) {
    MutexLock const lock{mutex_};
    auto const waiting = coming_.find(tag);
    auto const message = transport_.probe(tag, tag_mask);
    if (message) {
        auto const source = sender_of(message->tag);
        auto bytes = std::make_shared<std::vector<std::uint8_t>>(message->size);
        auto operation = transport_.receive(source, *message, bytes->data(), bytes);
        if (waiting == coming_.end() && operation->is_complete() && operation->status() == UCS_OK) {
            return Communicator::Arrived{source, std::move(*bytes)};
        }
        coming_[tag].emplace_back(source, std::move(bytes), std::move(operation));
    } else if (waiting == coming_.end()) {
        return std::nullopt;
    }
    auto& queue = coming_[tag];
    std::vector<Rank> held_back;  // senders of something earlier that is not complete
    for (auto entry = queue.begin(); entry != queue.end(); ++entry) {
        if (std::find(held_back.begin(), held_back.end(), entry->source) != held_back.end()) {
            continue;
        }
        if (!entry->operation->is_complete()) {
            held_back.push_back(entry->source);
            continue;
        }
        auto const found = std::move(*entry);
        queue.erase(entry);
        if (queue.empty()) {
            coming_.erase(tag);
        }
        if (found.operation->status() != UCS_OK) {
            throw UcxReceiveError{found.source, found.operation->status()};
        }
        return Communicator::Arrived{found.source, std::move(*found.bytes)};
    }
    return std::nullopt;
}

}  // namespace rapidsmpf::detail
