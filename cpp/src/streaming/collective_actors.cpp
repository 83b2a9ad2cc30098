#include <rapidsmpf/streaming/collective_actors.hpp>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::streaming {

namespace {

// Waits for other ranks cannot be interrupted from here: they are cut, and between the cuts the actor looks whether
// anyone still wants its rows.
constexpr std::chrono::milliseconds wait_slice{200};

template <typename Output>
void send_all(Output& output, Channel& out) {
    std::uint64_t sequence = 0;
    while (!out.is_closed()) {
        std::optional<Table> table;
        try {
            table = output.next(wait_slice);
        } catch (TimeoutError const&) {
            continue;
        }
        if (!table || !out.send_blocking(Message{sequence++, std::move(*table)})) {
            return;
        }
    }
}

template <typename Output>
Task<void> run(std::shared_ptr<Executor> executor, std::shared_ptr<Output> output, ChannelPtr out) {
    auto send = [output, out] { send_all(*output, *out); };
    co_await executor->run_blocking(std::move(send));
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
