#include <optional>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/actors.hpp>
#include <rapidsmpf/streaming/memory_wait.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

namespace rapidsmpf::streaming {

namespace {

// The tier that a copy is to be in: that of the message's bytes, but in memory.
MemoryType tier_of(Message const& message, BufferResource const& resource) {
    auto best = MemoryType::DEVICE;
    for (auto const type : memory_types) {
        if (message.description().bytes(type) > message.description().bytes(best)) {
            best = type;
        }
    }
    return best == MemoryType::DISK ? resource.type_to_read_into() : best;
}

Task<Message> copy_within_budget(Context const& context, Message const& message) {
    auto const type = tier_of(message, *context.resource());
    auto reservation = co_await reserve_memory(context, message.copy_cost(), type);
    co_return message.copy(reservation);
}

// Sends to those outputs that still take messages. Whether there is one left.
Task<bool> send_to_all(
    Context const& context, Message message, std::vector<ChannelPtr> const& outs, std::vector<bool>& open) {
    std::size_t last = outs.size();
    for (std::size_t i = 0; i < outs.size(); ++i) {
        open[i] = open[i] && !outs[i]->is_closed();
        last = open[i] ? i : last;
    }
    if (last == outs.size()) {
        // False; or throws, if it was a failure that closed them rather than consumers who want no more.
        co_return co_await outs.front()->send(std::move(message));
    }
    for (std::size_t i = 0; i < last; ++i) {
        if (open[i]) {
            auto copied = co_await copy_within_budget(context, message);
            open[i] = co_await outs[i]->send(std::move(copied));
        }
    }
    open[last] = co_await outs[last]->send(std::move(message));
    co_return true;
}

Task<void> distribute(Context context, ChannelPtr in, std::vector<ChannelPtr> outs) {
    std::vector<bool> open(outs.size(), true);
    while (auto message = co_await in->receive()) {
        if (!co_await send_to_all(context, std::move(*message), outs, open)) {
            co_return;
        }
    }
    for (auto const& out : outs) {
        out->finish();
    }
}

Task<void> distribute_metadata(Context context, ChannelPtr in, std::vector<ChannelPtr> outs) {
    while (auto message = co_await in->metadata().receive()) {
        for (std::size_t i = 0; i + 1 < outs.size(); ++i) {
            auto copied = co_await copy_within_budget(context, *message);
            (void)co_await outs[i]->metadata().send(std::move(copied));
        }
        (void)co_await outs.back()->metadata().send(std::move(*message));
    }
    for (auto const& out : outs) {
        out->metadata().finish();
    }
}

Task<void> forward(ChannelPtr from, ChannelPtr to) {
    while (auto message = co_await from->receive()) {
        if (!co_await to->send(std::move(*message))) {
            from->shutdown();
            co_return;
        }
    }
    to->finish();
}

// The network does not know the inner channels: a part that fails has the others, which may wait for one of them, fail too.
Task<void> guarded(Task<void> task, std::vector<ChannelPtr> const& shared) {
    std::exception_ptr error;
    try {
        co_await task;
    } catch (...) {
        error = std::current_exception();
    }
    if (error) {
        for (auto const& channel : shared) {
            channel->cancel(error);
        }
        std::rethrow_exception(std::move(error));
    }
}

// Shuts `in` down when no receiver needs more, which metadata would otherwise keep waiting.
Task<void> distribute_and_leave(Context context, ChannelPtr in, std::vector<ChannelPtr> outs) {
    co_await distribute(std::move(context), in, std::move(outs));
    in->shutdown();
}

Task<void> run_fanout(Context context, ChannelPtr in, std::vector<ChannelPtr> outs, FanoutPolicy policy) {
    co_await context.executor()->schedule();
    std::vector<ChannelPtr> shared{in};
    std::vector<Task<void>> tasks;
    if (policy == FanoutPolicy::bounded) {
        tasks.push_back(guarded(distribute_and_leave(context, in, outs), shared));
    } else {
        constexpr auto unlimited = ChannelCapacity::unlimited;
        std::vector<ChannelPtr> waiting;
        for (auto const& out : outs) {
            waiting.push_back(context.create_channel(ChannelCapacity{unlimited}));
            shared.push_back(waiting.back());
            tasks.push_back(guarded(forward(waiting.back(), out), shared));
        }
        tasks.push_back(guarded(distribute_and_leave(context, in, std::move(waiting)), shared));
    }
    tasks.push_back(guarded(distribute_metadata(context, in, outs), shared));
    co_await when_all(std::move(tasks));
}

}  // namespace

Actor fanout(Context const& context, ChannelPtr in, std::vector<ChannelPtr> outs, FanoutPolicy policy) {
    RAPIDSMPF_EXPECTS(!outs.empty(), "a fan-out needs at least one output", std::invalid_argument);
    auto task = run_fanout(context, in, outs, policy);
    return Actor{"fanout", std::move(task), {std::move(in)}, std::move(outs)};
}

}  // namespace rapidsmpf::streaming
