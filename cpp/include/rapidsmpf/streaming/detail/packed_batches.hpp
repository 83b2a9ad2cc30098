// From received chunks to batches of a bounded size.
//
// Chunks have all sizes; with many ranks and partitions most are tiny. Small neighbours are concatenated,
// large ones are handed out in slices that share the chunk's memory, which is freed with the last of them.
// Chunks that wait for their turn may be spilled, and are read back a little ahead of it.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::streaming {

class PackedBatches {
  public:
    // Chunks must have this schema.
    PackedBatches(
        std::shared_ptr<Schema const> schema, std::shared_ptr<BufferResource> resource,
        BatchSizes const& sizes = BatchSizes());

    // Appends chunks; their rows keep their order.
    void add(std::vector<PackedData> chunks);
    // Whether next() has nothing to give.
    [[nodiscard]] bool empty() const noexcept { return chunks_.empty() && slices_.empty(); }
    // The next batch, nothing when all rows have been handed out. Throws FormatError for a malformed chunk,
    // std::invalid_argument for one of another schema.
    [[nodiscard]] std::optional<Table> next();

  private:
    struct Chunk {
        Chunk(PackedData packed, SpillableBuffer::NextUse next_use)
            : metadata{std::move(packed.metadata)}, data{std::move(packed.data), next_use} {}
        std::vector<std::uint8_t> metadata;
        SpillableBuffer data;
    };
    // How many chunks make the next batch.
    [[nodiscard]] std::size_t next_group() const;
    // Has the next `taken` chunks read back from disk, and as many of those behind them as there is memory for.
    void read_ahead(std::size_t taken);
    // The first chunk, where the CPU can read it.
    [[nodiscard]] PackedData take_first();
    [[nodiscard]] Table concatenate(std::vector<PackedData> group);

    std::shared_ptr<Schema const> schema_;
    std::shared_ptr<BufferResource> resource_;
    BatchSizes sizes_;
    std::deque<Chunk> chunks_;
    SpillableBuffer::NextUse added_{0};
    std::deque<Table> slices_;
};

}  // namespace rapidsmpf::streaming
