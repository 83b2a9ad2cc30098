// Random tables of every type, seeded, and a plain reading of their rows to compare by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::testing {

// Blocks of exactly the size asked for, so that a sanitizer sees one byte too many.
class Memory {
  public:
    [[nodiscard]] std::byte* allocate(std::size_t size) {
        blocks_.push_back(std::make_unique<std::byte[]>(size));
        return blocks_.back().get();
    }
    template <typename T>
    [[nodiscard]] T* copy(std::vector<T> const& values) {
        auto* const block = allocate(values.size() * sizeof(T));
        if (!values.empty()) {
            std::memcpy(block, values.data(), values.size() * sizeof(T));
        }
        return reinterpret_cast<T*>(block);
    }

  private:
    std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

class RandomTables {
  public:
    explicit RandomTables(std::uint64_t seed) : random_{seed} {}

    // `depth`: how deeply lists and structs may nest.
    [[nodiscard]] Field field(std::string name, int depth);
    [[nodiscard]] std::shared_ptr<Schema const> schema(std::size_t num_columns, int depth = 3);
    // Of columns that a GPU takes: all but string views.
    [[nodiscard]] std::shared_ptr<Schema const> gpu_schema(std::size_t num_columns, int depth = 3);
    [[nodiscard]] Table table(std::shared_ptr<Schema const> const& schema, std::int64_t rows);
    [[nodiscard]] std::int64_t number(std::int64_t low, std::int64_t high);

  private:
    [[nodiscard]] Column column(
        Field const& field, std::int64_t rows, Memory& memory, bool no_offset = false);
    [[nodiscard]] std::string text(bool is_text);
    void fill_validity(Column& column, Memory& memory);
    void fill_text(Field const& field, Column& column, Memory& memory);
    template <typename Offset>
    void fill_offsets(Field const& field, Column& column, Memory& memory);

    std::mt19937_64 random_;
};

// A row as text: equal rows of equal types give equal texts, whatever their layout, codes and offsets.
[[nodiscard]] std::string row_text(Table const& table, std::int64_t row);
[[nodiscard]] std::vector<std::string> row_texts(Table const& table);

// Shorthands for tests that need certain values.
[[nodiscard]] Table int64_table(std::vector<std::int64_t> const& values, std::string name = "x");
// Of text in the layout of `format` (u, U, vu); nullptr is null.
[[nodiscard]] Table text_table(std::vector<char const*> const& values, std::string format = "vu");
// Of fixed-width values given by their bytes.
template <typename T>
[[nodiscard]] Table fixed_table(
    std::string format, std::vector<T> const& values, std::vector<bool> const& valid = {});
// Categories "c0", "c1", ... as codes in the order given by `order`; a negative row is null.
[[nodiscard]] Table categorical_table(
    std::vector<int> const& rows, std::vector<int> const& order, std::int64_t flags = 2,
    std::string code_format = "I");

[[nodiscard]] std::uint8_t* make_bits(std::vector<bool> const& bits, Memory& memory);

template <typename T>
Table fixed_table(std::string format, std::vector<T> const& values, std::vector<bool> const& valid) {
    auto const memory = std::make_shared<Memory>();
    Column column;
    column.length = static_cast<std::int64_t>(values.size());
    column.values = reinterpret_cast<std::byte const*>(memory->copy(values));
    for (auto const is_valid : valid) {
        column.null_count += is_valid ? 0 : 1;
    }
    if (column.null_count > 0) {
        column.validity = make_bits(valid, *memory);
    }
    auto const schema = std::make_shared<Schema const>(std::vector{Field{"x", std::move(format)}});
    return Table{schema, {column}, column.length, memory};
}

}  // namespace rapidsmpf::testing
