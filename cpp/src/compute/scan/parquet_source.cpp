#include "compute/scan/parquet_source.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <ranges>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <cuda_runtime_api.h>
#include <cudf/column/column.hpp>
#include <cudf/column/column_factories.hpp>
#include <cudf/io/experimental/hybrid_scan_multifile.hpp>
#include <cudf/io/parquet.hpp>
#include <cudf/table/table.hpp>
#include <cudf/unary.hpp>
#include <cudf/utilities/error.hpp>
#include <rmm/error.hpp>

#include "compute/scan/column_types.hpp"
#include "compute/scan/passes.hpp"
#include "compute/scan/plain_chunks.hpp"
#include "compute/scan/read_ahead.hpp"

namespace rapidsmpf::compute {

namespace pq = cudf::io::parquet;

namespace {

// Row groups to read of each file: those that the scan names, or all; none without rows.
std::vector<std::vector<std::int32_t>> chosen_row_groups(
    ParquetScan const& scan, std::vector<std::shared_ptr<Footer const>> const& footers) {
    std::vector<std::vector<std::int32_t>> chosen;
    for (std::size_t file = 0; file < footers.size(); ++file) {
        auto const& rows = footers[file]->row_groups.rows;
        auto numbers = scan.files[file].row_groups;
        if (numbers.empty()) {
            numbers.resize(rows.size());
            std::iota(numbers.begin(), numbers.end(), 0);
        }
        for (auto const number : numbers) {
            if (number < 0 || static_cast<std::size_t>(number) >= rows.size()) {
                throw std::invalid_argument{
                    footers[file]->path + " has no row group " + std::to_string(number) + ", but "
                    + std::to_string(rows.size())};
            }
        }
        std::erase_if(numbers, [&](auto number) { return rows[static_cast<std::size_t>(number)] == 0; });
        chosen.push_back(std::move(numbers));
    }
    return chosen;
}

// What a column chunk takes when it is decoded, about.
std::int64_t decoded_bytes(ColumnChunkPlace const& place) {
    switch (static_cast<pq::Type>(place.physical_type)) {
        case pq::Type::BOOLEAN:
            return place.values;
        case pq::Type::INT32:
        case pq::Type::FLOAT:
            return 4 * place.values;
        case pq::Type::INT64:
        case pq::Type::DOUBLE:
        case pq::Type::INT96:
            return 8 * place.values;
        case pq::Type::FIXED_LEN_BYTE_ARRAY:
            return std::max(16 * place.values, place.uncompressed_bytes);
        default:
            return 4 * place.values + std::max(place.text_bytes, place.uncompressed_bytes);
    }
}

// Whether one reader takes both: as libcudf compares schemas of several files, and nulls and units, too.
bool same_schema(ColumnSelection const& a, ColumnSelection const& b) {
    auto const logical = [](pq::SchemaElement const& element) {
        return element.logical_type.has_value() ? static_cast<int>(element.logical_type->type) : -1;
    };
    auto const unit = [](pq::SchemaElement const& element) {
        return element.logical_type.has_value() && element.logical_type->timestamp_type.has_value()
                   ? static_cast<int>(element.logical_type->timestamp_type->unit.type)
                   : -1;
    };
    auto const same = [&](pq::SchemaElement const& x, pq::SchemaElement const& y) {
        return x == y && x.max_definition_level == y.max_definition_level
               && x.max_repetition_level == y.max_repetition_level && x.arrow_type == y.arrow_type
               && logical(x) == logical(y) && unit(x) == unit(y);
    };
    // The first element is the root, whose name means nothing.
    return std::ranges::equal(a.schema | std::views::drop(1), b.schema | std::views::drop(1), same);
}

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

class ParquetSource final : public ChunkSource {
  public:
    ParquetSource(
        ParquetScan const& scan, ScanSettings const& settings, MappedFiles& files, FooterCache& footers)
        : settings_{settings} {
        std::vector<std::string> paths;
        for (auto const& file : scan.files) {
            paths.push_back(file.path);
        }
        footers_ = footers.get(paths);
        auto const chosen = chosen_row_groups(scan, footers_);

        // A column that is asked for twice is read once.
        for (std::size_t i = 0; i < scan.columns.size(); ++i) {
            auto const found = std::ranges::find(columns_, scan.columns[i]);
            places_.push_back(static_cast<std::size_t>(found - columns_.begin()));
            if (found == columns_.end()) {
                columns_.push_back(scan.columns[i]);
            }
            types_.push_back(cudf_type(scan.types.at(i)));
        }

        std::size_t schema = 0;
        for (std::size_t file = 0; file < footers_.size(); ++file) {
            selections_.push_back(select_columns(*footers_[file], columns_));
            if (file > 0 && !same_schema(selections_[file - 1], selections_[file])) {
                ++schema;
            }
            for (auto const number : chosen[file]) {
                auto const group = static_cast<std::size_t>(number);
                std::int64_t bytes = 0;
                for (auto const leaf : selections_[file].leaves) {
                    bytes += decoded_bytes(footers_[file]->chunk(group, leaf));
                }
                row_groups_.push_back(
                    RowGroupSize{
                        file, number, footers_[file]->row_groups.rows[group], bytes,
                        columns_.empty() ? 0 : schema});
            }
        }
        passes_ = with_small_edges(
            row_groups_, make_passes(row_groups_, settings.pass_rows, settings.pass_bytes),
            settings.edge_rows);
        if (columns_.empty()) {
            return;
        }
        std::vector<InputFile> inputs;
        for (auto const& footer : footers_) {
            inputs.push_back(InputFile{footer->path, footer->version});
        }
        read_ahead_.emplace(
            std::move(inputs), passes_.size(), [this](std::size_t pass) { return lay_out(chunks(pass)); },
            settings, files);
    }

    void start(std::function<void()> when_read) override {
        if (read_ahead_) {
            read_ahead_->start(std::move(when_read));
        } else {
            when_read();
        }
    }

    std::optional<Chunk> next(Work& work) override {
        if (columns_.empty()) {
            return rows_only(work);
        }
        auto const loaded = read_ahead_->take(work.stream());
        if (!loaded) {
            return std::nullopt;
        }
        try {
            auto rows = decode(*loaded, work);
            loaded->check_files();
            return Chunk{std::move(rows), loaded->pass()};
        } catch (std::bad_alloc const&) {
            throw;
        } catch (cudf::cuda_error const&) {
            throw;
        } catch (rmm::cuda_error const&) {
            throw;
        } catch (std::exception const& error) {
            loaded->check_files();  // which says more, if that is the reason
            throw std::runtime_error{
                "cannot decode " + files_of(passes_[loaded->pass()]) + ": " + error.what()};
        }
    }

    void close() noexcept override {
        if (read_ahead_) {
            read_ahead_->close();
        }
    }

  private:
    // The row groups of a pass, file by file: calls take(file, numbers).
    template <typename Take>
    void by_file(Pass const& pass, Take&& take) const {
        std::vector<std::int32_t> numbers;
        for (auto i = pass.begin; i < pass.end;) {
            auto const file = row_groups_[i].file;
            numbers.clear();
            for (; i < pass.end && row_groups_[i].file == file; ++i) {
                numbers.push_back(row_groups_[i].row_group);
            }
            take(file, numbers);
        }
    }

    // The column chunks of a pass, in the order of libcudf's reader: calls take(file, place).
    template <typename Take>
    void each_chunk(std::size_t pass, Take&& take) const {
        by_file(passes_[pass], [&](std::size_t file, std::vector<std::int32_t> const& numbers) {
            for (auto const number : numbers) {
                for (auto const leaf : selections_[file].leaves) {
                    take(file, footers_[file]->chunk(static_cast<std::size_t>(number), leaf));
                }
            }
        });
    }

    [[nodiscard]] std::vector<ChunkRange> chunks(std::size_t pass) const {
        std::vector<ChunkRange> ranges;
        each_chunk(pass, [&](std::size_t file, ColumnChunkPlace const& chunk) {
            ranges.push_back(
                ChunkRange{
                    file, static_cast<std::uint64_t>(chunk.offset()),
                    static_cast<std::size_t>(chunk.compressed_bytes)});
        });
        return ranges;
    }

    [[nodiscard]] std::unique_ptr<cudf::table> decode(ReadAhead::Loaded const& loaded, Work& work) const {
        auto const& pass = passes_[loaded.pass()];
        auto const expected = chunks(loaded.pass());
        std::vector<DeviceChunk> on_device;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            on_device.push_back(
                DeviceChunk{.data = loaded.data() + loaded.layout().places[i], .bytes = expected[i].bytes});
        }
        std::optional<PlainChunks> plain;
        if (settings_.divide_pages) {
            std::vector<ColumnChunkPlace const*> places;
            each_chunk(
                loaded.pass(), [&](std::size_t, ColumnChunkPlace const& chunk) { places.push_back(&chunk); });
            plain = decompress_snappy(on_device, places, work);
        }
        auto const& to_decode = plain ? plain->chunks : on_device;
        // The reader of this pass sees a file that has these row groups and columns only: to make it takes microseconds,
        // however large the file's footer is.
        std::vector<pq::FileMetaData> metadata;
        std::vector<std::vector<cudf::size_type>> numbers_in_reader;
        by_file(pass, [&](std::size_t file, std::vector<std::int32_t> const& numbers) {
            metadata.push_back(reader_metadata(*footers_[file], selections_[file], numbers));
            auto& in_reader = numbers_in_reader.emplace_back(numbers.size());
            std::iota(in_reader.begin(), in_reader.end(), 0);
        });
        describe_plain_chunks(metadata, to_decode);
        auto const options = cudf::io::parquet_reader_options::builder().build();
        pq::experimental::hybrid_scan_multifile const reader{std::move(metadata), options};
        auto const ranges = reader.all_column_chunks_byte_ranges(numbers_in_reader, options).first;
        std::vector<cudf::device_span<std::uint8_t const>> spans;
        spans.reserve(expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
            if (ranges.size() != expected.size()
                || static_cast<std::uint64_t>(ranges[i].offset()) != expected[i].offset
                || static_cast<std::size_t>(ranges[i].size()) != to_decode[i].bytes) {
                throw std::logic_error{
                    "libcudf reads its column chunks from other places than its footer says"};
            }
            spans.emplace_back(to_decode[i].data, to_decode[i].bytes);
        }
        auto table =
            reader.materialize_all_columns(numbers_in_reader, spans, options, work.stream(), work.mr()).tbl;
        if (table->num_rows() != pass.rows
            || table->num_columns() != static_cast<cudf::size_type>(columns_.size())) {
            throw std::runtime_error{
                "its pages hold " + std::to_string(table->num_rows()) + " rows, its footer says "
                + std::to_string(pass.rows)};
        }
        return shaped(table->release(), work);
    }

    // In the order and with the types that the scan gives.
    [[nodiscard]] std::unique_ptr<cudf::table> shaped(
        std::vector<std::unique_ptr<cudf::column>> read, Work& work) const {
        std::vector<std::unique_ptr<cudf::column>> columns;
        for (std::size_t i = 0; i < places_.size(); ++i) {
            auto& column = read[places_[i]];
            auto const from = column->type();
            if (from != types_[i]) {
                if (!holds_all_values(from, types_[i])) {
                    throw std::runtime_error{
                        "column '" + columns_[places_[i]] + "' is " + type_name(from) + " there, where "
                        + type_name(types_[i]) + " is expected"};
                }
                columns.push_back(cudf::cast(column->view(), types_[i], work.stream(), work.mr()));
            } else if (
                std::find(places_.begin() + static_cast<std::ptrdiff_t>(i) + 1, places_.end(), places_[i])
                != places_.end()) {
                columns.push_back(std::make_unique<cudf::column>(*column, work.stream(), work.mr()));
            } else {
                columns.push_back(std::move(column));
            }
        }
        return std::make_unique<cudf::table>(std::move(columns));
    }

    // A scan without columns gives rows to count: nothing is read.
    [[nodiscard]] std::optional<Chunk> rows_only(Work& work) {
        auto const number = next_pass_.fetch_add(1);
        if (number >= passes_.size()) {
            return std::nullopt;
        }
        auto column = cudf::make_numeric_column(
            cudf::data_type{cudf::type_id::INT8}, static_cast<cudf::size_type>(passes_[number].rows),
            cudf::mask_state::UNALLOCATED, work.stream(), work.mr());
        CUDF_CUDA_TRY(cudaMemsetAsync(
            column->mutable_view().head(), 0, static_cast<std::size_t>(passes_[number].rows),
            work.stream().get()));
        std::vector<std::unique_ptr<cudf::column>> columns;
        columns.push_back(std::move(column));
        return Chunk{std::make_unique<cudf::table>(std::move(columns)), number};
    }

    [[nodiscard]] std::string files_of(Pass const& pass) const {
        auto const& first = row_groups_[pass.begin];
        auto const& last = row_groups_[pass.end - 1];
        auto const& path = footers_[first.file]->path;
        if (first.file != last.file) {
            return path + " to " + footers_[last.file]->path;
        }
        return path + ", row groups " + std::to_string(first.row_group) + " to "
               + std::to_string(last.row_group);
    }

    ScanSettings const settings_;
    std::vector<std::shared_ptr<Footer const>> footers_;
    std::vector<std::string> columns_;         // that are read
    std::vector<std::size_t> places_;          // in columns_, of those that are given
    std::vector<cudf::data_type> types_;       // of those that are given
    std::vector<ColumnSelection> selections_;  // of each file
    std::vector<RowGroupSize> row_groups_;
    std::vector<Pass> passes_;
    std::atomic<std::size_t> next_pass_{0};
    std::optional<ReadAhead> read_ahead_;
};

}  // namespace

std::unique_ptr<ChunkSource> make_parquet_source(
    ParquetScan const& scan, ScanSettings const& settings, MappedFiles& files, FooterCache& footers) {
    return std::make_unique<ParquetSource>(scan, settings, files, footers);
}

}  // namespace rapidsmpf::compute
