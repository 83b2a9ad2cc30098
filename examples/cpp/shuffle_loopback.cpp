// Shuffles a table among ranks that live in one process, one thread each.
//
// Every rank makes some rows, packs them into partitions by the hash of their key, and gives them to the
// shuffler; the owner of a partition concatenates its pieces. In the end all rows are there, each in the
// partition that its key says.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/table/partition.hpp>
#include <rapidsmpf/table/table.hpp>

namespace {

using namespace rapidsmpf;

constexpr std::int64_t rows_per_rank = 100'000;
constexpr int num_partitions = 8;
constexpr OpId shuffle_id = 0;

// Two columns of int64: "key", which counts on from rank to rank, and "square" of it.
Table make_rows(Rank rank) {
    struct Memory {
        std::vector<std::int64_t> keys;
        std::vector<std::int64_t> squares;
    };
    auto memory = std::make_shared<Memory>();
    for (std::int64_t i = 0; i < rows_per_rank; ++i) {
        auto const key = rank * rows_per_rank + i;
        memory->keys.push_back(key);
        memory->squares.push_back(key * key);
    }
    std::vector<Field> fields;
    fields.emplace_back("key", "l");  // the formats of the Arrow C data interface
    fields.emplace_back("square", "l");
    std::vector<Column> columns(2);
    columns[0].values = reinterpret_cast<std::byte const*>(memory->keys.data());
    columns[1].values = reinterpret_cast<std::byte const*>(memory->squares.data());
    for (auto& column : columns) {
        column.length = rows_per_rank;
    }
    auto schema = std::make_shared<Schema const>(std::move(fields));
    return Table{std::move(schema), std::move(columns), rows_per_rank, std::move(memory)};
}

std::int64_t value(Column const& column, std::int64_t row) {
    return reinterpret_cast<std::int64_t const*>(column.values)[column.offset + row];
}

// What all ranks add up, to be compared with what was put in.
struct Totals {
    std::atomic<std::int64_t> rows{0};
    std::atomic<std::int64_t> keys{0};
    std::atomic<std::int64_t> wrong{0};
};

void run_rank(std::shared_ptr<Communicator> const& comm, Totals& totals) {
    auto const br = BufferResource::make();
    coll::Shuffler shuffler{comm, shuffle_id, num_partitions, br};

    std::vector<int> const keys{0};
    auto packed = partition_and_pack(make_rows(comm->rank()), keys, num_partitions, *br);
    std::unordered_map<coll::PartitionId, PackedData> chunks;
    for (coll::PartitionId partition = 0; partition < packed.size(); ++partition) {
        chunks.emplace(partition, std::move(packed[partition]));
    }
    shuffler.insert(std::move(chunks));
    shuffler.insert_finished();

    for (std::size_t i = 0; i < shuffler.local_partitions().size(); ++i) {
        auto const partition = shuffler.wait_any();
        auto const table = unpack_and_concat(shuffler.extract(partition), *br);
        auto const places = hash_partition_ids(table, keys, num_partitions);
        for (std::int64_t row = 0; row < table.num_rows(); ++row) {
            auto const key = value(table.columns()[0], row);
            totals.keys += key;
            if (places[static_cast<std::size_t>(row)] != partition
                || value(table.columns()[1], row) != key * key) {
                ++totals.wrong;
            }
        }
        totals.rows += table.num_rows();
        std::cout << "rank " + std::to_string(comm->rank()) + ": partition " + std::to_string(partition)
                         + " has " + std::to_string(table.num_rows()) + " rows\n";
    }
    shuffler.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
    auto const nranks = argc > 1 ? std::atoi(argv[1]) : 2;
    if (nranks < 1) {
        std::cerr << "usage: shuffle_loopback [ranks]\n";
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
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    auto const rows = nranks * rows_per_rank;
    if (failed || totals.wrong != 0 || totals.rows != rows || totals.keys != rows * (rows - 1) / 2) {
        std::cerr << "the shuffle lost or misplaced rows: " << totals.rows << " of " << rows << " rows, "
                  << totals.wrong << " in the wrong place\n";
        return 1;
    }
    std::cout << "all " << rows << " rows are in their partitions\n";
    return 0;
}
