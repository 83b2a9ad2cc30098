// What a Build sink gives: rows, and hash tables over their keys. Made by one thread, probed by all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>  // libcudf's headers need it first
#include <vector>

#include <cudf/join/distinct_hash_join.hpp>
#include <cudf/join/filtered_join.hpp>
#include <cudf/join/hash_join.hpp>

#include <rapidsmpf/compute/detail/program.hpp>

#include "compute/operators.hpp"
#include "compute/string_codes.hpp"
#include "compute/tables.hpp"

namespace rapidsmpf::compute {

// Immutable once made, so thread-safe.
class JoinTable {
  public:
    struct Ways {
        bool matches{false};  // inner, left
        bool filters{false};  // semi, anti
        bool codes{true};     // strings may be coded; not where view() is read
    };

    // places: where the Build's columns are in `rows`; nothing for those that are not read. Waits until all is built.
    JoinTable(
        Chunk rows, std::vector<std::optional<std::int32_t>> places, std::vector<std::int32_t> const& keys,
        bool nulls_equal, Ways ways, Work& work);

    [[nodiscard]] std::int64_t num_rows() const noexcept { return rows_->num_rows(); }
    [[nodiscard]] std::int64_t num_bytes() const { return static_cast<std::int64_t>(rows_->alloc_size()); }
    [[nodiscard]] cudf::table_view view() const { return rows_->view(); }
    // Whether no two rows have the same keys.
    [[nodiscard]] bool is_distinct() const noexcept { return distinct_ != nullptr; }

    // The chunk joined; `keys` and `payload` as Probe has them.
    [[nodiscard]] Chunk probe(
        Chunk chunk, JoinKind kind, std::vector<std::int32_t> const& keys,
        std::vector<std::int32_t> const& payload, Work& work) const;

  private:
    struct Pairs {
        std::unique_ptr<RowMap> left;  // null: each row of the chunk once, in order
        std::unique_ptr<RowMap> right;
    };

    // Key columns of a chunk that can be compared with those of the table.
    struct ChunkKeys {
        cudf::table_view view;
        std::vector<ColumnPtr> made;  // what it refers to besides the chunk
    };

    void code_strings(Chunk& rows, std::vector<std::int32_t> const& keys, Work& work);
    [[nodiscard]] ChunkKeys keys_of(
        Chunk const& chunk, std::vector<std::int32_t> const& keys, Work& work) const;
    [[nodiscard]] TablePtr probe_rows(
        TablePtr chunk, cudf::table_view const& keys, JoinKind kind, cudf::table_view const& payload,
        Work& work) const;
    [[nodiscard]] Pairs match(cudf::table_view const& keys, JoinKind kind, Work& work) const;
    [[nodiscard]] TablePtr join_part(
        cudf::table_view const& chunk, JoinKind kind, cudf::table_view const& keys,
        cudf::table_view const& payload, Work& work) const;
    [[nodiscard]] TablePtr probe_empty(
        TablePtr chunk, JoinKind kind, cudf::table_view const& payload, Work& work) const;

    TablePtr rows_;
    Coding coding_;                          // of rows_
    std::vector<StringCodesPtr> key_codes_;  // of each key; null: it is not coded
    std::vector<std::optional<std::int32_t>> places_;
    std::unique_ptr<cudf::distinct_hash_join> distinct_;
    std::unique_ptr<cudf::hash_join> hash_;
    std::unique_ptr<cudf::filtered_join> filter_;
};

}  // namespace rapidsmpf::compute
