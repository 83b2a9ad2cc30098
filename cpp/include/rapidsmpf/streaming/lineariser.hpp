// One ordered stream from several producers.
//
//     Lineariser lineariser{context, out, 3};
//     // three actors, each sending to its own lineariser.producers()[i], numbers that grow
//     actors.push_back(lineariser.actor());
//
// Messages are sent on by their sequence numbers, which must grow within each producer; between producers they may come in
// any order. A message is sent on when its number follows the last one's, or when every other producer that has not
// finished has a later one ready. So no more is held than one message of each producer and what its channel takes, and a
// producer that is ahead waits. Numbers without gaps (0, 1, ... over all producers) never wait for a producer whose turn it is
// not.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/context.hpp>

namespace rapidsmpf::streaming {

class Lineariser {
  public:
    // `capacity` is that of each producer's channel. Throws std::invalid_argument when there are no producers.
    Lineariser(
        Context const& context, ChannelPtr out, std::size_t num_producers,
        ChannelCapacity capacity = ChannelCapacity{1});

    // A channel for each, to send to and to finish.
    [[nodiscard]] std::vector<ChannelPtr> const& producers() const noexcept { return producers_; }
    // What puts them in order; once. Throws std::invalid_argument, in the network, when the numbers of a producer do not
    // grow.
    [[nodiscard]] Actor actor();

  private:
    class Order;
    [[nodiscard]] static Task<void> pump(
        std::shared_ptr<Order> order, std::size_t producer, std::vector<ChannelPtr> const& producers,
        ChannelPtr out);
    [[nodiscard]] static Task<void> run(
        std::shared_ptr<Order> order, std::vector<ChannelPtr> producers, ChannelPtr out);

    ChannelPtr out_;
    std::vector<ChannelPtr> producers_;
    std::shared_ptr<Order> order_;
};

}  // namespace rapidsmpf::streaming
