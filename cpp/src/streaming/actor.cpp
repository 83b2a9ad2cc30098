#include <rapidsmpf/streaming/actor.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/network.hpp>
#include <rapidsmpf/streaming/sync_wait.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

namespace rapidsmpf::streaming {

Actor::Actor(
    std::string name, Task<void> task, std::vector<ChannelPtr> inputs, std::vector<ChannelPtr> outputs,
    OnCancel on_cancel)
    : name_{std::move(name)},
      task_{std::move(task)},
      inputs_{std::move(inputs)},
      outputs_{std::move(outputs)},
      on_cancel_{std::move(on_cancel)} {
    RAPIDSMPF_EXPECTS(task_.valid(), "actor '" + name_ + "' has no task", std::invalid_argument);
    for (auto const* channels : {&inputs_, &outputs_}) {
        for (auto const& channel : *channels) {
            RAPIDSMPF_EXPECTS(
                channel != nullptr, "actor '" + name_ + "' was given a null channel", std::invalid_argument);
        }
    }
}

// The state of a running network; lives in the frame of actor_network().
class ActorNetwork final : public RunningNetwork {
  public:
    ActorNetwork(Executor& executor, std::vector<Actor> actors, CancellationSource cancellation)
        : executor_{executor}, actors_{std::move(actors)}, cancellation_{std::move(cancellation)} {
        for (auto const& actor : actors_) {
            for (auto const& channel : actor.inputs_) {
                ++users_[channel].consumers;
            }
            for (auto const& channel : actor.outputs_) {
                ++users_[channel].producers;
            }
        }
        ended_.resize(actors_.size());
        for (auto& [channel, users] : users_) {
            users.number = numbers_++;
        }
        try {
            check_ends();
        } catch (...) {
            // Somebody outside may be waiting already.
            for (auto const& user : users_) {
                user.first->cancel(std::current_exception());
            }
            throw;
        }
    }

    [[nodiscard]] std::vector<Task<void>> start() {
        std::vector<Task<void>> tasks;
        tasks.reserve(actors_.size());
        for (auto& actor : actors_) {
            tasks.push_back(run(actor));
        }
        // Actors of a network that is cancelled already begin and find their channels cancelled.
        registration_ = cancellation_.token().on_cancel(
            [this](std::exception_ptr error) { fail(nullptr, std::move(error)); });
        return tasks;
    }

    void rethrow_first_error() {
        registration_.reset();  // nobody cancels from here on
        MutexLock const lock{mutex_};
        over_ = true;
        if (first_error_) {
            std::rethrow_exception(std::exchange(first_error_, nullptr));
        }
    }

    [[nodiscard]] std::string describe(NetworkFormat format, std::size_t number) const override {
        MutexLock const lock{mutex_};
        if (over_) {
            return "";  // an idle worker may hold it yet, to see whether it stands still
        }
        return format == NetworkFormat::text ? as_text() : as_dot(number);
    }

    void on_standstill() override {
        std::string text;
        {
            MutexLock const lock{mutex_};
            if (first_error_ || !all_wait_for_each_other()) {
                return;
            }
            text = as_text();
        }
        fail(
            nullptr, std::make_exception_ptr(
                         StandstillError{"the actors of a network all wait for each other: " + text}));
    }

  private:
    // Throws std::invalid_argument.
    void check_ends() const {
        for (auto const& [channel, users] : users_) {
            auto const state = channel->state();
            if (state.is_closed) {
                continue;
            }
            RAPIDSMPF_EXPECTS(
                users.producers > 0 || state.has_outside_producer || state.is_finished,
                "no actor sends to the channel that " + names_of(channel, &Actor::inputs)
                    + " receives from: add one, or say set_outside_producer()",
                std::invalid_argument);
            RAPIDSMPF_EXPECTS(
                users.consumers > 0 || state.has_outside_consumer,
                "no actor receives from the channel that " + names_of(channel, &Actor::outputs)
                    + " sends to: add one, or say set_outside_consumer()",
                std::invalid_argument);
        }
    }

    // The actors that have a channel among their inputs, or outputs.
    [[nodiscard]] std::string names_of(
        ChannelPtr const& channel, std::vector<ChannelPtr> const& (Actor::*ends)() const noexcept) const {
        std::string names;
        for (auto const& actor : actors_) {
            auto const& channels = (actor.*ends)();
            if (std::ranges::find(channels, channel) != channels.end()) {
                names += (names.empty() ? "'" : ", '") + actor.name() + "'";
            }
        }
        return names;
    }

    // What an actor waits for, as far as its channels tell: all those that share an end of a channel wait there.
    [[nodiscard]] std::string wait_of(Actor const& actor) const RAPIDSMPF_REQUIRES(mutex_) {
        std::string waits;
        auto const add = [&waits](std::string const& what, std::size_t number) {
            waits += (waits.empty() ? "" : " and ") + what + std::to_string(number);
        };
        for (auto const& channel : actor.inputs_) {
            auto const& users = users_.at(channel);
            if (auto const state = channel->state();
                state.receivers > 0 && state.receivers >= users.consumers) {
                add("for input from channel ", users.number);
            }
        }
        for (auto const& channel : actor.outputs_) {
            auto const& users = users_.at(channel);
            auto const state = channel->state();
            if (state.senders + state.drainers > 0 && state.senders + state.drainers >= users.producers) {
                add(state.senders > 0 ? "for room in channel " : "for the end of channel ", users.number);
            }
        }
        return waits;
    }

    [[nodiscard]] bool all_wait_for_each_other() const RAPIDSMPF_REQUIRES(mutex_) {
        for (auto const& [channel, users] : users_) {
            auto const state = channel->state();
            if (state.has_outside_producer || state.has_outside_consumer) {
                return false;
            }
        }
        bool any = false;
        for (std::size_t i = 0; i < actors_.size(); ++i) {
            if (!ended_[i]) {
                any = true;
                if (wait_of(actors_[i]).empty()) {
                    return false;
                }
            }
        }
        return any;
    }

    [[nodiscard]] std::string as_text() const RAPIDSMPF_REQUIRES(mutex_) {
        std::string text = "network of " + std::to_string(actors_.size()) + " actors\n";
        for (std::size_t i = 0; i < actors_.size(); ++i) {
            auto const wait = wait_of(actors_[i]);
            text += "  actor " + std::to_string(i) + " '" + actors_[i].name() + "' "
                    + (ended_[i]      ? "has ended"
                       : wait.empty() ? "runs"
                                      : "waits " + wait)
                    + "\n";
        }
        for (auto const& [channel, users] : users_) {
            auto const state = channel->state();
            text += "  channel " + std::to_string(users.number) + " from "
                    + (state.has_outside_producer ? "outside" : names_of(channel, &Actor::outputs)) + " to "
                    + (state.has_outside_consumer ? "outside" : names_of(channel, &Actor::inputs)) + ": "
                    + std::to_string(state.messages) + " messages of " + std::to_string(state.bytes)
                    + " bytes wait, " + std::to_string(state.sent) + " of " + std::to_string(state.sent_bytes)
                    + " bytes were sent"
                    + (state.is_closed     ? ", closed"
                       : state.is_finished ? ", finished"
                                           : "")
                    + "\n";
        }
        return text;
    }

    [[nodiscard]] std::string as_dot(std::size_t number) const RAPIDSMPF_REQUIRES(mutex_) {
        auto const prefix = "n" + std::to_string(number) + "_";
        std::string text = "digraph network_" + std::to_string(number) + " {\n";
        for (std::size_t i = 0; i < actors_.size(); ++i) {
            auto const wait = wait_of(actors_[i]);
            text += "  " + prefix + "a" + std::to_string(i) + " [label=\"" + quoted(actors_[i].name())
                    + (ended_[i]      ? "\\nhas ended"
                       : wait.empty() ? ""
                                      : "\\nwaits " + wait)
                    + "\"];\n";
        }
        for (auto const& [channel, users] : users_) {
            auto const state = channel->state();
            auto const name = prefix + "c" + std::to_string(users.number);
            text += "  " + name + " [shape=box, label=\"channel " + std::to_string(users.number) + "\\n"
                    + std::to_string(state.messages) + " wait, " + std::to_string(state.sent) + " sent, "
                    + std::to_string(state.sent_bytes) + " bytes\"];\n";
            for (std::size_t i = 0; i < actors_.size(); ++i) {
                auto const actor = prefix + "a" + std::to_string(i);
                if (std::ranges::find(actors_[i].outputs_, channel) != actors_[i].outputs_.end()) {
                    text += "  " + actor + " -> " + name + ";\n";
                }
                if (std::ranges::find(actors_[i].inputs_, channel) != actors_[i].inputs_.end()) {
                    text += "  " + name + " -> " + actor + ";\n";
                }
            }
        }
        return text + "}\n";
    }

    [[nodiscard]] static std::string quoted(std::string const& name) {
        std::string text;
        for (char const character : name) {
            if (character == '"' || character == '\\') {
                text += '\\';
            }
            text += character;
        }
        return text;
    }

    // Actors that have not ended yet.
    struct Users {
        std::size_t producers{0};
        std::size_t consumers{0};
        std::size_t number{0};  // names the channel
    };

    Task<void> run(Actor& actor) {
        std::exception_ptr error;
        {
            Task<void> task = std::move(actor.task_);
            try {
                co_await executor_.schedule();
                co_await task;
            } catch (...) {
                error = std::current_exception();
            }
            // The frame, and what it owns, is gone before anyone hears of the end.
        }
        {
            MutexLock const lock{mutex_};
            ended_[static_cast<std::size_t>(&actor - actors_.data())] = true;
        }
        if (error) {
            fail(&actor, std::move(error));
        } else {
            leave(actor);
        }
    }

    void leave(Actor const& actor) {
        std::vector<ChannelPtr> finished;
        std::vector<ChannelPtr> shut;
        {
            MutexLock lock{mutex_};
            for (auto const& channel : actor.outputs_) {
                if (--users_.at(channel).producers == 0) {
                    finished.push_back(channel);
                }
            }
            for (auto const& channel : actor.inputs_) {
                if (--users_.at(channel).consumers == 0) {
                    shut.push_back(channel);
                }
            }
        }
        for (auto const& channel : finished) {
            channel->finish();
        }
        for (auto const& channel : shut) {
            channel->shutdown();
        }
    }

    // `failed` is null when the network was cancelled from outside.
    void fail(Actor const* failed, std::exception_ptr error) {
        {
            MutexLock lock{mutex_};
            if (first_error_) {
                return;  // most likely the cancellation that it caused
            }
            first_error_ = error;
        }
        for (auto const& user : users_) {
            user.first->cancel(error);
        }
        for (auto const& actor : actors_) {
            if (&actor != failed && actor.on_cancel_) {
                actor.on_cancel_(error);
            }
        }
        cancellation_.cancel(std::move(error));
    }

    Executor& executor_;
    std::vector<Actor> actors_;
    CancellationSource cancellation_;
    CancellationToken::Registration registration_;
    mutable Mutex mutex_;  // also guards the counts in users_
    std::size_t numbers_{0};
    std::map<ChannelPtr, Users> users_;
    std::vector<bool> ended_ RAPIDSMPF_GUARDED_BY(mutex_);  // of each actor
    std::exception_ptr first_error_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool over_ RAPIDSMPF_GUARDED_BY(mutex_){false};
};

Task<void> actor_network(Executor& executor, std::vector<Actor> actors, CancellationSource cancellation) {
    auto const network = std::make_shared<ActorNetwork>(executor, std::move(actors), std::move(cancellation));
    executor.add_network(network);
    auto tasks = network->start();
    co_await when_all(std::move(tasks));
    network->rethrow_first_error();
}

void run_actor_network(Executor& executor, std::vector<Actor> actors, CancellationSource cancellation) {
    RAPIDSMPF_EXPECTS(
        !executor.runs_this_thread(),
        "run_actor_network() would stall a thread of the executor: co_await actor_network() there",
        std::logic_error);
    sync_wait(actor_network(executor, std::move(actors), std::move(cancellation)));
}

std::string describe_networks(Executor const& executor, NetworkFormat format) {
    std::string text;
    std::size_t number = 0;
    for (auto const& network : executor.networks()) {
        text += network->describe(format, number++);
    }
    return text;
}

}  // namespace rapidsmpf::streaming
