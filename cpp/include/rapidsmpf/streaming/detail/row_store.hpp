// Rows that stay on this rank and are read several times.
//
// A RowStore takes the chunks of a partition of a shuffle, which may be spilled while they are not read. Each output of it
// reads all rows, a copy of a few chunks at a time; several may do so at once, and none changes the store. The store owns
// the chunks and lives as long as the last of its outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>
#include <rapidsmpf/streaming/detail/packed_batches.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>
#include <rapidsmpf/table/arrow_c.hpp>
#include <rapidsmpf/table/schema.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::streaming {

class RowStore {
  public:
    // Chunks must have this schema; their order is that of the rows. Throws FormatError for a malformed one.
    RowStore(
        std::shared_ptr<Schema const> schema, std::shared_ptr<BufferResource> resource,
        std::vector<PackedData> chunks);
    RowStore(RowStore const&) = delete;
    RowStore& operator=(RowStore const&) = delete;
    ~RowStore() = default;

    [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
    // The approximate size of the rows once they are unpacked.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::size_t num_chunks() const noexcept { return chunks_.size(); }
    [[nodiscard]] std::shared_ptr<Schema const> const& schema() const noexcept { return schema_; }
    [[nodiscard]] std::shared_ptr<BufferResource> const& resource() const noexcept { return resource_; }
    [[nodiscard]] std::size_t chunk_bytes(std::size_t chunk) const { return chunks_.at(chunk)->data.size(); }
    // Has chunks read back from disk in the background; without overbooking, as many as there is memory for.
    void fetch(std::size_t begin, std::size_t end, AllowOverbooking allow);
    // A copy in memory; waits for the disk. Thread-safe.
    [[nodiscard]] PackedData copy(std::size_t chunk);
    // All chunks, wherever their bytes are; the store has no rows any more. Throws std::logic_error when one is being copied.
    [[nodiscard]] std::vector<PackedData> release();

  private:
    struct Chunk {
        Chunk(PackedData packed, SpillableBuffer::NextUse next_use)
            : metadata{std::move(packed.metadata)}, data{std::move(packed.data), next_use} {}
        std::vector<std::uint8_t> metadata;
        SpillableBuffer data;
    };

    std::shared_ptr<Schema const> schema_;
    std::shared_ptr<BufferResource> resource_;
    std::vector<std::unique_ptr<Chunk>> chunks_;
    std::int64_t rows_{0};
    std::size_t bytes_{0};
};

enum class StoreUse : std::uint8_t {
    read,  // the store keeps its rows
    take,  // the memory of a batch is free when the batch is
};

// Reads the rows of a store once. Not thread-safe.
class RowStoreOutput {
  public:
    RowStoreOutput(std::shared_ptr<RowStore> store, StoreUse use, BatchSizes const& sizes = BatchSizes());

    // The next batch; nothing at the end.
    [[nodiscard]] std::optional<Table> next();

  private:
    // Behind the chunks from `begin` on that are read together.
    [[nodiscard]] std::size_t end_of_batch(std::size_t begin) const;

    std::shared_ptr<RowStore> store_;  // none once its last row was taken
    StoreUse use_;
    BatchSizes sizes_;
    PackedBatches batches_;
    std::size_t taken_{0};  // chunks
};

// All rows of a store as a stream, in batches of bounded size.
[[nodiscard]] ArrowStreamOwner row_store_stream(
    std::shared_ptr<RowStore> store, StoreUse use, BatchSizes const& sizes = BatchSizes());

}  // namespace rapidsmpf::streaming
