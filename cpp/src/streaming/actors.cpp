#include <rapidsmpf/streaming/actors.hpp>

#include <atomic>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/memory_wait.hpp>
#include <rapidsmpf/streaming/when_all.hpp>
#include <rapidsmpf/table/partition.hpp>
#include <rapidsmpf/table/table_stream.hpp>

#include "streaming/group_sender.hpp"

namespace rapidsmpf::streaming {

namespace {

void expect_function(bool is_there, std::string const& actor) {
    RAPIDSMPF_EXPECTS(is_there, actor + " needs a function", std::invalid_argument);
}

// The tables of a message, without copies.
std::vector<Table> tables_of(Message message) {
    if (message.holds<TableBatch>()) {
        return message.release<TableBatch>().tables();
    }
    std::vector<Table> tables;
    tables.push_back(message.release<Table>());
    return tables;
}

Task<void> push(ChannelPtr out, std::vector<Message> messages) {
    for (auto& message : messages) {
        if (!co_await out->send(std::move(message))) {
            co_return;
        }
    }
}

Task<void> pull(ChannelPtr in, std::shared_ptr<std::vector<Message>> messages) {
    while (auto message = co_await in->receive()) {
        messages->push_back(std::move(*message));
    }
}

Task<void> map_each(ChannelPtr in, ChannelPtr out, std::function<Message(Message)> function) {
    while (auto message = co_await in->receive()) {
        auto mapped = function(std::move(*message));
        if (!co_await out->send(std::move(mapped))) {
            co_return;
        }
    }
}

Task<void> filter_each(ChannelPtr in, ChannelPtr out, std::function<bool(Message const&)> wanted) {
    while (auto message = co_await in->receive()) {
        if (wanted(*message) && !co_await out->send(std::move(*message))) {
            co_return;
        }
    }
}

// Tables that are to become one.
class TableGroup {
  public:
    void add(Table table) {
        rows_ += table.num_rows();
        bytes_ += table.byte_size();
        tables_.push_back(std::move(table));
    }
    [[nodiscard]] bool empty() const noexcept { return tables_.empty(); }
    [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::vector<Table> take() {
        rows_ = 0;
        bytes_ = 0;
        return std::exchange(tables_, {});
    }

  private:
    std::vector<Table> tables_;
    std::int64_t rows_{0};
    std::size_t bytes_{0};
};

// One table of a group. Waits in line until there is memory for it, and overbooks in the end: concatenating rows frees those
// that they came from.
Task<Table> concatenate(Context context, std::vector<Table> tables, std::size_t bytes) {
    if (tables.size() == 1) {
        co_return std::move(tables.front());
    }
    MemoryWait wait;
    wait.allow = AllowOverbooking::yes;
    {
        // Released at once, for concat() reserves what it needs to the byte.
        auto const there_is_room =
            co_await reserve_memory(context, bytes, MemoryType::DEVICE, std::move(wait));
    }
    co_return concat(tables, *context.resource(), AllowOverbooking::yes);
}

Task<void> repartition_rows(Context context, ChannelPtr in, ChannelPtr out, BatchSizes sizes) {
    TableGroup group;
    std::deque<Table> pieces;
    std::uint64_t sequence = 0;
    for (bool is_end = false; !is_end;) {
        auto message = co_await in->receive();
        is_end = !message;
        if (message) {
            for (auto& table : tables_of(std::move(*message))) {
                for (auto& piece : split_table(table, sizes)) {
                    pieces.push_back(std::move(piece));
                }
            }
        }
        while (!pieces.empty() || (is_end && !group.empty())) {
            while (!pieces.empty() && group.rows() < sizes.enough_rows && group.bytes() < sizes.enough_bytes
                   && (group.empty()
                       || (group.rows() + pieces.front().num_rows() <= sizes.most_rows
                           && group.bytes() + pieces.front().byte_size() <= sizes.most_bytes))) {
                group.add(std::move(pieces.front()));
                pieces.pop_front();
            }
            auto const is_full = group.rows() >= sizes.enough_rows || group.bytes() >= sizes.enough_bytes;
            if (!is_full && pieces.empty() && !is_end) {
                break;
            }
            auto const bytes = group.bytes();
            auto table = co_await concatenate(context, group.take(), bytes);
            Message next{sequence++, std::move(table)};
            if (!co_await out->send(std::move(next))) {
                co_return;
            }
        }
    }
}

Task<void> concat_rows(Context context, ChannelPtr in, ChannelPtr out) {
    TableGroup group;
    while (auto message = co_await in->receive()) {
        for (auto& table : tables_of(std::move(*message))) {
            group.add(std::move(table));
        }
    }
    if (!group.empty()) {
        auto const bytes = group.bytes();
        auto table = co_await concatenate(context, group.take(), bytes);
        Message whole{0, std::move(table)};
        co_await out->send(std::move(whole));
    }
}

// What the readers of a scan share.
struct Scan {
    Scan(std::vector<std::string> paths_, OpenTables open_, ChannelPtr out_, BatchSizes const& sizes_)
        : paths{std::move(paths_)}, open{std::move(open_)}, out{std::move(out_)}, sizes{sizes_} {}
    std::vector<std::string> paths;
    OpenTables open;
    ChannelPtr out;
    BatchSizes sizes;
    std::atomic<std::size_t> next_path{0};
    std::atomic<std::uint64_t> next_sequence{0};
};

void read_paths(Scan& scan) {
    for (auto i = scan.next_path.fetch_add(1); i < scan.paths.size(); i = scan.next_path.fetch_add(1)) {
        TableReader reader{scan.open(scan.paths[i])};
        GroupSender sender{scan.out, scan.sizes, scan.next_sequence};
        while (auto table = reader.next()) {
            for (auto& piece : split_table(*table, scan.sizes)) {
                if (!sender.add(std::move(piece))) {
                    return;
                }
            }
        }
        if (!sender.flush()) {
            return;
        }
    }
}

Task<void> run_scan(std::shared_ptr<Executor> executor, std::shared_ptr<Scan> scan, std::size_t readers) {
    std::vector<Task<void>> tasks;
    for (std::size_t i = 0; i < readers; ++i) {
        auto read = [scan] {
            try {
                read_paths(*scan);
            } catch (...) {
                scan->next_path.store(scan->paths.size());  // the other readers need not begin another
                throw;
            }
        };
        tasks.push_back(executor->run_blocking(std::move(read)));
    }
    co_await when_all(std::move(tasks));
}

// Rows of a channel, table by table.
class ChannelRows {
  public:
    explicit ChannelRows(ChannelPtr in) noexcept : in_{std::move(in)} {}
    ChannelRows(ChannelRows const&) = delete;
    ChannelRows& operator=(ChannelRows const&) = delete;
    ~ChannelRows() { in_->shutdown(); }

    [[nodiscard]] std::optional<Table> next() {
        while (tables_.empty()) {
            auto message = in_->receive_blocking();
            if (!message) {
                return std::nullopt;
            }
            for (auto& table : tables_of(std::move(*message))) {
                tables_.push_back(std::move(table));
            }
        }
        std::optional<Table> table{std::move(tables_.front())};
        tables_.pop_front();
        return table;
    }

  private:
    ChannelPtr in_;
    std::deque<Table> tables_;
};

}  // namespace

Actor push_to_channel(ChannelPtr out, std::vector<Message> messages) {
    auto task = push(out, std::move(messages));
    return Actor{"push_to_channel", std::move(task), {}, {std::move(out)}};
}

Actor pull_from_channel(ChannelPtr in, std::shared_ptr<std::vector<Message>> messages) {
    RAPIDSMPF_EXPECTS(
        messages != nullptr, "pull_from_channel needs a place for messages", std::invalid_argument);
    auto task = pull(in, std::move(messages));
    return Actor{"pull_from_channel", std::move(task), {std::move(in)}, {}};
}

Actor map(
    Context const& /*context*/, ChannelPtr in, ChannelPtr out, std::function<Message(Message)> function) {
    expect_function(function != nullptr, "map");
    auto task = map_each(in, out, std::move(function));
    return Actor{"map", std::move(task), {std::move(in)}, {std::move(out)}};
}

Actor map_tables(
    Context const& context, ChannelPtr in, ChannelPtr out, std::function<Table(Table)> function) {
    expect_function(function != nullptr, "map_tables");
    auto on_message = [resource = context.resource(), function = std::move(function)](Message message) {
        auto const sequence = message.sequence();
        auto table = message.holds<TableBatch>() ? message.release<TableBatch>().combine(*resource)
                                                 : message.release<Table>();
        return Message{sequence, function(std::move(table))};
    };
    auto task = map_each(in, out, std::move(on_message));
    return Actor{"map_tables", std::move(task), {std::move(in)}, {std::move(out)}};
}

Actor filter(
    Context const& /*context*/, ChannelPtr in, ChannelPtr out, std::function<bool(Message const&)> wanted) {
    expect_function(wanted != nullptr, "filter");
    auto task = filter_each(in, out, std::move(wanted));
    return Actor{"filter", std::move(task), {std::move(in)}, {std::move(out)}};
}

Actor repartition(Context const& context, ChannelPtr in, ChannelPtr out, BatchSizes const& sizes) {
    sizes.validate();
    auto task = repartition_rows(context, in, out, sizes);
    return Actor{"repartition", std::move(task), {std::move(in)}, {std::move(out)}};
}

Actor concat_tables(Context const& context, ChannelPtr in, ChannelPtr out) {
    auto task = concat_rows(context, in, out);
    return Actor{"concat_tables", std::move(task), {std::move(in)}, {std::move(out)}};
}

Actor scan(
    Context const& context, std::vector<std::string> paths, OpenTables open, ChannelPtr out,
    std::size_t readers, BatchSizes const& sizes) {
    expect_function(open != nullptr, "scan");
    RAPIDSMPF_EXPECTS(readers > 0, "a scan needs at least one reader", std::invalid_argument);
    sizes.validate();
    auto shared = std::make_shared<Scan>(std::move(paths), std::move(open), out, sizes);
    auto task = run_scan(context.executor(), std::move(shared), readers);
    return Actor{"scan", std::move(task), {}, {std::move(out)}};
}

ArrowStreamOwner channel_stream(
    Context const& /*context*/, ChannelPtr in, std::shared_ptr<Schema const> schema) {
    RAPIDSMPF_EXPECTS(
        in != nullptr && schema != nullptr, "a stream of a channel needs the channel and a schema",
        std::invalid_argument);
    in->set_outside_consumer();
    ArrowStreamOwner stream;
    auto rows = std::make_shared<ChannelRows>(std::move(in));
    export_table_stream(std::move(schema), [rows = std::move(rows)] { return rows->next(); }, stream.out());
    return stream;
}

}  // namespace rapidsmpf::streaming
