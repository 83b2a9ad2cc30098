#include <rapidsmpf/streaming/actor.hpp>

#include <map>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>
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
class ActorNetwork {
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
        if (first_error_) {
            std::rethrow_exception(std::exchange(first_error_, nullptr));
        }
    }

  private:
    // Actors that have not ended yet.
    struct Users {
        std::size_t producers{0};
        std::size_t consumers{0};
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
    Mutex mutex_;  // also guards the counts in users_
    std::map<ChannelPtr, Users> users_;
    std::exception_ptr first_error_ RAPIDSMPF_GUARDED_BY(mutex_);
};

Task<void> actor_network(Executor& executor, std::vector<Actor> actors, CancellationSource cancellation) {
    ActorNetwork network{executor, std::move(actors), std::move(cancellation)};
    auto tasks = network.start();
    co_await when_all(std::move(tasks));
    network.rethrow_first_error();
}

void run_actor_network(Executor& executor, std::vector<Actor> actors, CancellationSource cancellation) {
    RAPIDSMPF_EXPECTS(
        !executor.runs_this_thread(),
        "run_actor_network() would stall a thread of the executor: co_await actor_network() there",
        std::logic_error);
    sync_wait(actor_network(executor, std::move(actors), std::move(cancellation)));
}

}  // namespace rapidsmpf::streaming
