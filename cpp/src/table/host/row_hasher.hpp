// Hashes the rows of one table block by block, column by column.
//
// Holds what is worth keeping between blocks (the words of dictionary values). Refers to the table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::detail {

class RowHasher {
  public:
    // Throws std::out_of_range for a column that is not there. Negative numbers are not columns.
    RowHasher(Table const& table, std::span<int const> key_columns, std::uint64_t seed);

    // The hashes of rows [first, first + hashes.size()).
    void operator()(std::int64_t first, std::span<std::uint64_t> hashes) const;
    // The partitions of rows [first, first + partitions.size()); `scratch` spares the allocation.
    void partitions(
        std::int64_t first, std::uint32_t num_partitions, std::span<std::uint32_t> partitions,
        std::vector<std::uint64_t>& scratch) const;

  private:
    struct Key {
        Field const* field;
        Column const* column;
        std::vector<std::uint64_t> dictionary_words;  // empty: hash the values row by row
    };

    template <typename Use>
    static bool with_words_of(Key const& key, Use const& use);
    static void take_in_key(Key const& key, std::int64_t first, std::span<std::uint64_t> states);
    void states(std::int64_t first, std::span<std::uint64_t> states) const;
    [[nodiscard]] bool partitions_of_one_key(
        std::int64_t first, std::uint32_t num_partitions, std::span<std::uint32_t> partitions) const;

    std::vector<Key> keys_;
    std::uint64_t seed_;
};

// The state after taking in one value of any type. `row` is within the column.
[[nodiscard]] std::uint64_t hash_value(
    Field const& field, Column const& column, std::int64_t row, std::uint64_t state);

// Whether two values of the same type are the same (nulls are; floats by their bytes).
[[nodiscard]] bool same_value(
    Field const& field, Column const& a, std::int64_t row_a, Column const& b, std::int64_t row_b);

}  // namespace rapidsmpf::detail
