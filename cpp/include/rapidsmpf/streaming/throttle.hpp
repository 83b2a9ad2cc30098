// Tickets for a channel: how many producers may have something ready for it at a time.
//
//     Throttle throttle{out, 4};
//     auto ticket = co_await throttle.acquire();   // before the payload is made
//     Message message{i, make_payload()};
//     if (!co_await ticket.send(std::move(message))) { co_return; }
//
// Back-pressure begins when a producer sends, that is, when its payload exists. Many producers that depend on no input all
// make one; with tickets no more payloads are alive than there are tickets, besides those that the channel holds and
// those that its consumers have taken. A throttle is shared by the producers of a channel and lives as long as they.
#pragma once

#include <cstddef>
#include <utility>

#include <rapidsmpf/streaming/channel.hpp>
#include <rapidsmpf/streaming/synchronisation.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

class Throttle {
  public:
    // Leave to make one message. Goes back once the channel has taken it, or with the ticket. Move-only.
    class Ticket {
      public:
        Ticket(ChannelPtr channel, AsyncSemaphore::Permit permit) noexcept
            : channel_{std::move(channel)}, permit_{std::move(permit)} {}
        // Whether the channel still takes messages.
        [[nodiscard]] bool is_wanted() const { return !channel_->is_closed(); }
        // As Channel::send(). Throws std::logic_error when the ticket was used. The ticket must stay until the end.
        [[nodiscard]] Task<bool> send(Message message);

      private:
        ChannelPtr channel_;
        AsyncSemaphore::Permit permit_;
    };

    // Throws std::invalid_argument when there are no tickets, or no channel.
    Throttle(ChannelPtr channel, std::size_t tickets);

    // co_await acquire(): a ticket, first come first served. When the channel is closed tickets come at once.
    [[nodiscard]] Task<Ticket> acquire();
    [[nodiscard]] ChannelPtr const& channel() const noexcept { return channel_; }
    // Producers that wait for a ticket.
    [[nodiscard]] std::size_t waiting() const { return semaphore_.waiting(); }

  private:
    ChannelPtr channel_;
    AsyncSemaphore semaphore_;
};

}  // namespace rapidsmpf::streaming
