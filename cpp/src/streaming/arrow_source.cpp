#include <rapidsmpf/streaming/arrow_source.hpp>

#include <stdexcept>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::streaming {

namespace {

// Sends tables in groups; says whether the consumer wants more.
class GroupSender {
  public:
    GroupSender(ChannelPtr out, BatchSizes const& sizes) : out_{std::move(out)}, sizes_{sizes} {}

    [[nodiscard]] bool add(Table table) {
        rows_ += table.num_rows();
        bytes_ += table.byte_size();
        group_.push_back(std::move(table));
        return (rows_ < sizes_.enough_rows && bytes_ < sizes_.enough_bytes) || flush();
    }
    bool flush() {
        if (group_.empty()) {
            return true;
        }
        rows_ = 0;
        bytes_ = 0;
        return out_->send_blocking(Message{sequence_++, TableBatch{std::exchange(group_, {})}});
    }

  private:
    ChannelPtr out_;
    BatchSizes sizes_;
    std::vector<Table> group_;
    std::int64_t rows_{0};
    std::size_t bytes_{0};
    std::uint64_t sequence_{0};
};

void read_all(TableReader& reader, ChannelPtr const& out, BatchSizes const& sizes) {
    GroupSender sender{out, sizes};
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
