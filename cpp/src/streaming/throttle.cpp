#include <rapidsmpf/streaming/throttle.hpp>

#include <stdexcept>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::streaming {

namespace {
std::shared_ptr<Executor> executor_of(ChannelPtr const& channel) {
    RAPIDSMPF_EXPECTS(channel != nullptr, "a throttle needs a channel", std::invalid_argument);
    return channel->executor();
}
}  // namespace

Throttle::Throttle(ChannelPtr channel, std::size_t tickets)
    : channel_{std::move(channel)}, semaphore_{executor_of(channel_), tickets} {}

Task<Throttle::Ticket> Throttle::acquire() {
    // The holder of a ticket of a closed channel ends and gives it to the next: so all come through.
    auto permit = co_await semaphore_.acquire_for(detail::WaitKind::ticket);
    co_return Ticket{channel_, std::move(permit)};
}

Task<bool> Throttle::Ticket::send(Message message) {
    RAPIDSMPF_EXPECTS(permit_.valid(), "a ticket is for one message", std::logic_error);
    auto const permit = std::move(permit_);
    co_return co_await channel_->send(std::move(message));
}

}  // namespace rapidsmpf::streaming
