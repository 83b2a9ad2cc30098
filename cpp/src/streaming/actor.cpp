#include <rapidsmpf/streaming/actor.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
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

#include "streaming/activity.hpp"

namespace rapidsmpf::streaming {

Actor::Actor(
    std::string name, Task<void> task, std::vector<ChannelPtr> inputs, std::vector<ChannelPtr> outputs,
    OnCancel on_cancel, std::shared_ptr<Activity> activity)
    : name_{std::move(name)},
      task_{std::move(task)},
      inputs_{std::move(inputs)},
      outputs_{std::move(outputs)},
      on_cancel_{std::move(on_cancel)},
      activity_{activity ? std::move(activity) : make_activity()} {
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
    ActorNetwork(
        Executor& executor, std::vector<Actor> actors, CancellationSource cancellation,
        std::shared_ptr<NetworkTrace> trace)
        : executor_{executor},
          actors_{std::move(actors)},
          cancellation_{std::move(cancellation)},
          trace_{std::move(trace)} {
        for (std::size_t i = 0; i < actors_.size(); ++i) {
            auto* const activity = actors_[i].activity_.get();
            auto const same = std::ranges::find(shown_, activity, &Shown::activity);
            if (same == shown_.end()) {
                shown_.push_back({activity, {i}});
            } else {
                same->parts.push_back(i);
            }
        }
        for (auto const& actor : actors_) {
            for (auto const& channel : actor.inputs_) {
                ++add_channel(channel).consumers;
            }
            for (auto const& channel : actor.outputs_) {
                ++add_channel(channel).producers;
            }
        }
        ended_.resize(actors_.size());
        try {
            check_ends();
        } catch (...) {
            // A thread outside of the network may be waiting already.
            for (auto const& user : users_) {
                user.first->cancel(std::current_exception());
            }
            throw;
        }
    }

    [[nodiscard]] std::vector<Task<void>> start() {
        for (auto const& shown : shown_) {
            if (trace_) {
                trace_->name_actor(shown.activity->id(), name_of(shown));
            }
            shown.activity->begin(trace_);
        }
        if (trace_) {
            begun_ = NetworkTrace::now();
            for (auto const& [channel, users] : users_) {
                trace_->number_channel(channel->id(), users.number);
                channel->set_trace(trace_);
            }
        }
        std::vector<Task<void>> tasks;
        tasks.reserve(actors_.size());
        for (auto& actor : actors_) {
            tasks.push_back(run(actor));
        }
        // Actors of a network that is cancelled already begin and find their channels cancelled.
        registration_ = cancellation_.token().on_cancel_last(
            [this](std::exception_ptr error) { end_with(std::move(error)); });
        return tasks;
    }

    void rethrow_first_error() {
        registration_.reset();  // no cancellation reaches the network from here on
        std::exception_ptr error;
        {
            MutexLock const lock{mutex_};
            error = first_error_;
        }
        if (error) {
            end_with(
                std::move(error));  // if the actors have ended before the cancellation came to this network
        }
        // An idle worker, or a thread that describes it, may hold the network yet: it must not keep what these own.
        std::vector<Actor::OnCancel> dropped;
        MutexLock const lock{mutex_};
        failed_ = nullptr;
        dropped = take_on_cancel();
        over_ = true;
        if (trace_) {
            for (auto const& user : users_) {
                user.first->set_trace(nullptr);
            }
        }
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

    void on_standstill(std::function<bool()> const& is_still) override {
        std::string text;
        std::uint64_t steps = 0;
        {
            MutexLock const lock{mutex_};
            if (first_error_ || !all_wait_for_each_other()) {
                return;
            }
            steps = outside_steps();
            text = as_text();
        }
        // Actors that run elsewhere are looked at one after the other: only if nothing has moved up to a second look did all of them
        // wait at one time.
        if (!is_still()) {
            return;
        }
        {
            MutexLock const lock{mutex_};
            if (first_error_ || !all_wait_for_each_other() || outside_steps() != steps) {
                return;
            }
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
            auto const& users = users_of(channel);
            if (auto const state = channel->state();
                state.receivers > 0 && state.receivers >= users.consumers) {
                add("for input from channel ", users.number);
            }
        }
        for (auto const& channel : actor.outputs_) {
            auto const& users = users_of(channel);
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
        for (auto const& shown : shown_) {
            if (have_ended(shown)) {
                continue;
            }
            any = true;
            auto const* const progress = shown.activity->progress();
            if (progress != nullptr ? !progress->waits() : waits_of(shown).empty()) {
                return false;
            }
        }
        return any;
    }

    // How often actors that run elsewhere have begun to wait.
    [[nodiscard]] std::uint64_t outside_steps() const {
        std::uint64_t steps = 0;
        for (auto const& shown : shown_) {
            if (auto const* const progress = shown.activity->progress()) {
                steps += progress->steps();
            }
        }
        return steps;
    }

    // What is shown as one actor: those with one account.
    struct Shown {
        Activity* activity;
        std::vector<std::size_t> parts;  // their places among the actors
    };

    [[nodiscard]] std::string const& name_of(Shown const& shown) const {
        return actors_[shown.parts.front()].name();
    }

    // What it did, over all channels.
    [[nodiscard]] Channel::Share share_of(Shown const& shown) const {
        Channel::Share sum{};
        for (auto const& [channel, users] : users_) {
            auto const share = channel->share_of(shown.activity->id());
            sum.sent += share.sent;
            sum.sent_rows += share.sent_rows;
            sum.sent_bytes += share.sent_bytes;
            sum.received += share.received;
            sum.received_rows += share.received_rows;
            sum.received_bytes += share.received_bytes;
            sum.for_room += share.for_room;
            sum.for_input += share.for_input;
        }
        return sum;
    }

    [[nodiscard]] bool have_ended(Shown const& shown) const RAPIDSMPF_REQUIRES(mutex_) {
        return std::ranges::all_of(
            shown.parts, [this](std::size_t i) RAPIDSMPF_REQUIRES(mutex_) { return ended_[i]; });
    }

    [[nodiscard]] std::string state_of(Shown const& shown) const RAPIDSMPF_REQUIRES(mutex_) {
        if (have_ended(shown)) {
            return "has ended";
        }
        auto const waits = waits_of(shown);
        return waits.empty() ? "runs" : "waits " + waits;
    }

    // What one that has not ended waits for; empty if nothing is known.
    [[nodiscard]] std::string waits_of(Shown const& shown) const RAPIDSMPF_REQUIRES(mutex_) {
        std::string waits;
        auto const add = [&waits](std::string const& what) {
            waits += (waits.empty() ? "" : " and ") + what;
        };
        for (auto const& [channel, users] : users_) {
            auto const share = channel->share_of(shown.activity->id());
            auto const number = std::to_string(users.number);
            if (share.waits_for_input) {
                add("for input from channel " + number);
            }
            if (share.waits_for_end) {
                add("for the end of channel " + number);
            } else if (share.waits_for_room) {
                add("for room in channel " + number);
            }
        }
        if (auto const others = shown.activity->waits(); !others.empty()) {
            add(others);
        }
        if (waits.empty()) {
            // What its channels tell of actors whose coroutines are not tasks.
            for (auto const part : shown.parts) {
                if (auto const wait = ended_[part] ? std::string{} : wait_of(actors_[part]);
                    !wait.empty() && shown.parts.size() == 1) {
                    add(wait);
                }
            }
        }
        return waits;
    }

    // Running is what is left of its time: it has a thread, or waits for one, or for what no counter covers.
    [[nodiscard]] std::string times_of(Shown const& shown, Channel::Share const& share) const {
        auto const times = shown.activity->times();
        auto const waited =
            share.for_input + share.for_room + times.for_memory + times.for_ranks + times.for_others;
        return "ran " + seconds(std::max<std::int64_t>(0, times.alive - waited)) + ", waited "
               + seconds(share.for_input) + " for input, " + seconds(share.for_room) + " for room, "
               + seconds(times.for_memory) + " for memory, " + seconds(times.for_ranks) + " for other ranks, "
               + seconds(times.for_others) + " for tickets, locks, events and time";
    }

    [[nodiscard]] static std::string seconds(std::int64_t nanos) {
        std::array<char, 32> text{};
        std::snprintf(text.data(), text.size(), "%.3f s", static_cast<double>(nanos) * 1e-9);
        return text.data();
    }

    [[nodiscard]] static std::string amount(std::uint64_t messages, std::uint64_t rows, std::uint64_t bytes) {
        return std::to_string(messages) + " messages of " + std::to_string(rows) + " rows and "
               + std::to_string(bytes) + " bytes";
    }

    // The actors at an end of a channel, each once.
    [[nodiscard]] std::string shown_names(
        ChannelPtr const& channel, std::vector<ChannelPtr> const& (Actor::*ends)() const noexcept) const {
        std::string names;
        for (auto const& each : shown_) {
            if (is_at(each, channel, ends)) {
                names += (names.empty() ? "'" : ", '") + name_of(each) + "'";
            }
        }
        return names;
    }
    [[nodiscard]] bool is_at(
        Shown const& shown, ChannelPtr const& channel,
        std::vector<ChannelPtr> const& (Actor::*ends)() const noexcept) const {
        bool const receives = ends == &Actor::inputs;
        // Of an actor that may be at either end it is known when it has used the channel.
        bool at_this = false;
        bool at_other = false;
        for (auto const part : shown.parts) {
            auto const& inputs = actors_[part].inputs_;
            auto const& outputs = actors_[part].outputs_;
            at_this = at_this
                      || std::ranges::find(receives ? inputs : outputs, channel)
                             != (receives ? inputs : outputs).end();
            at_other = at_other
                       || std::ranges::find(receives ? outputs : inputs, channel)
                              != (receives ? outputs : inputs).end();
        }
        if (!at_this || !at_other) {
            return at_this;
        }
        auto const share = channel->share_of(shown.activity->id());
        bool const has_sent = share.sent > 0 || share.waits_for_room || share.waits_for_end;
        bool const has_received = share.received > 0 || share.waits_for_input;
        return has_sent == has_received || has_received == receives;
    }

    [[nodiscard]] std::string as_text() const RAPIDSMPF_REQUIRES(mutex_) {
        std::string text = "network of " + std::to_string(shown_.size()) + " actors\n";
        for (std::size_t i = 0; i < shown_.size(); ++i) {
            auto const share = share_of(shown_[i]);
            text += "  actor " + std::to_string(i) + " '" + name_of(shown_[i]) + "' " + state_of(shown_[i])
                    + ": took " + amount(share.received, share.received_rows, share.received_bytes)
                    + ", gave " + amount(share.sent, share.sent_rows, share.sent_bytes) + "; "
                    + times_of(shown_[i], share) + "\n";
        }
        for (auto const& [channel, users] : users_) {
            auto const state = channel->state();
            text += "  channel " + std::to_string(users.number) + " from "
                    + (state.has_outside_producer ? "outside" : shown_names(channel, &Actor::outputs))
                    + " to " + (state.has_outside_consumer ? "outside" : shown_names(channel, &Actor::inputs))
                    + ": " + std::to_string(state.messages) + " messages of " + std::to_string(state.bytes)
                    + " bytes wait, " + std::to_string(state.sent) + " of " + std::to_string(state.sent_rows)
                    + " rows and " + std::to_string(state.sent_bytes) + " bytes were sent"
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
        for (std::size_t i = 0; i < shown_.size(); ++i) {
            text += "  " + prefix + "a" + std::to_string(i) + " [label=\"" + quoted(name_of(shown_[i]))
                    + "\\n" + state_of(shown_[i]) + "\\n" + times_of(shown_[i], share_of(shown_[i]))
                    + "\"];\n";
        }
        for (auto const& [channel, users] : users_) {
            auto const state = channel->state();
            auto const name = prefix + "c" + std::to_string(users.number);
            text += "  " + name + " [shape=box, label=\"channel " + std::to_string(users.number) + "\\n"
                    + std::to_string(state.messages) + " wait, " + std::to_string(state.sent) + " sent, "
                    + std::to_string(state.sent_rows) + " rows, " + std::to_string(state.sent_bytes)
                    + " bytes\"];\n";
            for (std::size_t i = 0; i < shown_.size(); ++i) {
                auto const actor = prefix + "a" + std::to_string(i);
                if (is_at(shown_[i], channel, &Actor::outputs)) {
                    text += "  " + actor + " -> " + name + ";\n";
                }
                if (is_at(shown_[i], channel, &Actor::inputs)) {
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

    Users& add_channel(ChannelPtr const& channel) {
        auto const [found, is_new] = numbers_.try_emplace(channel, users_.size());
        if (is_new) {
            users_.emplace_back(channel, Users{}).second.number = found->second;
        }
        return users_[found->second].second;
    }
    [[nodiscard]] Users& users_of(ChannelPtr const& channel) { return users_[numbers_.at(channel)].second; }
    [[nodiscard]] Users const& users_of(ChannelPtr const& channel) const {
        return users_[numbers_.at(channel)].second;
    }

    Task<void> run(Actor& actor) {
        std::exception_ptr error;
        {
            Task<void> task = std::move(actor.task_);
            task.set_actor_part(detail::ActorPart{actor.activity_.get(), &actor});
            try {
                co_await executor_.schedule();
                co_await task;
            } catch (...) {
                error = std::current_exception();
            }
            // The frame, and what it owns, is gone before anyone hears of the end.
        }
        end(static_cast<std::size_t>(&actor - actors_.data()));
        if (error) {
            fail(&actor, std::move(error));
        } else {
            leave(actor);
        }
    }

    void end(std::size_t place) {
        MutexLock const lock{mutex_};
        ended_[place] = true;
        auto* const activity = actors_[place].activity_.get();
        auto const shown = std::ranges::find(shown_, activity, &Shown::activity);
        if (have_ended(*shown)) {
            activity->end();
            if (trace_) {
                NetworkTrace::Event event;
                event.actor = activity->id();
                event.begin = begun_;
                event.end = NetworkTrace::now();
                trace_->add(event);
            }
        }
    }

    void leave(Actor const& actor) {
        std::vector<ChannelPtr> finished;
        std::vector<ChannelPtr> shut;
        {
            MutexLock lock{mutex_};
            for (auto const& channel : actor.outputs_) {
                if (--users_of(channel).producers == 0) {
                    finished.push_back(channel);
                }
            }
            for (auto const& channel : actor.inputs_) {
                if (--users_of(channel).consumers == 0) {
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

    // `failed` is null when no actor did.
    void fail(Actor const* failed, std::exception_ptr error) {
        {
            MutexLock const lock{mutex_};
            if (first_error_) {
                return;  // most likely the cancellation that it caused
            }
            // The actor may have failed because the source is being cancelled, which has not come to this network yet.
            auto reason = cancellation_.token().reason();
            first_error_ = reason ? std::move(reason) : error;
            failed_ = failed;
        }
        // Ends the network last, on this thread, or on the one that cancels the source already: collectives tell other ranks
        // why they end before the coroutines that own them end with their channels.
        cancellation_.cancel(std::move(error));
    }

    // The source of the network has been cancelled.
    void end_with(std::exception_ptr error) {
        std::vector<Actor::OnCancel> calls;
        {
            MutexLock const lock{mutex_};
            if (std::exchange(is_cancelled_, true)) {
                return;
            }
            if (!first_error_) {
                first_error_ = error;
            }
            error = first_error_;
            calls = take_on_cancel();
        }
        for (auto const& user : users_) {
            user.first->cancel(error);
        }
        for (auto const& shown : shown_) {
            shown.activity->cancel_waits(error);
        }
        for (auto const& call : calls) {
            call(error);
        }
    }

    // What the actors but the failed one are to do when the network fails: once.
    [[nodiscard]] std::vector<Actor::OnCancel> take_on_cancel() RAPIDSMPF_REQUIRES(mutex_) {
        std::vector<Actor::OnCancel> calls;
        for (auto& actor : actors_) {
            if (&actor != failed_ && actor.on_cancel_) {
                calls.push_back(std::exchange(actor.on_cancel_, nullptr));
            }
        }
        return calls;
    }

    Executor& executor_;
    std::vector<Actor> actors_;
    CancellationSource cancellation_;
    std::shared_ptr<NetworkTrace> const trace_;  // may be null
    std::int64_t begun_{0};                      // if there is one
    std::vector<Shown> shown_;
    CancellationToken::Registration registration_;
    mutable Mutex mutex_;                              // also guards the counts in users_
    std::vector<std::pair<ChannelPtr, Users>> users_;  // by number: in the order of the actors
    std::map<ChannelPtr, std::size_t> numbers_;
    std::vector<bool> ended_ RAPIDSMPF_GUARDED_BY(mutex_);  // of each actor
    std::exception_ptr first_error_ RAPIDSMPF_GUARDED_BY(mutex_);
    Actor const* failed_ RAPIDSMPF_GUARDED_BY(mutex_){
        nullptr};                                            // the actor whose error it is, if it is one's
    bool is_cancelled_ RAPIDSMPF_GUARDED_BY(mutex_){false};  // the channels, and on_cancel was called
    bool over_ RAPIDSMPF_GUARDED_BY(mutex_){false};
};

namespace {
Task<void> let_go(Executor::OutsideWait wait) {
    {
        Executor::OutsideWait const ended{std::move(wait)};
    }
    co_return;
}
}  // namespace

Task<void> actor_network(
    Executor& executor, std::vector<Actor> actors, CancellationSource cancellation,
    std::shared_ptr<NetworkTrace> trace) {
    auto const network = std::make_shared<ActorNetwork>(
        executor, std::move(actors), std::move(cancellation), std::move(trace));
    executor.add_network(network);
    auto tasks = network->start();
    // Actors that run elsewhere may wait already, for what those do that have not been started yet.
    tasks.push_back(let_go(executor.outside_wait()));
    co_await when_all(std::move(tasks));
    network->rethrow_first_error();
}

void run_actor_network(
    Executor& executor, std::vector<Actor> actors, CancellationSource cancellation,
    std::shared_ptr<NetworkTrace> trace) {
    RAPIDSMPF_EXPECTS(
        !executor.runs_this_thread(),
        "run_actor_network() would stall a thread of the executor: co_await actor_network() there",
        std::logic_error);
    sync_wait(actor_network(executor, std::move(actors), std::move(cancellation), std::move(trace)));
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
