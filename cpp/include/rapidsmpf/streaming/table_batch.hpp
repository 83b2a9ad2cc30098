// Tables as messages: how batches of rows travel between actors.
//
// A TableBatch is one or more tables of one schema that are to be treated as one: a source groups small tables
// without copying them, and the consumer concatenates them. Tables are views of memory that a query engine or a
// received chunk owns: a copy of them shares it. Where they wait and memory is short, they are packed, moved to a lower
// tier, and the memory that they share is released.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/streaming/message.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::streaming {

class TableBatch {
  public:
    // Throws std::invalid_argument when there is no table.
    explicit TableBatch(std::vector<Table> tables);
    explicit TableBatch(Table table);

    [[nodiscard]] std::vector<Table> const& tables() const noexcept { return tables_; }
    [[nodiscard]] std::int64_t num_rows() const noexcept { return num_rows_; }
    [[nodiscard]] std::size_t byte_size() const noexcept { return byte_size_; }
    // The rows as one table; copies nothing when there is one table. Throws as concat().
    [[nodiscard]] Table combine(BufferResource& resource) const;

  private:
    std::vector<Table> tables_;
    std::int64_t num_rows_;
    std::size_t byte_size_;
};

template <>
struct PayloadTraits<Table> {
    [[nodiscard]] static ContentDescription describe(Table const& payload) {
        auto const type = payload.place() == TablePlace::gpu ? MemoryType::DEVICE : MemoryType::HOST;
        return {type, payload.byte_size(), Spillable::yes, static_cast<std::uint64_t>(payload.num_rows())};
    }
    static std::size_t spill(Table& /*payload*/) { return 0; }
    [[nodiscard]] static Packing packing(Table const& payload) noexcept {
        return payload.num_rows() > 0 ? Packing::copies : Packing::never;
    }
    [[nodiscard]] static PackedData packed_copy(Table const& payload, BufferResource& resource);
    // On the device again if it was there.
    [[nodiscard]] static Table unpack(PackedData&& packed);
};

template <>
struct PayloadTraits<TableBatch> {
    [[nodiscard]] static ContentDescription describe(TableBatch const& payload) noexcept {
        auto const is_on_gpu = payload.tables().front().place() == TablePlace::gpu;
        return {
            is_on_gpu ? MemoryType::DEVICE : MemoryType::HOST, payload.byte_size(), Spillable::yes,
            static_cast<std::uint64_t>(payload.num_rows())};
    }
    static std::size_t spill(TableBatch& /*payload*/) { return 0; }
    [[nodiscard]] static Packing packing(TableBatch const& payload) noexcept {
        return payload.num_rows() > 0 ? Packing::copies : Packing::never;
    }
    // They come back as one table.
    [[nodiscard]] static PackedData packed_copy(TableBatch const& payload, BufferResource& resource) {
        return PayloadTraits<Table>::packed_copy(payload.combine(resource), resource);
    }
    [[nodiscard]] static TableBatch unpack(PackedData&& packed) {
        return TableBatch{PayloadTraits<Table>::unpack(std::move(packed))};
    }
};

// The sizes that batches are brought to: smaller ones are grouped, larger ones split.
struct BatchSizes {
    BatchSizes() {}  // user-written: travels through coroutines, not an aggregate

    // A group is closed when it has this many rows or bytes.
    std::int64_t enough_rows{std::int64_t{1} << 16};
    std::size_t enough_bytes{std::size_t{4} << 20};
    // No batch has more rows than this, nor (as far as rows are of equal size) bytes.
    std::int64_t most_rows{std::int64_t{1} << 18};
    std::size_t most_bytes{std::size_t{32} << 20};

    // Throws std::invalid_argument unless all are positive.
    void validate() const;
};

// The table in slices that keep to the upper limits; the table itself when it does. No rows: nothing.
[[nodiscard]] std::vector<Table> split_table(Table const& table, BatchSizes const& sizes);

}  // namespace rapidsmpf::streaming
