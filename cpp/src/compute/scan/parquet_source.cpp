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
#include <cudf/io/parquet_schema.hpp>
#include <cudf/table/table.hpp>
#include <cudf/unary.hpp>
#include <cudf/utilities/error.hpp>
#include <rmm/error.hpp>

#include <rapidsmpf/core/mutex.hpp>

#include "compute/scan/column_types.hpp"
#include "compute/scan/pass_decoder.hpp"
#include "compute/scan/passes.hpp"
#include "compute/scan/plain_chunks.hpp"
#include "compute/scan/read_ahead.hpp"
#include "compute/string_codes.hpp"

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

// The row groups of a pass, file by file.
std::vector<PassPart> parts_of(Pass const& pass, std::span<RowGroupSize const> row_groups) {
    std::vector<PassPart> parts;
    for (auto i = pass.begin; i < pass.end; ++i) {
        if (parts.empty() || parts.back().file != row_groups[i].file) {
            parts.push_back(PassPart{.file = row_groups[i].file, .row_groups = {}});
        }
        parts.back().row_groups.push_back(row_groups[i].row_group);
    }
    return parts;
}

// Names row groups of versions of files, for a cache.
std::string name_of(std::span<PassPart const> parts, Footers const& footers) {
    std::string name;
    for (auto const& part : parts) {
        auto const& version = footers[part.file]->version;
        for (auto const number :
             {version.device, version.inode, version.size, static_cast<std::uint64_t>(version.modified_ns)}) {
            name += std::to_string(number) + ' ';
        }
        for (auto const number : part.row_groups) {
            name += std::to_string(number) + ',';
        }
        name += ';';
    }
    return name;
}

class ParquetSource final : public ChunkSource {
  public:
    ParquetSource(ParquetScan const& scan, Scanning const& scanning)
        : settings_{scanning.settings},
          files_{scanning.files},
          slabs_{scanning.slabs},
          cache_{scanning.cache} {
        std::vector<std::string> paths;
        for (auto const& file : scan.files) {
            paths.push_back(file.path);
        }
        footers_ = scanning.footers.get(paths);
        auto const chosen = chosen_row_groups(scan, footers_);

        // A column that is asked for twice is read once.
        std::vector<std::string> names;
        for (std::size_t i = 0; i < scan.columns.size(); ++i) {
            auto const found = std::ranges::find(names, scan.columns[i]);
            places_.push_back(static_cast<std::size_t>(found - names.begin()));
            if (found == names.end()) {
                names.push_back(scan.columns[i]);
            }
            types_.push_back(cudf_type(scan.types.at(i)));
        }
        columns_ = std::make_shared<ScanColumns const>(scan_columns(footers_, std::move(names)));
        {
            MutexLock const lock{codes_mutex_};
            codes_.resize(columns_->names.size());
        }

        std::size_t schema = 0;
        for (std::size_t file = 0; file < footers_.size(); ++file) {
            auto const& selections = columns_->selections;
            if (file > 0 && !same_schema(selections[file - 1], selections[file])) {
                ++schema;
            }
            for (auto const number : chosen[file]) {
                auto const group = static_cast<std::size_t>(number);
                std::int64_t bytes = 0;
                for (auto const leaf : selections[file].leaves) {
                    bytes += decoded_bytes(footers_[file]->chunk(group, leaf));
                }
                row_groups_.push_back(
                    RowGroupSize{
                        file, number, footers_[file]->row_groups.rows[group], bytes,
                        columns_->names.empty() ? 0 : schema});
            }
        }
        passes_ = with_small_edges(
            row_groups_, make_passes(row_groups_, settings_.pass_rows, settings_.pass_bytes),
            settings_.edge_rows);
        if (columns_->names.empty()) {
            return;
        }
        for (auto const& footer : footers_) {
            inputs_.push_back(InputFile{footer->path, footer->version});
        }
        if (cache_ != nullptr) {
            cache_->begin_scan();
        }
        for (std::size_t pass = 0; pass < passes_.size(); ++pass) {
            plan_pass(pass);
        }
        read_ahead_.emplace(
            inputs_, to_read_.size(),
            [this](std::size_t number) {
                return lay_out(chunks(to_read_[number], reading_[to_read_[number]]));
            },
            settings_, files_, slabs_);
    }

    void start(std::function<void()> when_read) override {
        if (read_ahead_) {
            read_ahead_->start(std::move(when_read));
        } else {
            when_read();
        }
    }

    std::optional<Chunk> next(Work& work) override {
        if (columns_->names.empty()) {
            return rows_only(work);
        }
        // Cached passes come first; the others are read meanwhile.
        if (auto const number = next_kept_.fetch_add(1); number < kept_.size()) {
            return make_chunk(kept_[number], nullptr, work);
        }
        auto const loaded = read_ahead_->take(work.stream());
        if (!loaded) {
            return std::nullopt;
        }
        return make_chunk(to_read_[loaded->pass()], &*loaded, work);
    }

    std::optional<Chunk> next_ahead(Work& work) override {
        if (!read_ahead_) {
            return std::nullopt;  // rows without columns take no time
        }
        auto const loaded = read_ahead_->take_ahead(work.stream());
        if (!loaded) {
            return std::nullopt;
        }
        return make_chunk(to_read_[loaded->pass()], &*loaded, work);
    }

    [[nodiscard]] std::int64_t most_bytes() const override { return most_bytes_; }

    void close() noexcept override {
        if (read_ahead_) {
            read_ahead_->close();
        }
    }

  private:
    using Columns = std::vector<std::unique_ptr<cudf::column>>;
    // By the number of a column, its chunks.
    using ColumnChunks = std::vector<std::vector<DeviceChunk>>;

    // Decides what is read of a pass, and what the cache has.
    void plan_pass(std::size_t pass) {
        parts_.push_back(parts_of(passes_[pass], row_groups_));
        std::int64_t bytes = 0;
        for (auto i = passes_[pass].begin; i < passes_[pass].end; ++i) {
            bytes += row_groups_[i].decoded_bytes;
        }
        most_bytes_ = std::max(most_bytes_, bytes);
        auto& reading = reading_.emplace_back();
        if (cache_ != nullptr) {
            keys_.push_back(name_of(parts_.back(), footers_));
        }
        for (std::size_t column = 0; column < columns_->names.size(); ++column) {
            if (cache_ == nullptr || !cache_->has(key(pass, column))) {
                reading.push_back(column);
            } else if (cache_->keeps().decoded) {
                // Other passes are coded alike.
                MutexLock const lock{codes_mutex_};
                if (codes_[column] == nullptr) {
                    codes_[column] = cache_->codes_of_column(key(pass, column));
                }
            }
        }
        (reading.empty() ? kept_ : to_read_).push_back(pass);
    }

    [[nodiscard]] std::string key(std::size_t pass, std::size_t column) const {
        return keys_[pass] + columns_->names[column];
    }

    // Some of the columns. Selecting takes time for each file, which scans that read all columns do not take for each pass.
    [[nodiscard]] std::shared_ptr<ScanColumns const> only(std::vector<std::size_t> const& numbers) const {
        if (numbers.size() == columns_->names.size()) {
            return columns_;
        }
        std::vector<std::string> names;
        for (auto const number : numbers) {
            names.push_back(columns_->names[number]);
        }
        return std::make_shared<ScanColumns const>(scan_columns(footers_, std::move(names)));
    }

    [[nodiscard]] std::vector<ChunkRange> chunks(
        std::size_t pass, std::vector<std::size_t> const& numbers) const {
        std::vector<ChunkRange> ranges;
        each_chunk(
            footers_, *only(numbers), parts_[pass],
            [&](std::size_t file, std::size_t, ColumnChunkPlace const& chunk) {
                ranges.push_back(
                    ChunkRange{
                        file, static_cast<std::uint64_t>(chunk.offset()),
                        static_cast<std::size_t>(chunk.compressed_bytes)});
            });
        return ranges;
    }

    // Sorts out the chunks of columns that were loaded.
    void take_chunks(
        std::size_t pass, std::vector<std::size_t> const& numbers, ReadAhead::Loaded const& loaded,
        ColumnChunks& chunks) const {
        std::size_t i = 0;
        each_chunk(
            footers_, *only(numbers), parts_[pass],
            [&](std::size_t, std::size_t column, ColumnChunkPlace const& chunk) {
                chunks[numbers[column]].push_back(
                    DeviceChunk{
                        .data = loaded.data() + loaded.layout().places[i++],
                        .bytes = static_cast<std::size_t>(chunk.compressed_bytes)});
            });
    }

    // Cached chunks that a stream reads. They are held until the stream's work is done.
    struct ChunksInUse {
        explicit ChunksInUse(cuda::stream_ref on) : stream{on} {}
        ~ChunksInUse() {
            if (!chunks.empty()) {
                cudaStreamSynchronize(stream.get());
            }
        }
        ChunksInUse(ChunksInUse const&) = delete;
        ChunksInUse& operator=(ChunksInUse const&) = delete;

        cuda::stream_ref stream;
        std::vector<std::shared_ptr<ScanCache::Chunks const>> chunks;
    };

    // The compressed bytes of a pass that come from its files. They are held until the pass has been decoded.
    struct Read {
        ReadAhead::Loaded const* loaded{nullptr};  // null: nothing was to be read
        // Of what the cache has dropped since the scan was planned.
        std::unique_ptr<ReadAhead> reader;
        std::optional<ReadAhead::Loaded> again;

        void check_files() const {
            for (auto const* const each : {loaded, again ? &*again : nullptr}) {
                if (each != nullptr) {
                    each->check_files();
                }
            }
        }
    };

    [[nodiscard]] Chunk make_chunk(std::size_t pass, ReadAhead::Loaded const* loaded, Work& work) const {
        Read read;
        read.loaded = loaded;
        try {
            return shaped(columns_of(pass, read, work), pass, work);
        } catch (std::bad_alloc const&) {
            throw;
        } catch (cudf::cuda_error const&) {
            throw;
        } catch (rmm::cuda_error const&) {
            throw;
        } catch (std::exception const& error) {
            read.check_files();  // which says more, if that is the reason
            throw std::runtime_error{"cannot decode " + files_of(passes_[pass]) + ": " + error.what()};
        }
    }

    // The codes for a column whose dictionaries in this pass have so many strings; null: it is not coded.
    [[nodiscard]] StringCodesPtr codes_for(
        std::size_t pass, std::size_t column, std::size_t strings, Work& work) const {
        // So many strings may occur in several row groups of a pass, and distinct ones may be far fewer.
        constexpr std::size_t most_strings = 4 * StringCodes::most_strings;
        // Codes that stand for few rows each save less than they cost.
        constexpr std::size_t least_rows_a_string = 16;
        auto const rows = static_cast<std::size_t>(passes_[pass].rows);
        if (rows < settings_.coded_rows || strings == 0 || strings > most_strings
            || (settings_.coded_rows > 0 && least_rows_a_string * strings > rows)) {
            return nullptr;
        }
        {
            MutexLock const lock{codes_mutex_};
            if (auto const& codes = codes_[column]) {
                return codes->is_full() ? nullptr : codes;
            }
        }
        // Without the lock, since it may wait for memory. Other passes may have strings of their own.
        auto made = std::make_shared<StringCodes>(strings * passes_.size(), work);
        MutexLock const lock{codes_mutex_};
        if (codes_[column] == nullptr) {
            codes_[column] = std::move(made);
        }
        return codes_[column];
    }

    // The columns that are read, with libcudf's types.
    [[nodiscard]] DecodedColumns columns_of(std::size_t pass, Read& read, Work& work) const {
        auto const count = columns_->names.size();
        Columns columns(count);
        Coding coding;
        ColumnChunks by_column(count);
        std::vector<bool> is_read(count);
        ChunksInUse in_use{work.stream()};
        if (read.loaded != nullptr) {
            take_chunks(pass, reading_[pass], *read.loaded, by_column);
            for (auto const column : reading_[pass]) {
                is_read[column] = true;
            }
        }
        std::vector<std::size_t> missing;
        std::vector<std::size_t> to_decode;
        for (std::size_t column = 0; column < count; ++column) {
            if (!is_read[column]) {
                auto kept_column = cache_->find_column(key(pass, column), work.stream());
                if (kept_column.values != nullptr) {
                    columns[column] = std::move(kept_column.values);
                    set_codes(coding, column, std::move(kept_column.codes));
                    continue;
                }
                if (auto kept = cache_->find_chunks(key(pass, column))) {
                    by_column[column] = kept->places;
                    in_use.chunks.push_back(std::move(kept));
                } else {
                    missing.push_back(column);
                }
            }
            to_decode.push_back(column);
        }
        if (!missing.empty()) {
            read.reader = std::make_unique<ReadAhead>(
                inputs_, 1, [&](std::size_t) { return lay_out(chunks(pass, missing)); }, settings_, files_,
                slabs_);
            read.again.emplace(std::move(read.reader->take(work.stream()).value()));
            take_chunks(pass, missing, *read.again, by_column);
            for (auto const column : missing) {
                is_read[column] = true;
            }
        }
        if (!to_decode.empty()) {
            auto const decoding = only(to_decode);
            std::vector<DeviceChunk> on_device;
            std::vector<std::size_t> next(count);
            each_chunk(
                footers_, *decoding, parts_[pass],
                [&](std::size_t, std::size_t number, ColumnChunkPlace const&) {
                    auto const column = to_decode[number];
                    on_device.push_back(by_column[column][next[column]++]);
                });
            auto decoded = decode_columns(
                footers_, *decoding, parts_[pass], passes_[pass].rows, std::move(on_device), settings_,
                [&](std::size_t number, std::size_t strings) {
                    return codes_for(pass, to_decode[number], strings, work);
                },
                work);
            read.check_files();
            for (std::size_t i = 0; i < to_decode.size(); ++i) {
                auto const column = to_decode[i];
                auto& values = decoded.columns[i];
                auto const& codes = codes_of(decoded.coding, i);
                set_codes(coding, column, codes);
                if (cache_ != nullptr && cache_->keeps().decoded) {
                    values = cache_->keep_column(
                        key(pass, column), {.values = std::move(values), .codes = codes}, work);
                } else if (cache_ != nullptr && is_read[column]) {
                    cache_->keep_chunks(key(pass, column), by_column[column], work);
                }
                columns[column] = std::move(values);
            }
        }
        return {.columns = std::move(columns), .coding = std::move(coding)};
    }

    // In the order and with the types that the scan gives.
    [[nodiscard]] Chunk shaped(DecodedColumns read, std::size_t pass, Work& work) const {
        std::vector<std::unique_ptr<cudf::column>> columns;
        Coding coding;
        for (std::size_t i = 0; i < places_.size(); ++i) {
            auto& column = read.columns[places_[i]];
            auto const& codes = codes_of(read.coding, places_[i]);
            set_codes(coding, i, codes);
            auto const from = codes != nullptr ? cudf::data_type{cudf::type_id::STRING} : column->type();
            if (from != types_[i]) {
                if (!holds_all_values(from, types_[i])) {
                    throw std::runtime_error{
                        "column '" + columns_->names[places_[i]] + "' is " + type_name(from)
                        + " there, where " + type_name(types_[i]) + " is expected"};
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
        return Chunk{std::make_unique<cudf::table>(std::move(columns)), pass, std::move(coding)};
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
    MappedFiles& files_;
    SlabReader& slabs_;
    ScanCache* const cache_;  // null: nothing is kept
    Footers footers_;
    std::vector<InputFile> inputs_;
    std::shared_ptr<ScanColumns const> columns_;  // that are read
    std::vector<std::size_t> places_;             // in columns_, of those that are given
    std::vector<cudf::data_type> types_;          // of those that are given
    std::vector<RowGroupSize> row_groups_;
    std::vector<Pass> passes_;
    std::int64_t most_bytes_{0};
    std::vector<std::vector<PassPart>> parts_;       // of each pass
    std::vector<std::string> keys_;                  // of each pass, in the cache
    std::vector<std::vector<std::size_t>> reading_;  // the columns that are read of each pass
    std::vector<std::size_t> to_read_;               // passes of which something is read
    std::vector<std::size_t> kept_;                  // the others
    mutable Mutex codes_mutex_;
    // codes_[c]: the strings of column c, which all passes share; null until a pass has coded the column.
    mutable std::vector<StringCodesPtr> codes_ RAPIDSMPF_GUARDED_BY(codes_mutex_);
    std::atomic<std::size_t> next_pass_{0};
    std::atomic<std::size_t> next_kept_{0};
    std::optional<ReadAhead> read_ahead_;
};

}  // namespace

std::unique_ptr<ChunkSource> make_parquet_source(ParquetScan const& scan, Scanning const& scanning) {
    return std::make_unique<ParquetSource>(scan, scanning);
}

}  // namespace rapidsmpf::compute
