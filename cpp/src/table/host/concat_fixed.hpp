// Putting many small packed tables together where that is plain: all columns are of fixed width and no row is null.
//
// Thousands of pieces of a few hundred bytes each (a table of many partitions) cost more to describe as tables than to copy. So no
// tables are made of them here: each is a few pointers. Everything else goes through the Packer, or GpuConcat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/table/table.hpp>

#include "table/packed/packed_format.hpp"

namespace rapidsmpf::detail {

class FixedConcat {
  public:
    // Whether tables with these columns may be concatenated here.
    [[nodiscard]] static bool takes(Schema const& schema);

    explicit FixedConcat(std::shared_ptr<Schema const> schema);

    // Looks at the next part, whose metadata these are; its data is not read. False when it has nulls or is malformed; then
    // no more are added.
    [[nodiscard]] bool add(PackedParts const& parts, std::span<std::byte const> data);
    // The rows of all parts that were added; `parts` are these, in their order. Frees each when it is copied.
    [[nodiscard]] Table finish(
        std::vector<PackedData>&& parts, BufferResource& br, AllowOverbooking allow) &&;
    // The same where all are in the memory of a GPU; enqueued on `stream`.
    [[nodiscard]] Table finish_on_gpu(BufferResource& br, AllowOverbooking allow, Stream stream) &&;

  private:
    // Where the columns of the whole begin, and behind them where the last one ends.
    [[nodiscard]] std::vector<std::size_t> place() const;
    [[nodiscard]] std::size_t bytes_of(std::size_t part, std::size_t column) const;
    [[nodiscard]] Table table_in(
        std::shared_ptr<Buffer> buffer, std::vector<std::size_t> const& begins, TablePlace place) const;
    // What is copied first of it.
    void prefetch_start(std::size_t part) const;
    // Copies all parts, column by column to where each begins, and frees them.
    template <typename Writer>
    void copy_to(std::span<PackedData> parts, std::byte* base, std::vector<std::size_t> const& begins) const;

    std::shared_ptr<Schema const> schema_;
    std::vector<std::int64_t> rows_;        // by part
    std::vector<std::byte const*> values_;  // by part, then column
    std::int64_t num_rows_{0};
};

}  // namespace rapidsmpf::detail
