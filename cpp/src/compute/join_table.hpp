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
#include "compute/tables.hpp"

namespace rapidsmpf::compute {

// Immutable once made, so thread-safe.
class JoinTable {
  public:
    struct Ways {
        bool matches{false};  // inner, left
        bool filters{false};  // semi, anti
    };

    // places: where the Build's columns are in `rows`; nothing for those that are not read. Waits until all is built.
    JoinTable(
        TablePtr rows, std::vector<std::optional<std::int32_t>> places, std::vector<std::int32_t> const& keys,
        bool nulls_equal, Ways ways, Work& work);

    [[nodiscard]] std::int64_t num_rows() const noexcept { return rows_->num_rows(); }
    [[nodiscard]] std::int64_t num_bytes() const { return static_cast<std::int64_t>(rows_->alloc_size()); }
    [[nodiscard]] cudf::table_view view() const { return rows_->view(); }
    // Whether no two rows have the same keys.
    [[nodiscard]] bool is_distinct() const noexcept { return distinct_ != nullptr; }

    // The chunk joined; `keys` and `payload` as Probe has them.
    [[nodiscard]] TablePtr probe(
        TablePtr chunk, JoinKind kind, std::vector<std::int32_t> const& keys,
        std::vector<std::int32_t> const& payload, Work& work) const;

  private:
    struct Pairs {
        std::unique_ptr<RowMap> left;  // null: each row of the chunk once, in order
        std::unique_ptr<RowMap> right;
    };

    [[nodiscard]] Pairs match(cudf::table_view const& keys, JoinKind kind, Work& work) const;
    [[nodiscard]] TablePtr join_part(
        cudf::table_view const& chunk, JoinKind kind, std::vector<std::int32_t> const& keys,
        cudf::table_view const& payload, Work& work) const;
    [[nodiscard]] TablePtr probe_empty(
        TablePtr chunk, JoinKind kind, cudf::table_view const& payload, Work& work) const;

    TablePtr rows_;
    std::vector<std::optional<std::int32_t>> places_;
    std::unique_ptr<cudf::distinct_hash_join> distinct_;
    std::unique_ptr<cudf::hash_join> hash_;
    std::unique_ptr<cudf::filtered_join> filter_;
};

}  // namespace rapidsmpf::compute
