#include <stdexcept>

#include "table/gpu/device_table.hpp"

#ifndef RAPIDSMPF_HAVE_CUDA
namespace rapidsmpf::detail {

namespace {

[[noreturn]] void refuse() {
    throw std::runtime_error{"tables on a GPU are not supported: this build has no CUDA support"};
}

}  // namespace

void wait_for_producer(ArrowDeviceArray const& /*array*/, Stream /*stream*/) {
    refuse();
}

std::pair<std::shared_ptr<void>, std::int64_t> mark_for_consumer(Stream /*stream*/) {
    refuse();
}

std::vector<PackedData> partition_on_gpu(
    Table const& /*table*/, std::span<int const> /*key_columns*/, std::uint32_t /*num_partitions*/,
    BufferResource& /*br*/, std::uint64_t /*seed*/, std::span<std::uint32_t const> /*placement*/) {
    refuse();
}

std::vector<PackedData> partition_by_column_on_gpu(
    Table const& /*table*/, Column const& /*numbers*/, std::string const& /*name*/,
    std::uint32_t /*num_partitions*/, BufferResource& /*br*/, std::span<std::uint32_t const> /*placement*/) {
    refuse();
}

std::vector<PackedData> split_on_gpu(
    Table const& /*table*/, std::span<std::int64_t const> /*splits*/, BufferResource& /*br*/) {
    refuse();
}

PackedData concat_packed_on_gpu(
    Schema const& /*schema*/, std::span<Table const> /*tables*/, BufferResource& /*br*/,
    AllowOverbooking /*allow*/, Stream /*stream*/) {
    refuse();
}

void hash_rows_on_gpu(
    Table const& /*table*/, std::span<int const> /*key_columns*/, std::int64_t /*first*/,
    std::span<std::uint64_t> /*hashes*/, std::uint64_t /*seed*/) {
    refuse();
}

}  // namespace rapidsmpf::detail
#endif
