#include "compute/scan/pass_decoder.hpp"

#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <cudf/io/experimental/hybrid_scan_multifile.hpp>
#include <cudf/io/parquet.hpp>
#include <cudf/table/table.hpp>

#include "compute/scan/fixed_width.hpp"

namespace rapidsmpf::compute {

namespace pq = cudf::io::parquet;

namespace {

// Says of the chunks that have been decompressed, which are in the order of the metadata, that they are not compressed.
void describe_plain_chunks(std::vector<pq::FileMetaData>& files, std::vector<DeviceChunk> const& chunks) {
    auto chunk = chunks.begin();
    for (auto& file : files) {
        for (auto& row_group : file.row_groups) {
            for (auto& column : row_group.columns) {
                if (!chunk->is_compressed) {
                    column.meta_data.codec = pq::Compression::UNCOMPRESSED;
                    column.meta_data.total_compressed_size = static_cast<std::int64_t>(chunk->bytes);
                    column.meta_data.total_uncompressed_size = static_cast<std::int64_t>(chunk->bytes);
                }
                ++chunk;
            }
        }
    }
}

// Changes the metadata of the columns that NumberedStrings has rewritten to INT32.
void describe_numbers(std::vector<pq::FileMetaData>& files, std::vector<bool> const& is_number) {
    for (auto& file : files) {
        auto const& tops = file.schema.front().children_idx;
        for (std::size_t column = 0; column < tops.size(); ++column) {
            if (is_number[column]) {
                NumberedStrings::describe(file.schema[static_cast<std::size_t>(tops[column])]);
            }
        }
        for (auto& row_group : file.row_groups) {
            for (auto& chunk : row_group.columns) {
                chunk.meta_data.type = file.schema[static_cast<std::size_t>(chunk.schema_idx)].type;
            }
        }
    }
}

// Decodes by libcudf's reader. `chunks` are in the order of each_chunk(), and `places` is parallel to them.
std::vector<std::unique_ptr<cudf::column>> decode_by_reader(
    Footers const& footers, ScanColumns const& columns, std::span<PassPart const> parts, std::int64_t rows,
    std::vector<DeviceChunk> const& chunks, std::span<PassChunk const> places,
    std::vector<bool> const& is_number, Work& work) {
    // The reader of this pass sees a file that has these row groups and columns only: to make it takes microseconds,
    // however large the file's footer is.
    std::vector<pq::FileMetaData> metadata;
    std::vector<std::vector<cudf::size_type>> numbers_in_reader;
    for (auto const& part : parts) {
        metadata.push_back(
            reader_metadata(*footers[part.file], columns.selections[part.file], part.row_groups));
        auto& in_reader = numbers_in_reader.emplace_back(part.row_groups.size());
        std::iota(in_reader.begin(), in_reader.end(), 0);
    }
    describe_plain_chunks(metadata, chunks);
    describe_numbers(metadata, is_number);
    auto const options = cudf::io::parquet_reader_options::builder().build();
    pq::experimental::hybrid_scan_multifile const reader{std::move(metadata), options};
    auto const ranges = reader.all_column_chunks_byte_ranges(numbers_in_reader, options).first;
    std::vector<cudf::device_span<std::uint8_t const>> spans;
    spans.reserve(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        if (ranges.size() != chunks.size() || ranges[i].offset() != places[i].place->offset()
            || static_cast<std::size_t>(ranges[i].size()) != chunks[i].bytes) {
            throw std::logic_error{"libcudf reads its column chunks from other places than its footer says"};
        }
        spans.emplace_back(chunks[i].data, chunks[i].bytes);
    }
    auto table =
        reader.materialize_all_columns(numbers_in_reader, spans, options, work.stream(), work.mr()).tbl;
    if (table->num_rows() != rows
        || table->num_columns() != static_cast<cudf::size_type>(columns.names.size())) {
        throw std::runtime_error{
            "its pages hold " + std::to_string(table->num_rows()) + " rows, its footer says "
            + std::to_string(rows)};
    }
    return table->release();
}

// Decodes the columns that are null pointers in `decoded`.
void decode_rest_by_reader(
    Footers const& footers, ScanColumns const& columns, std::span<PassPart const> parts, std::int64_t rows,
    std::vector<DeviceChunk> const& chunks, std::span<PassChunk const> places,
    std::vector<bool> const& is_number, std::vector<std::unique_ptr<cudf::column>>& decoded, Work& work) {
    std::vector<std::size_t> missing;
    ScanColumns selected;
    std::vector<bool> missing_is_number;
    for (std::size_t i = 0; i < decoded.size(); ++i) {
        if (decoded[i] == nullptr) {
            missing.push_back(i);
            selected.names.push_back(columns.names[i]);
            missing_is_number.push_back(is_number[i]);
        }
    }
    if (missing.empty()) {
        return;
    }
    if (missing.size() == decoded.size()) {
        decoded = decode_by_reader(footers, columns, parts, rows, chunks, places, is_number, work);
        return;
    }
    // A scan may have thousands of files, and a pass only needs those that it has row groups of.
    selected.selections.resize(footers.size());
    for (auto const& part : parts) {
        selected.selections[part.file] = select_columns(*footers[part.file], selected.names);
    }
    std::vector<DeviceChunk> missing_chunks;
    std::vector<PassChunk> missing_places;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        if (decoded[places[i].column] == nullptr) {
            missing_chunks.push_back(chunks[i]);
            missing_places.push_back(places[i]);
        }
    }
    auto read = decode_by_reader(
        footers, selected, parts, rows, missing_chunks, missing_places, missing_is_number, work);
    for (std::size_t i = 0; i < missing.size(); ++i) {
        decoded[missing[i]] = std::move(read[i]);
    }
}

}  // namespace

ScanColumns scan_columns(Footers const& footers, std::vector<std::string> names) {
    ScanColumns columns{.names = std::move(names), .selections = {}};
    columns.selections.reserve(footers.size());
    for (auto const& footer : footers) {
        columns.selections.push_back(select_columns(*footer, columns.names));
    }
    return columns;
}

DecodedColumns decode_columns(
    Footers const& footers, ScanColumns const& columns, std::span<PassPart const> parts, std::int64_t rows,
    std::vector<DeviceChunk> chunks, ScanSettings const& settings, NumberedStrings::CodesFor const& codes_for,
    Work& work) {
    std::vector<PassChunk> places;
    places.reserve(chunks.size());
    each_chunk(
        footers, columns, parts, [&](std::size_t file, std::size_t column, ColumnChunkPlace const& chunk) {
            auto const& selection = columns.selections[file];
            places.push_back(
                {&chunk,
                 &selection.schema[static_cast<std::size_t>(selection.schema[0].children_idx[column])],
                 column});
        });
    std::optional<PlainChunks> plain;
    std::optional<NumberedStrings> numbered;
    std::vector<bool> is_number(columns.names.size());
    std::vector<std::unique_ptr<cudf::column>> decoded(columns.names.size());
    if (settings.own_decoder) {
        plain = decompress_snappy(chunks, places, work);
        if (plain) {
            chunks = std::move(plain->chunks);
        }
        numbered = NumberedStrings::make(chunks, places, columns.names.size(), work);
        if (numbered) {
            is_number = numbered->columns();
        }
        decoded = decode_fixed_width(chunks, places, is_number, rows, work);
    }
    decode_rest_by_reader(footers, columns, parts, rows, chunks, places, is_number, decoded, work);
    Coding coding;
    if (numbered) {
        coding = numbered->put_strings(decoded, codes_for, work);
    }
    return {.columns = std::move(decoded), .coding = std::move(coding)};
}

}  // namespace rapidsmpf::compute
