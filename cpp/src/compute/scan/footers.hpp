// Footers of Parquet files, each parsed once for as long as the file does not change.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cudf/io/parquet_schema.hpp>

#include <rapidsmpf/parquet/detail/footer_parser.hpp>

#include "compute/scan/data_file.hpp"

namespace rapidsmpf::compute {

using parquet::ColumnChunkPlace;
using parquet::ColumnRange;
using parquet::FooterError;
using parquet::parse_row_groups;
using parquet::RowGroups;

// What a footer says. `schema` is libcudf's own reading; its elements refer to each other by their places.
struct Footer {
    std::string path;
    FileVersion version;
    std::int32_t format_version{0};
    std::string created_by;
    std::vector<cudf::io::parquet::SchemaElement> schema;
    std::vector<std::size_t>
        leaves;  // places in `schema` of the columns that RowGroups::chunks has, in its order
    RowGroups row_groups;

    [[nodiscard]] ColumnChunkPlace const& chunk(std::size_t row_group, std::size_t leaf) const {
        return row_groups.chunks[row_group * leaves.size() + leaf];
    }
};

// Thread-safe: a footer that several threads ask for is parsed once.
class FooterCache {
  public:
    // The cache of this process, which lives as long as it is held, as by an engine.
    [[nodiscard]] static std::shared_ptr<FooterCache> shared();

    // max_bytes: the least recently used footers are dropped when all together take more.
    explicit FooterCache(std::size_t max_bytes = std::size_t{512} << 20);
    ~FooterCache();
    FooterCache(FooterCache const&) = delete;
    FooterCache& operator=(FooterCache const&) = delete;

    // The footers of the files as they are now; several are parsed at a time. Throws what names the file.
    [[nodiscard]] std::vector<std::shared_ptr<Footer const>> get(std::span<std::string const> paths);

    [[nodiscard]] std::size_t parsed_for_testing() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// The schema of some columns of a file as if it had no others, for a reader of these columns only.
struct ColumnSelection {
    std::vector<cudf::io::parquet::SchemaElement> schema;  // the root, then each column with what is below it
    std::vector<std::size_t> leaves;                       // numbers of the leaves in Footer::leaves
    std::vector<std::size_t> leaf_places;                  // of the same, in `schema`
    std::vector<std::size_t> leaf_columns;  // of the same: the number of the column that each is part of
};

// Throws std::runtime_error that names the file and the column which it does not have.
[[nodiscard]] ColumnSelection select_columns(Footer const& footer, std::span<std::string const> columns);

// What libcudf reads those columns and row groups with.
[[nodiscard]] cudf::io::parquet::FileMetaData reader_metadata(
    Footer const& footer, ColumnSelection const& selection, std::span<std::int32_t const> row_groups);

}  // namespace rapidsmpf::compute
