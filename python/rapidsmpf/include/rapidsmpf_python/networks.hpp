// Networks of actors for Python, and the actors that stand for those that run in Python.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/channels.hpp>
#include <rapidsmpf_python/errors.hpp>
#include <rapidsmpf_python/gil.hpp>
#include <rapidsmpf_python/interrupt.hpp>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/actors.hpp>
#include <rapidsmpf/streaming/channel.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/lineariser.hpp>
#include <rapidsmpf/streaming/message.hpp>
#include <rapidsmpf/streaming/network.hpp>
#include <rapidsmpf/streaming/synchronisation.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::python {

// The end of something that runs elsewhere, as a task. Its runner says how it ended; the first time counts.
class OutsideEnd {
  public:
    explicit OutsideEnd(std::shared_ptr<streaming::Executor> executor) : event_{std::move(executor)} {}
    void succeed() { settle(nullptr); }
    void fail(std::exception_ptr error) { settle(std::move(error)); }
    [[nodiscard]] static streaming::Task<void> task(std::shared_ptr<OutsideEnd> end) {
        co_await end->event_.wait();
        end->rethrow();
    }

  private:
    void settle(std::exception_ptr error) {
        {
            MutexLock const lock{mutex_};
            if (settled_) {
                return;
            }
            settled_ = true;
            error_ = std::move(error);
        }
        event_.set();
    }
    // The error is not kept: its traceback may lead to the owner of this.
    void rethrow() {
        std::exception_ptr error;
        {
            MutexLock const lock{mutex_};
            error = std::exchange(error_, nullptr);
        }
        if (error) {
            std::rethrow_exception(std::move(error));
        }
    }
    streaming::AsyncEvent event_;
    Mutex mutex_;
    bool settled_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
};

using EndPointer = std::shared_ptr<OutsideEnd>;

[[nodiscard]] inline EndPointer make_end(streaming::Context const& context) {
    return std::make_shared<OutsideEnd>(context.executor());
}

// Takes the exception over; the caller holds the GIL.
inline void fail_end(OutsideEnd& end, PyObject* exception) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
    end.fail(std::make_exception_ptr(PythonError::fetch()));
}

using ActorPointer = std::unique_ptr<streaming::Actor>;

// An actor that runs elsewhere until `end` is there, on the account `activity`. When the network fails, `listener` (may be null) is put into the mailbox. The
// caller holds the GIL.
[[nodiscard]] inline ActorPointer outside_actor(
    std::string name, EndPointer end, std::vector<streaming::ChannelPtr> inputs,
    std::vector<streaming::ChannelPtr> outputs, MailboxPointer mailbox, PyObject* listener,
    std::shared_ptr<streaming::Activity> activity) {
    streaming::Actor::OnCancel on_cancel;
    if (mailbox && listener != nullptr) {
        // The reference goes into the mailbox with the first call, there is no other.
        Py_INCREF(listener);
        auto const kept = std::make_shared<std::atomic<PyObject*>>(listener);
        std::shared_ptr<void> const undelivered{nullptr, [kept](void*) {
                                                    if (auto* const object = kept->exchange(nullptr)) {
                                                        if (WithGil const gil; gil) {
                                                            Py_DECREF(object);
                                                        }
                                                    }
                                                }};
        on_cancel = [mailbox, kept, undelivered](std::exception_ptr const& /*error*/) {
            if (auto* const object = kept->exchange(nullptr)) {
                mailbox->put(object);
            }
        };
    }
    return std::make_unique<streaming::Actor>(
        std::move(name), OutsideEnd::task(std::move(end)), std::move(inputs), std::move(outputs),
        std::move(on_cancel), std::move(activity));
}

using TracePointer = std::shared_ptr<streaming::NetworkTrace>;

[[nodiscard]] inline TracePointer make_trace(std::size_t most_events) {
    return std::make_shared<streaming::NetworkTrace>(most_events);
}

[[nodiscard]] inline std::string describe_networks(streaming::Context const& context, bool as_dot) {
    return streaming::describe_networks(
        *context.executor(), as_dot ? streaming::NetworkFormat::dot : streaming::NetworkFormat::text);
}

inline void look_for_standstill(streaming::Context const& context) {
    context.executor()->look_for_standstill();
}

// Runs a network until it has ended; without the GIL. `trace` may be null.
inline void run_network(
    streaming::Context const& context, std::vector<ActorPointer> actors,
    streaming::CancellationSource const& source, TracePointer trace) {
    std::vector<streaming::Actor> owned;
    owned.reserve(actors.size());
    for (auto& actor : actors) {
        owned.push_back(std::move(*actor));
    }
    actors.clear();
    try {
        streaming::run_actor_network(*context.executor(), std::move(owned), source, std::move(trace));
    } catch (PythonError& error) {
        // Its channels and cancellation sources know the error as long as they live.
        auto raised = error.apart();
        if (WithGil const gil; gil) {
            error.release_frames();
        }
        throw raised;
    }
}

// The same for the main thread: what a signal handler raises cancels the network, and is thrown when it has ended. `ends` are those
// of its Python actors: who does not hear of the cancellation for half a second is left behind.
inline void run_network_interruptibly(
    streaming::Context const& context, std::vector<ActorPointer> actors, streaming::CancellationSource source,
    std::vector<EndPointer> const& ends, TracePointer trace) {
    constexpr std::chrono::milliseconds grace{500};
    auto future = std::async(
        std::launch::async, [&] { run_network(context, std::move(actors), source, std::move(trace)); });
    while (future.wait_for(detail::slice) != std::future_status::ready) {
        if (auto const error = detail::raised_by_signal()) {
            auto const reason = std::make_exception_ptr(error->apart());
            (void)source.cancel(reason);
            if (future.wait_for(grace) != std::future_status::ready) {
                for (auto const& end : ends) {
                    end->fail(reason);
                }
            }
            future.wait();
            throw PythonError{*error};
        }
    }
    future.get();
}

[[nodiscard]] inline ActorPointer fanout_actor(
    streaming::Context const& context, streaming::ChannelPtr in, std::vector<streaming::ChannelPtr> outs,
    bool unbounded) {
    return std::make_unique<streaming::Actor>(streaming::fanout(
        context, std::move(in), std::move(outs),
        unbounded ? streaming::FanoutPolicy::unbounded : streaming::FanoutPolicy::bounded));
}

[[nodiscard]] inline std::unique_ptr<streaming::Lineariser> make_lineariser(
    streaming::Context const& context, streaming::ChannelPtr out, std::size_t num_producers,
    std::size_t capacity) {
    return std::make_unique<streaming::Lineariser>(
        context, std::move(out), num_producers, streaming::ChannelCapacity{capacity});
}
[[nodiscard]] inline ActorPointer lineariser_actor(streaming::Lineariser& lineariser) {
    return std::make_unique<streaming::Actor>(lineariser.actor());
}

using MessageList = std::vector<streaming::Message>;
using SharedMessages = std::shared_ptr<MessageList>;

[[nodiscard]] inline streaming::Task<void> push_messages(streaming::ChannelPtr out, SharedMessages messages) {
    for (auto& message : *messages) {
        if (!co_await out->send(std::move(message))) {
            break;
        }
    }
}
[[nodiscard]] inline streaming::Task<void> pull_messages(streaming::ChannelPtr in, SharedMessages messages) {
    while (true) {
        auto message = co_await in->receive();
        if (!message) {
            break;
        }
        messages->push_back(std::move(*message));
    }
}
[[nodiscard]] inline ActorPointer push_actor(streaming::ChannelPtr out, SharedMessages messages) {
    auto task = push_messages(out, std::move(messages));
    return std::make_unique<streaming::Actor>(
        "push", std::move(task), std::vector<streaming::ChannelPtr>{},
        std::vector<streaming::ChannelPtr>{std::move(out)});
}
[[nodiscard]] inline ActorPointer pull_actor(streaming::ChannelPtr in, SharedMessages messages) {
    auto task = pull_messages(in, std::move(messages));
    return std::make_unique<streaming::Actor>(
        "pull", std::move(task), std::vector<streaming::ChannelPtr>{std::move(in)},
        std::vector<streaming::ChannelPtr>{});
}

}  // namespace rapidsmpf::python
