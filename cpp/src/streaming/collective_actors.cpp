#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/actors.hpp>

namespace rapidsmpf::streaming {

namespace {

// Sends the rows of `output` until the receiver closes `out`: then the wait for other ranks ends, too.
template <typename Output>
Task<void> run(std::shared_ptr<Executor> executor, std::shared_ptr<Output> output, ChannelPtr out) {
    auto const closed = out->closed();
    for (std::uint64_t sequence = 0;; ++sequence) {
        std::optional<Table> table;
        try {
            table = co_await output->async_next(executor, closed);
        } catch (CancelledError const&) {
            // The receiver has closed `out`.
        }
        if (!table) {
            co_return;
        }
        Message message{sequence, std::move(*table)};
        if (!co_await out->send(std::move(message))) {
            co_return;
        }
    }
}

}  // namespace

Actor shuffle_output(Context const& context, std::shared_ptr<ShuffleOutput> output, ChannelPtr out) {
    RAPIDSMPF_EXPECTS(output != nullptr, "shuffle_output needs an output", std::invalid_argument);
    auto task = run(context.executor(), std::move(output), out);
    return Actor{"shuffle_output", std::move(task), {}, {std::move(out)}};
}

Actor allgather_output(Context const& context, std::shared_ptr<AllGatherOutput> output, ChannelPtr out) {
    RAPIDSMPF_EXPECTS(output != nullptr, "allgather_output needs an output", std::invalid_argument);
    auto task = run(context.executor(), std::move(output), out);
    return Actor{"allgather_output", std::move(task), {}, {std::move(out)}};
}

}  // namespace rapidsmpf::streaming
