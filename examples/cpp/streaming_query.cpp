// A query as a network of actors on every rank: scan, filter, shuffle, aggregate, sink, under a budget of a tenth of the memory that its rows take.
//
//   scan -> filter -> shuffle_input ~~ other ranks ~~ shuffle_output -> count by key -> Arrow stream
//
// Ranks are threads of this process. What waits is spilled to disk; how much memory the library held at most is printed.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/streaming/actors.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/partition.hpp>
#include <rapidsmpf/table/table.hpp>
#include <rapidsmpf/table/table_stream.hpp>

namespace {

using namespace rapidsmpf;
using namespace rapidsmpf::streaming;

constexpr std::int64_t rows_per_file = 100'000;
constexpr std::int64_t files_per_rank = 10;
constexpr std::int64_t num_keys = 1000;
constexpr std::int64_t bytes_per_row = 16;
constexpr std::int64_t memory_budget = rows_per_file * files_per_rank * bytes_per_row / 10;

std::shared_ptr<Schema const> row_schema() {
    std::vector<Field> fields;
    fields.emplace_back("key", "l");  // the formats of the Arrow C data interface
    fields.emplace_back("value", "l");
    return std::make_shared<Schema const>(std::move(fields));
}

Table make_table(std::vector<std::int64_t> keys, std::vector<std::int64_t> values) {
    using Memory = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;
    auto const rows = static_cast<std::int64_t>(keys.size());
    auto memory = std::make_shared<Memory>(std::move(keys), std::move(values));
    std::vector<Column> columns(2);
    columns[0].values = reinterpret_cast<std::byte const*>(memory->first.data());
    columns[1].values = reinterpret_cast<std::byte const*>(memory->second.data());
    for (auto& column : columns) {
        column.length = rows;
    }
    return Table{row_schema(), std::move(columns), rows, std::move(memory)};
}

std::int64_t value_at(Column const& column, std::int64_t row) {
    return reinterpret_cast<std::int64_t const*>(column.values)[column.offset + row];
}

// Stands for a file: value i of number n has the key i % num_keys.
ArrowStreamOwner open_file(std::string const& path) {
    auto next = [first = std::stol(path) * rows_per_file,
                 done = std::int64_t{0}]() mutable -> std::optional<Table> {
        constexpr std::int64_t batch = 10'000;
        if (done == rows_per_file) {
            return std::nullopt;
        }
        std::vector<std::int64_t> keys;
        std::vector<std::int64_t> values;
        for (std::int64_t i = 0; i < batch; ++i) {
            values.push_back(first + done + i);
            keys.push_back(values.back() % num_keys);
        }
        done += batch;
        return make_table(std::move(keys), std::move(values));
    };
    ArrowStreamOwner stream;
    export_table_stream(row_schema(), std::move(next), stream.out());
    return stream;
}

// The rows with even values.
Table keep_even(Table table) {
    std::vector<std::int64_t> keys;
    std::vector<std::int64_t> values;
    for (std::int64_t row = 0; row < table.num_rows(); ++row) {
        if (auto const value = value_at(table.columns()[1], row); value % 2 == 0) {
            keys.push_back(value_at(table.columns()[0], row));
            values.push_back(value);
        }
    }
    return make_table(std::move(keys), std::move(values));
}

// Counts rows by key, and sends the counts when all rows were there.
Task<void> count_by_key(ChannelPtr in, ChannelPtr out) {
    std::map<std::int64_t, std::int64_t> counts;
    while (auto message = co_await in->receive()) {
        auto const& table = message->get<Table>();
        for (std::int64_t row = 0; row < table.num_rows(); ++row) {
            ++counts[value_at(table.columns()[0], row)];
        }
    }
    std::vector<std::int64_t> keys;
    std::vector<std::int64_t> values;
    for (auto const& [key, count] : counts) {
        keys.push_back(key);
        values.push_back(count);
    }
    Message message{0, make_table(std::move(keys), std::move(values))};
    co_await out->send(std::move(message));
}

struct Totals {
    std::atomic<std::int64_t> rows{0};
    std::atomic<std::int64_t> keys{0};
};

// map_tables hands on tables; a shuffle takes batches with numbers.
Message as_batch(Message message) {
    auto const sequence = message.sequence();
    return Message{sequence, TableBatch{message.release<Table>()}};
}

void run_rank(std::shared_ptr<Communicator> const& comm, Totals& totals) {
    BufferResource::Settings settings;
    settings.limits[0] = memory_budget;
    settings.available[0] = [] {
        return BufferResource::unlimited;
    };  // of what the library holds, not of this process
    auto const resource = BufferResource::make(std::move(settings));
    Context const context{config::Options{}, comm, resource};
    auto const shuffler = std::make_shared<coll::Shuffler>(comm, 0, 16, resource);
    auto const schema = row_schema();
    auto const inserter =
        std::make_shared<ShuffleInserter>(shuffler, RowRouting::by_hash({"key"}), *schema, resource);
    auto const output = std::make_shared<ShuffleOutput>(shuffler, schema, resource);

    std::vector<std::string> paths;
    for (std::int64_t i = 0; i < files_per_rank; ++i) {
        paths.push_back(std::to_string(comm->rank() * files_per_rank + i));
    }
    auto const rows = context.create_channel();
    auto const even = context.create_channel();
    auto const batches = context.create_channel();
    auto const shuffled = context.create_channel();
    auto const counts = context.create_channel();
    std::vector<Actor> actors;
    actors.push_back(scan(context, paths, open_file, rows));
    actors.push_back(map_tables(context, rows, even, keep_even));
    actors.push_back(map(context, even, batches, as_batch));
    actors.push_back(shuffle_input(context, batches, inserter));
    actors.push_back(shuffle_output(context, output, shuffled));
    auto task = count_by_key(shuffled, counts);
    actors.emplace_back("count_by_key", std::move(task), std::vector{shuffled}, std::vector{counts});

    TableReader reader{channel_stream(context, counts, schema)};
    auto network = context.executor()->spawn(actor_network(*context.executor(), std::move(actors)));
    while (auto table = reader.next()) {
        totals.keys += table->num_rows();
        for (std::int64_t row = 0; row < table->num_rows(); ++row) {
            totals.rows += value_at(table->columns()[1], row);
        }
    }
    network.get();  // throws what an actor threw
    std::cout << "rank " + std::to_string(comm->rank()) + ": at most "
                     + std::to_string(resource->memory_peak(MemoryType::DEVICE) >> 10) + " KiB in memory, of "
                     + std::to_string(memory_budget >> 10) + "; "
                     + std::to_string(shuffler->local_partitions().size()) + " partitions\n";
}

}  // namespace

int main(int argc, char** argv) {
    auto const nranks = argc > 1 ? std::atoi(argv[1]) : 2;
    if (nranks < 1) {
        std::cerr << "usage: streaming_query [ranks]\n";
        return 2;
    }
    LoopbackCluster const cluster{nranks};
    Totals totals;
    std::atomic<bool> failed{false};
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < nranks; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                run_rank(cluster[rank], totals);
            } catch (std::exception const& error) {
                std::cerr << "rank " + std::to_string(rank) + ": " + error.what() + "\n";
                failed = true;
                cluster[rank]->fail(RankFailure{rank, "", 0, error.what()});
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    auto const expected = nranks * files_per_rank * rows_per_file / 2;
    if (failed || totals.rows != expected || totals.keys != num_keys / 2) {
        std::cerr << "wrong: " << totals.rows << " of " << expected << " rows with " << totals.keys
                  << " keys\n";
        return 1;
    }
    std::cout << expected << " rows with " << totals.keys << " keys were counted\n";
    return 0;
}
