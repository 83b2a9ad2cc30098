// Small tables for tests, and what is in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/table.hpp>
#include <rapidsmpf/table/table_stream.hpp>

namespace rapidsmpf::streaming::testing {

// A row: int64 "key", utf8 "text", uint32 "target".
struct Row {
    Row(std::int64_t key_, std::string text_, std::uint32_t target_ = 0)
        : key{key_}, text{std::move(text_)}, target{target_} {}
    std::int64_t key;
    std::string text;
    std::uint32_t target;
    friend bool operator==(Row const&, Row const&) = default;
    friend auto operator<=>(Row const&, Row const&) = default;
};
using Rows = std::vector<Row>;

[[nodiscard]] std::shared_ptr<Schema const> row_schema();
[[nodiscard]] Table make_table(Rows const& rows);
// The rows of a table with the columns "key" and "text", and "target" if it is there.
[[nodiscard]] Rows rows_of(Table const& table);
void append(Rows& rows, Table const& table);

// Rows with keys first, first + 1, ..., texts that name them, and targets key % targets.
[[nodiscard]] Rows count_rows(std::int64_t first, std::int64_t count, std::uint32_t targets = 1);

// Chunks of `lengths` rows each, which together are count_rows(0, their sum).
[[nodiscard]] std::vector<PackedData> packed_chunks(
    std::vector<std::int64_t> const& lengths, BufferResource& resource);

// A stream of the tables; after them it fails with `error` unless that is empty. `released` is set to true when
// the consumer lets go of the stream.
[[nodiscard]] ArrowStreamOwner stream_of(
    std::vector<Table> tables, std::string error = "", std::shared_ptr<bool> released = nullptr);
// The rows split into tables of `rows_per_table`.
[[nodiscard]] ArrowStreamOwner stream_of_rows(Rows const& rows, std::size_t rows_per_table);
// All rows that a stream gives. Throws what TableReader throws.
[[nodiscard]] Rows read_rows(ArrowStreamOwner stream);

}  // namespace rapidsmpf::streaming::testing
