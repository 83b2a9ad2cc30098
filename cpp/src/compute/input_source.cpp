#include <algorithm>
#include <cstring>
#include <limits>
#include <list>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <cuda_runtime_api.h>
#include <cudf/interop.hpp>
#include <cudf/replace.hpp>
#include <cudf/scalar/scalar.hpp>
#include <cudf/unary.hpp>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/table/arrow_c.hpp>
#include <rapidsmpf/table/table.hpp>

#include "compute/sources.hpp"

namespace rapidsmpf::compute {

namespace {

// Fewer rows are not worth a chunk of their own.
constexpr std::int64_t small_input = 1'000'000;

using Bitmap = std::vector<std::uint8_t>;

// libcudf copies bitmaps in whole blocks of 64 bytes, as Arrow advises to allocate them. Others end where their last bit is,
// and from page-locked memory nothing behind its end is copied: these are put into longer ones, which `kept` keeps.
std::uint8_t const* in_whole_blocks(std::uint8_t const* bits, Column const& column, std::list<Bitmap>& kept) {
    constexpr std::size_t block{64};
    auto const bytes = static_cast<std::size_t>((column.offset + column.length + 7) / 8);
    auto& longer = kept.emplace_back((bytes / block + 1) * block);
    if (bytes > 0) {
        std::memcpy(longer.data(), bits, bytes);
    }
    return longer.data();
}

void put_bitmaps_in_whole_blocks(Field const& field, Column& column, std::list<Bitmap>& kept) {
    if (column.validity != nullptr) {
        column.validity = in_whole_blocks(column.validity, column, kept);
    }
    if (field.format() == "b") {
        auto const* const bits = reinterpret_cast<std::uint8_t const*>(column.values);
        column.values = reinterpret_cast<std::byte const*>(in_whole_blocks(bits, column, kept));
    }
    for (std::size_t i = 0; i < column.children.size(); ++i) {
        put_bitmaps_in_whole_blocks(field.children()[i], column.children[i], kept);
    }
}

// What CUDA takes an address for.
std::string kind_of_memory(void const* address) {
    cudaPointerAttributes attributes{};
    if (address == nullptr || cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
        (void)cudaGetLastError();  // so that no later call reports it
        return address == nullptr ? "none" : "unknown";
    }
    switch (attributes.type) {
        case cudaMemoryTypeUnregistered:
            return "pageable";
        case cudaMemoryTypeHost:
            return "page-locked";
        case cudaMemoryTypeDevice:
            return "device";
        default:
            return "managed";
    }
}

std::string describe(Field const& field, Column const& column) {
    return "column '" + field.name() + "' (" + field.format() + ", " + std::to_string(column.length)
           + " rows from row " + std::to_string(column.offset) + ", values in "
           + kind_of_memory(column.values) + " memory, validity in " + kind_of_memory(column.validity)
           + " memory)";
}

// One column of a table in host memory, on the device.
ColumnPtr import_column(Field field, Column column, std::shared_ptr<void const> owner, Work& work) {
    auto const rows = column.length;
    std::list<Bitmap> bitmaps;
    put_bitmaps_in_whole_blocks(field, column, bitmaps);
    std::vector<Field> fields;
    fields.push_back(std::move(field));
    Table const table{
        std::make_shared<Schema const>(std::move(fields)), {std::move(column)}, rows, std::move(owner)};
    ArrowSchemaOwner schema;
    ArrowArrayOwner array;
    table.export_schema(schema.out());
    table.export_array(array.out());
    try {
        auto columns = cudf::from_arrow(schema.get(), array.get(), work.stream(), work.mr())->release();
        work.synchronize();  // the copies read the array
        return std::move(columns.front());
    } catch (std::bad_alloc const&) {
        throw;
    } catch (std::exception const& error) {
        throw std::runtime_error{
            describe(table.schema()->fields().front(), table.columns().front())
            + " cannot be copied to the device: " + error.what()};
    }
}

// The values of a dictionary where the codes are.
ColumnPtr decode(
    Field const& field, Column const& column, std::shared_ptr<void const> const& owner, Work& work) {
    auto codes_column = column;
    codes_column.dictionary = nullptr;
    auto codes = cast_to(
        import_column(Field{field.name(), field.format()}, std::move(codes_column), owner, work),
        cudf::data_type{cudf::type_id::INT32}, work);
    auto const values = import_column(*field.dictionary(), *column.dictionary, owner, work);
    if (values->size() == 0) {
        return null_column(values->view(), codes->size(), work);
    }
    if (codes->null_count() > 0) {
        cudf::numeric_scalar<std::int32_t> const outside{
            std::numeric_limits<std::int32_t>::max(), true, work.stream(), work.mr()};
        codes = cudf::replace_nulls(codes->view(), outside, work.stream(), work.mr());
    }
    auto decoded = gather_rows(
        cudf::table_view{{values->view()}}, codes->view(), cudf::out_of_bounds_policy::NULLIFY, work);
    return std::move(decoded->release().front());
}

TablePtr import_table(Table const& table, Work& work) {
    std::vector<ColumnPtr> columns;
    for (std::size_t i = 0; i < table.num_columns(); ++i) {
        auto const& field = table.schema()->fields()[i];
        auto const& column = table.columns()[i];
        columns.push_back(
            field.dictionary() != nullptr ? decode(field, column, table.owner(), work)
                                          : import_column(field, column, table.owner(), work));
    }
    return std::make_unique<cudf::table>(std::move(columns), static_cast<cudf::size_type>(table.num_rows()));
}

class InputSource final : public ChunkSource {
  public:
    InputSource(std::shared_ptr<TableReader> input, std::size_t chunk_rows)
        : input_{std::move(input)},
          chunk_rows_{static_cast<std::int64_t>(std::clamp<std::size_t>(chunk_rows, 1, most_rows))} {}

    [[nodiscard]] std::optional<Chunk> next(Work& work) override {
        std::vector<Table> tables;
        Chunk chunk;
        {
            MutexLock const lock{mutex_};
            tables = pull();
            chunk.sequence = sequence_;
            sequence_ += tables.empty() ? 0 : 1;
        }
        if (tables.empty()) {
            return std::nullopt;
        }
        std::vector<TablePtr> parts;
        for (auto const& table : tables) {
            parts.push_back(import_table(table, work));
        }
        chunk.rows = concatenate(std::move(parts), "an input of the program", work);
        return chunk;
    }

    void close() noexcept override {
        {
            MutexLock const lock{mutex_};
            rest_.reset();
        }
        input_->close();
    }

  private:
    // Tables for a chunk; none at the end.
    [[nodiscard]] std::vector<Table> pull() RAPIDSMPF_REQUIRES(mutex_) {
        std::vector<Table> tables;
        std::int64_t rows{0};
        while (rows < std::min(small_input, chunk_rows_)) {
            auto table = rest_ ? std::exchange(rest_, std::nullopt) : input_->next();
            if (!table) {
                break;
            }
            if (table->num_rows() == 0) {
                continue;
            }
            if (table->num_rows() > 2 * chunk_rows_) {
                rest_ = table->slice(chunk_rows_, table->num_rows() - chunk_rows_);
                table = table->slice(0, chunk_rows_);
            }
            rows += table->num_rows();
            tables.push_back(std::move(*table));
        }
        return tables;
    }

    std::shared_ptr<TableReader> input_;
    std::int64_t chunk_rows_;
    Mutex mutex_;
    std::optional<Table> rest_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t sequence_ RAPIDSMPF_GUARDED_BY(mutex_){0};
};

}  // namespace

std::unique_ptr<ChunkSource> make_input_source(std::shared_ptr<TableReader> input, std::size_t chunk_rows) {
    return std::make_unique<InputSource>(std::move(input), chunk_rows);
}

}  // namespace rapidsmpf::compute
