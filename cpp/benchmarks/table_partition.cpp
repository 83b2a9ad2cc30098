// Bytes a second of the two halves of a shuffle's local work: partition_and_pack and unpack_and_concat.
// Arguments: columns of 8 bytes, partitions. A round partitions four chunks; partition_to_concat concatenates each partition.
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <rapidsmpf/table/partition.hpp>

namespace {

using namespace rapidsmpf;

constexpr std::int64_t rows = 1 << 20;
constexpr int chunks = 4;

Table int64_columns(int count) {
    auto const owner = std::make_shared<std::vector<std::vector<std::uint64_t>>>();
    std::mt19937_64 random{1};
    std::vector<Field> fields;
    std::vector<Column> columns;
    for (int i = 0; i < count; ++i) {
        auto& values = owner->emplace_back(static_cast<std::size_t>(rows));
        for (auto& value : values) {
            value = random();
        }
        fields.emplace_back("c" + std::to_string(i), "l");
        Column column;
        column.length = rows;
        column.values = reinterpret_cast<std::byte const*>(values.data());
        columns.push_back(std::move(column));
    }
    return Table{std::make_shared<Schema const>(std::move(fields)), std::move(columns), rows, owner};
}

std::vector<std::vector<PackedData>> partition_chunks(
    Table const& table, int partitions, BufferResource& br) {
    std::vector<std::vector<PackedData>> by_partition(static_cast<std::size_t>(partitions));
    for (int chunk = 0; chunk < chunks; ++chunk) {
        auto parts = partition_and_pack(table, std::vector{0}, partitions, br);
        for (std::size_t p = 0; p < parts.size(); ++p) {
            by_partition[p].push_back(std::move(parts[p]));
        }
    }
    return by_partition;
}

void report(benchmark::State& state, Table const& table) {
    state.SetBytesProcessed(state.iterations() * chunks * static_cast<std::int64_t>(table.byte_size()));
}

void partition(benchmark::State& state) {
    auto const table = int64_columns(static_cast<int>(state.range(0)));
    auto const br = BufferResource::make();
    for (auto _ : state) {
        auto parts = partition_chunks(table, static_cast<int>(state.range(1)), *br);
        benchmark::DoNotOptimize(parts);
    }
    report(state, table);
}

void partition_to_concat(benchmark::State& state) {
    auto const table = int64_columns(static_cast<int>(state.range(0)));
    auto const br = BufferResource::make();
    for (auto _ : state) {
        for (auto& parts : partition_chunks(table, static_cast<int>(state.range(1)), *br)) {
            benchmark::DoNotOptimize(unpack_and_concat(std::move(parts), *br));
        }
    }
    report(state, table);
}

void hash_ids(benchmark::State& state) {
    auto const table = int64_columns(static_cast<int>(state.range(0)));
    for (auto _ : state) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
            benchmark::DoNotOptimize(
                hash_partition_ids(table, std::vector{0}, static_cast<int>(state.range(1))));
        }
    }
    report(state, table);
}

// What memory gives: the same bytes by memcpy into fresh memory.
void copy_only(benchmark::State& state) {
    auto const table = int64_columns(static_cast<int>(state.range(0)));
    auto const br = BufferResource::make();
    auto const size = static_cast<std::size_t>(rows) * 8;
    for (auto _ : state) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
            auto buffer = br->allocate(MemoryType::HOST, size * table.num_columns());
            for (std::size_t i = 0; i < table.num_columns(); ++i) {
                std::memcpy(buffer->mutable_host_bytes().data() + i * size, table.columns()[i].values, size);
            }
            benchmark::DoNotOptimize(buffer);
        }
    }
    report(state, table);
}

BENCHMARK(hash_ids)->Args({4, 16});
BENCHMARK(partition)->ArgsProduct({{1, 4}, {4, 16, 256}});
BENCHMARK(partition_to_concat)->ArgsProduct({{1, 4}, {4, 16, 256, 1024}});
BENCHMARK(copy_only)->Arg(4);

}  // namespace
