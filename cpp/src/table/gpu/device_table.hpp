// What tables on a GPU need of CUDA, so that the rest of the room includes nothing of it. Without CUDA all of these
// throw std::runtime_error: then there are no such tables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::detail {

// Makes `stream` wait for the event of a producer on a CUDA device, if there is one. Throws std::invalid_argument
// when the memory is that of another GPU.
void wait_for_producer(ArrowDeviceArray const& array, Stream stream);
// A cudaEvent_t at the end of `stream`, by a pointer to it as the device interface wants it, and the GPU's number.
[[nodiscard]] std::pair<std::shared_ptr<void>, std::int64_t> mark_for_consumer(Stream stream);

// The functions of partition.hpp and hash.hpp for a table on a GPU; arguments have been checked as far as they do not
// depend on rows. Results are in DEVICE memory, on the table's stream.
[[nodiscard]] std::vector<PackedData> partition_on_gpu(
    Table const& table, std::span<int const> key_columns, std::uint32_t num_partitions, BufferResource& br,
    std::uint64_t seed, std::span<std::uint32_t const> placement);
[[nodiscard]] std::vector<PackedData> partition_by_column_on_gpu(
    Table const& table, Column const& numbers, std::string const& name, std::uint32_t num_partitions,
    BufferResource& br, std::span<std::uint32_t const> placement);
[[nodiscard]] std::vector<PackedData> split_on_gpu(
    Table const& table, std::span<std::int64_t const> splits, BufferResource& br);
// Packed tables on a GPU, unpacked, without dictionaries; enqueued on `stream`, behind what wrote them.
[[nodiscard]] PackedData concat_packed_on_gpu(
    Schema const& schema, std::span<Table const> tables, BufferResource& br, AllowOverbooking allow,
    Stream stream);
// Waits for the result.
void hash_rows_on_gpu(
    Table const& table, std::span<int const> key_columns, std::int64_t first, std::span<std::uint64_t> hashes,
    std::uint64_t seed);

}  // namespace rapidsmpf::detail
