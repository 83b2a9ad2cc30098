// Looking at networks of actors while they run, and at what they did.
//
//     std::cerr << describe_networks(*context.executor());
//
// says of each actor whether it waits, for what, how many messages, rows and bytes it took and gave, how long it ran and how
// long it waited for input, room, memory, other ranks, and all else; and of each channel what is in it and went through it. On any
// thread, at any time: it stops no actor.
//
//     auto const trace = std::make_shared<NetworkTrace>();
//     run_actor_network(executor, std::move(actors), CancellationSource(), trace);
//     std::ofstream{"network.json"} << trace->json();
//
// writes what every actor did when, for viewers of trace events such as Perfetto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/executor.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

enum class NetworkFormat : std::uint8_t {
    text,
    dot,  // for Graphviz
};

// A network that runs. For this repository; users have describe_networks().
class RunningNetwork {
  public:
    RunningNetwork() = default;
    RunningNetwork(RunningNetwork const&) = delete;
    RunningNetwork& operator=(RunningNetwork const&) = delete;
    virtual ~RunningNetwork() = default;
    // `number` names it among others.
    [[nodiscard]] virtual std::string describe(NetworkFormat format, std::size_t number) const = 0;
    // No coroutine of the executor is ready, and nothing that it knows of will make one ready.
    // `is_still` says whether that has been so since, on any thread, without locks of the network.
    virtual void on_standstill(std::function<bool()> const& is_still) = 0;
};

// The networks that run on this executor now; the empty string if there are none.
[[nodiscard]] std::string describe_networks(
    Executor const& executor, NetworkFormat format = NetworkFormat::text);

// Records when the actors of one or several networks run and wait. The networks and the reader of the trace share ownership of
// it. All methods are thread-safe.
// An actor is a track; a message that it works on is a slice of it, and so is each wait.
class NetworkTrace {
  public:
    // Keeps so many events and counts those that come later: about two for a message and hop, 80 bytes each.
    explicit NetworkTrace(std::size_t most_events = std::size_t{1} << 20);

    // Trace events in Chrome's JSON format. Of networks that run, what has ended.
    [[nodiscard]] std::string json() const;
    [[nodiscard]] std::size_t num_events() const;
    // Those that there was no room for.
    [[nodiscard]] std::size_t num_dropped() const;

    // The rest is for this repository.
    enum class What : std::uint8_t { send, receive, drain, other_wait, run };
    struct Event {
        What what{What::run};
        detail::WaitKind wait{};    // for other_wait
        std::uint64_t actor{0};     // 0: no known actor
        void const* lane{nullptr};  // tells parts of an actor apart that run beside each other
        std::uint64_t channel{0};   // Channel::id(); 0: none
        std::uint64_t sequence{0};
        std::uint64_t rows{0};
        std::uint64_t bytes{0};
        bool has_message{false};  // for send and receive: that a message came over
        std::int64_t begin{0};    // by now()
        std::int64_t end{0};
    };
    // Nanoseconds.
    [[nodiscard]] static std::int64_t now() noexcept;
    // An event without memory to keep it counts as one without room.
    void add(Event const& event) noexcept;
    void name_actor(std::uint64_t actor, std::string name);
    // Shows a channel, by its id, under the number that it has in its network.
    void number_channel(std::uint64_t channel, std::uint64_t number);

  private:
    std::size_t most_events_;
    mutable Mutex mutex_;
    std::vector<Event> events_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::size_t dropped_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::map<std::uint64_t, std::string> names_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::map<std::uint64_t, std::uint64_t> numbers_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::streaming
