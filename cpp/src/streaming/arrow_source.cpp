#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/actors.hpp>

#include "streaming/group_sender.hpp"

namespace rapidsmpf::streaming {

namespace {

void read_all(TableReader& reader, ChannelPtr const& out, BatchSizes const& sizes) {
    std::atomic<std::uint64_t> sequence{0};
    GroupSender sender{out, sizes, sequence};
    while (auto table = reader.next()) {
        for (auto& piece : split_table(*table, sizes)) {
            if (!sender.add(std::move(piece))) {
                return;
            }
        }
    }
    sender.flush();
}

Task<void> run(
    std::shared_ptr<Executor> executor, std::shared_ptr<TableReader> reader, ChannelPtr out,
    BatchSizes sizes) {
    auto read = [reader, out, sizes] {
        // Closed here rather than with its last owner, and on this thread: ending a producer may block, too.
        struct Closer {
            ~Closer() { reader.close(); }
            TableReader& reader;
        } const closer{*reader};
        read_all(*reader, out, sizes);
    };
    co_await executor->run_blocking(std::move(read));
}

}  // namespace

Actor arrow_source(
    Context const& context, std::shared_ptr<TableReader> reader, ChannelPtr out, BatchSizes const& sizes) {
    RAPIDSMPF_EXPECTS(reader != nullptr, "arrow_source needs a reader", std::invalid_argument);
    sizes.validate();
    auto task = run(context.executor(), std::move(reader), out, sizes);
    return Actor{"arrow_source", std::move(task), {}, {std::move(out)}};
}

}  // namespace rapidsmpf::streaming
