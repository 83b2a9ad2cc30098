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
//   - When an actor fails, tokens of the network's CancellationSource are cancelled with its error, then every channel of the
//     network. Then the on_cancel functions of the other actors are called: they end waits that are neither on a token nor on a
//     channel. Cancelling the source ends the network like a failure.
//   - What an actor does is on its account (describe_networks(), network.hpp): channels count its messages and waits.
#pragma once

#include <exception>
#include <functional>
#include <memory>
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

class Activity;
class NetworkTrace;

// An account for what an actor does, for actors that share one.
[[nodiscard]] std::shared_ptr<Activity> make_activity();

class Actor {
  public:
    // Called at most once, with the error of another actor, on any thread, possibly when
    // this actor has just ended. Must not throw and must not block.
    using OnCancel = std::function<void(std::exception_ptr)>;

    // Throws std::invalid_argument when there is no task or a channel is null. describe_networks() shows actors that share an
    // `activity` as one actor, under the name of the first of them. With a null `activity` the actor gets an activity of its own.
    Actor(
        std::string name, Task<void> task, std::vector<ChannelPtr> inputs, std::vector<ChannelPtr> outputs,
        OnCancel on_cancel = {}, std::shared_ptr<Activity> activity = nullptr);

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
    std::shared_ptr<Activity> activity_;
};

// Runs the actors on the executor's threads and blocks until all have ended. Throws the first error (in time) of
// any of them, after every other actor has ended and every channel of the network is empty. A channel may
// also be used from outside the network, by the blocking calls. Throws std::logic_error on a thread of the executor,
// std::invalid_argument for a channel without producer or consumer. What happens is told to `trace`, if there is one.
void run_actor_network(
    Executor& executor, std::vector<Actor> actors, CancellationSource cancellation = CancellationSource(),
    std::shared_ptr<NetworkTrace> trace = nullptr);

// The same for a coroutine to await.
[[nodiscard]] Task<void> actor_network(
    Executor& executor, std::vector<Actor> actors, CancellationSource cancellation = CancellationSource(),
    std::shared_ptr<NetworkTrace> trace = nullptr);

}  // namespace rapidsmpf::streaming
