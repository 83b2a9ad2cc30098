// Actors and the networks that they form.
//
// An Actor is a coroutine with a name, the channels that it receives from and those that it sends to. It is
// consumed by run_actor_network(), which owns the actors of a network until all of them have ended:
//
//   - When the last actor that sends to a channel has ended, the channel is finished; when the last actor that
//     receives from it has ended, the channel is shut down, so that its producers stop. Actors may do either
//     earlier themselves.
//   - A channel that actors only send to, or only receive from, is refused at the start, unless it says that something outside is at
//     its other end (Channel::set_outside_producer(), set_outside_consumer()). When all actors wait for each other the network
//     fails with a StandstillError that says who waits for what.
//   - When an actor fails, every channel of the network is cancelled with its error, and the on_cancel functions
//     of the others are called to end what channels cannot: waits for other ranks, for instance. Tokens of the
//     network's CancellationSource are cancelled, and cancelling the source ends the network like a failure.
#pragma once

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <rapidsmpf/streaming/cancellation.hpp>
#include <rapidsmpf/streaming/channel.hpp>
#include <rapidsmpf/streaming/executor.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

// The actors of a network all wait for each other.
class StandstillError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Actor {
  public:
    // Called at most once, with the error of another actor, on any thread, possibly when
    // this actor has just ended. Must not throw and must not block.
    using OnCancel = std::function<void(std::exception_ptr)>;

    // Throws std::invalid_argument when there is no task or a channel is null.
    Actor(
        std::string name, Task<void> task, std::vector<ChannelPtr> inputs, std::vector<ChannelPtr> outputs,
        OnCancel on_cancel = {});

    [[nodiscard]] std::string const& name() const noexcept { return name_; }
    [[nodiscard]] std::vector<ChannelPtr> const& inputs() const noexcept { return inputs_; }
    [[nodiscard]] std::vector<ChannelPtr> const& outputs() const noexcept { return outputs_; }

  private:
    friend class ActorNetwork;
    std::string name_;
    Task<void> task_;
    std::vector<ChannelPtr> inputs_;
    std::vector<ChannelPtr> outputs_;
    OnCancel on_cancel_;
};

// Runs the actors on the executor's threads and blocks until all have ended. Throws the first error (in time) of
// any of them, after every other actor has ended and every channel of the network is empty. A channel may
// also be used from outside the network, by the blocking calls. Throws std::logic_error on a thread of the executor,
// std::invalid_argument for a channel without producer or consumer.
void run_actor_network(
    Executor& executor, std::vector<Actor> actors, CancellationSource cancellation = CancellationSource());

// The same for a coroutine to await.
[[nodiscard]] Task<void> actor_network(
    Executor& executor, std::vector<Actor> actors, CancellationSource cancellation = CancellationSource());

}  // namespace rapidsmpf::streaming
