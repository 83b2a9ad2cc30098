// Partitioning a table on a GPU by hash, by a column or by ranges of rows, and hashing rows.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>

#include "table/gpu/cuda_partitioner.hpp"
#include "table/gpu/device_table.hpp"
#include "table/gpu/partition_kernels.hpp"

namespace rapidsmpf::detail {

namespace {

// The nodes of the key columns of a table. Throws as RowHasher does.
std::vector<std::int32_t> key_nodes(Table const& table, std::span<int const> key_columns) {
    auto const flat = flatten(*table.schema(), table.columns());
    std::vector<std::int32_t> keys;
    for (auto const index : key_columns) {
        RAPIDSMPF_EXPECTS(
            index >= 0 && static_cast<std::size_t>(index) < table.num_columns(),
            "there is no key column number " + std::to_string(index) + " in a table of "
                + std::to_string(table.num_columns()) + " columns",
            std::out_of_range);
        auto const node = flat.columns[static_cast<std::size_t>(index)];
        auto const& field = table.schema()->fields()[static_cast<std::size_t>(index)];
        RAPIDSMPF_EXPECTS(
            nesting(flat.nodes.data(), node) <= max_key_depth,
            "column '" + field.name() + "' (" + field.type_name()
                + ") is nested too deeply to be a key on a GPU",
            std::invalid_argument);
        keys.push_back(node);
    }
    return keys;
}

}  // namespace

std::vector<PackedData> partition_on_gpu(
    Table const& table, std::span<int const> key_columns, std::uint32_t num_partitions, BufferResource& br,
    std::uint64_t seed, std::span<std::uint32_t const> placement) {
    auto const keys = key_nodes(table, key_columns);
    GpuPartitioner partitioner{table, num_partitions, br};
    auto const first_key = keys.empty() ? DeviceNode{} : partitioner.node(keys.front());
    return partitioner.run(std::as_bytes(std::span{keys}), placement, [&] {
        sort_tiles_by_hash(
            partitioner.root(), partitioner.nodes(), static_cast<std::int32_t const*>(partitioner.extra()),
            static_cast<std::int32_t>(keys.size()), first_key, seed, table.stream());
        return RootRows::sorted;
    });
}

std::vector<PackedData> partition_by_column_on_gpu(
    Table const& table, Column const& numbers, std::string const& name, std::uint32_t num_partitions,
    BufferResource& br, std::span<std::uint32_t const> placement) {
    GpuPartitioner partitioner{table, num_partitions, br};
    auto const assign = [&] {
        assign_by_column(
            partitioner.root(), reinterpret_cast<std::uint32_t const*>(numbers.values) + numbers.offset,
            partitioner.highest_address(), table.stream());
        return RootRows::assigned;
    };
    return partitioner.run({}, placement, assign, [&](std::uint32_t highest) {
        RAPIDSMPF_EXPECTS(
            highest < num_partitions || table.num_rows() == 0,
            "column '" + name + "' sends a row to partition " + std::to_string(highest) + " of "
                + std::to_string(num_partitions),
            std::out_of_range);
    });
}

std::vector<PackedData> split_on_gpu(
    Table const& table, std::span<std::int64_t const> splits, BufferResource& br) {
    GpuPartitioner partitioner{table, static_cast<std::uint32_t>(splits.size()) + 1, br};
    return partitioner.run(std::as_bytes(splits), {}, [&] {
        assign_by_splits(
            partitioner.root(), static_cast<std::int64_t const*>(partitioner.extra()), table.stream());
        return RootRows::assigned;
    });
}

void hash_rows_on_gpu(
    Table const& table, std::span<int const> key_columns, std::int64_t first, std::span<std::uint64_t> hashes,
    std::uint64_t seed) {
    auto const keys = key_nodes(table, key_columns);
    auto const rows = table.slice(first, static_cast<std::int64_t>(hashes.size()));
    auto const flat = flatten(*rows.schema(), rows.columns());
    if (hashes.empty()) {
        return;
    }
    auto& device = Device::current();
    auto const stream = table.stream();
    auto const allocate = [&](std::size_t bytes) {
        return std::shared_ptr<void>{device.allocate(bytes, stream), [&device, bytes, stream](void* pointer) {
                                         device.deallocate(pointer, bytes, stream);
                                     }};
    };
    auto const nodes = allocate(flat.nodes.size() * sizeof(DeviceNode));
    auto const key_list = allocate(std::max<std::size_t>(keys.size(), 1) * sizeof(std::int32_t));
    auto const result = allocate(hashes.size_bytes());
    device.copy(nodes.get(), flat.nodes.data(), flat.nodes.size() * sizeof(DeviceNode), stream);
    device.copy(key_list.get(), keys.data(), keys.size() * sizeof(std::int32_t), stream);
    hash_nodes(
        static_cast<DeviceNode const*>(nodes.get()), static_cast<std::int32_t const*>(key_list.get()),
        static_cast<std::int32_t>(keys.size()), rows.num_rows(), seed,
        static_cast<std::uint64_t*>(result.get()), stream);
    device.copy(hashes.data(), result.get(), hashes.size_bytes(), stream);
    device.synchronize(stream);
}

}  // namespace rapidsmpf::detail
