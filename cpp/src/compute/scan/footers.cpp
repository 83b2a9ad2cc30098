#include "compute/scan/footers.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <future>
#include <list>
#include <map>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <cudf/io/experimental/hybrid_scan.hpp>
#include <cudf/io/parquet.hpp>

#include <rapidsmpf/compute/detail/footer_summary.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::compute {

namespace pq = cudf::io::parquet;

namespace {

constexpr std::size_t parsing_threads = 8;

std::vector<std::uint8_t> footer_bytes(DataFile const& file) {
    constexpr std::size_t ending = 8;  // length, magic
    if (file.size() < ending + 4) {
        throw FooterError{"it is too small for a Parquet file"};
    }
    // Most footers are small: one read has them.
    std::vector<std::uint8_t> tail(std::min<std::size_t>(file.size(), std::size_t{64} << 10));
    file.read(tail.data(), tail.size(), file.size() - tail.size());
    auto const* const end = tail.data() + tail.size();
    if (std::memcmp(end - 4, "PAR1", 4) != 0) {
        throw FooterError{
            std::memcmp(end - 4, "PARE", 4) == 0 ? "its footer is encrypted, which is not supported"
                                                 : "it is no Parquet file, or cut off"};
    }
    std::uint32_t length = 0;
    std::memcpy(&length, end - ending, 4);
    if (length > file.size() - ending) {
        throw FooterError{"its footer would be larger than the file"};
    }
    if (length + ending <= tail.size()) {
        return {end - ending - length, end - ending};
    }
    std::vector<std::uint8_t> footer(length);
    file.read(footer.data(), length, file.size() - ending - length);
    return footer;
}

// Places of the leaves below the schema's root, depth first.
void add_leaves(
    Footer const& footer, std::size_t place, std::string const& path, std::vector<std::string>& paths,
    std::vector<std::size_t>& places) {
    for (auto const child : footer.schema[place].children_idx) {
        auto const& element = footer.schema.at(static_cast<std::size_t>(child));
        auto const below = path.empty() ? element.name : path + '\0' + element.name;
        if (element.children_idx.empty()) {
            paths.push_back(below);
            places.push_back(static_cast<std::size_t>(child));
        } else {
            add_leaves(footer, static_cast<std::size_t>(child), below, paths, places);
        }
    }
}

std::shared_ptr<Footer const> parse_footer(DataFile const& file) {
    auto footer = std::make_shared<Footer>();
    footer->path = file.path();
    footer->version = file.version();
    footer->row_groups = parse_row_groups(footer_bytes(file));
    auto const& rest = footer->row_groups.rest;
    pq::experimental::hybrid_scan_reader const reader{
        cudf::host_span<std::uint8_t const>{rest.data(), rest.size()},
        cudf::io::parquet_reader_options::builder().build()};
    auto metadata = reader.parquet_metadata();
    footer->format_version = metadata.version;
    footer->created_by = std::move(metadata.created_by);
    footer->schema = std::move(metadata.schema);
    if (footer->schema.empty()) {
        throw FooterError{"it has no schema"};
    }
    std::vector<std::string> paths;
    add_leaves(*footer, 0, "", paths, footer->leaves);
    if (!footer->row_groups.rows.empty() && paths != footer->row_groups.columns) {
        throw FooterError{"its row groups have other columns than its schema"};
    }
    footer->row_groups.rest = {};
    return footer;
}

std::size_t size_of_footer(Footer const& footer) {
    return footer.row_groups.chunks.size() * sizeof(ColumnChunkPlace)
           + footer.schema.size() * sizeof(pq::SchemaElement) + sizeof(Footer);
}

}  // namespace

struct FooterCache::State {
    using Parsed = std::shared_future<std::shared_ptr<Footer const>>;
    struct Entry {
        FileVersion version;
        Parsed parsed;
        std::size_t bytes{0};  // 0 until it is parsed
        std::list<std::string>::iterator use;
    };

    explicit State(std::size_t limit) : max_bytes{limit} {}

    std::shared_ptr<Footer const> get(std::string const& path) {
        DataFile const file{path};
        std::promise<std::shared_ptr<Footer const>> promise;
        Parsed parsed;
        {
            MutexLock const lock{mutex};
            auto const found = entries.find(path);
            if (found != entries.end() && found->second.version == file.version()) {
                uses.splice(uses.begin(), uses, found->second.use);
                parsed = found->second.parsed;
            } else {
                if (found != entries.end()) {
                    drop(found);
                }
                uses.push_front(path);
                entries.emplace(path, Entry{file.version(), promise.get_future().share(), 0, uses.begin()});
                ++parsings;
            }
        }
        if (parsed.valid()) {
            return parsed.get();
        }
        try {
            auto footer = parse_footer(file);
            file.check_version(footer->version);
            promise.set_value(footer);
            keep(path, *footer);
            return footer;
        } catch (...) {
            promise.set_exception(std::current_exception());
            forget(path, file.version());
            throw;
        }
    }

    void keep(std::string const& path, Footer const& footer) {
        MutexLock const lock{mutex};
        auto const found = entries.find(path);
        if (found == entries.end() || found->second.version != footer.version) {
            return;
        }
        found->second.bytes = size_of_footer(footer);
        bytes += found->second.bytes;
        while (bytes > max_bytes && uses.size() > 1) {
            drop(entries.find(uses.back()));
        }
    }

    void forget(std::string const& path, FileVersion const& version) {
        MutexLock const lock{mutex};
        auto const found = entries.find(path);
        if (found != entries.end() && found->second.version == version) {
            drop(found);
        }
    }

    void drop(std::map<std::string, Entry>::iterator entry) RAPIDSMPF_REQUIRES(mutex) {
        bytes -= entry->second.bytes;
        uses.erase(entry->second.use);
        entries.erase(entry);
    }

    std::size_t const max_bytes;
    Mutex mutex;
    std::map<std::string, Entry> entries RAPIDSMPF_GUARDED_BY(mutex);
    std::list<std::string> uses RAPIDSMPF_GUARDED_BY(mutex);  // most recent first
    std::size_t bytes RAPIDSMPF_GUARDED_BY(mutex){0};
    std::size_t parsings RAPIDSMPF_GUARDED_BY(mutex){0};
};

FooterCache::FooterCache(std::size_t max_bytes) : state_{std::make_unique<State>(max_bytes)} {}
FooterCache::~FooterCache() = default;

std::vector<std::shared_ptr<Footer const>> FooterCache::get(std::span<std::string const> paths) {
    std::vector<std::shared_ptr<Footer const>> footers(paths.size());
    std::vector<std::exception_ptr> errors(paths.size());
    std::atomic<std::size_t> next{0};
    auto const work = [&] {
        for (std::size_t i; (i = next.fetch_add(1)) < paths.size();) {
            try {
                footers[i] = state_->get(paths[i]);
            } catch (FooterError const& error) {
                errors[i] = std::make_exception_ptr(
                    std::runtime_error{"cannot read " + paths[i] + ": " + error.what()});
            } catch (std::logic_error const& error) {  // libcudf's
                errors[i] = std::make_exception_ptr(
                    std::runtime_error{"cannot read " + paths[i] + ": " + error.what()});
            } catch (...) {
                errors[i] = std::current_exception();
            }
        }
    };
    {
        std::vector<std::jthread> others;
        for (std::size_t t = 1; t < std::min(parsing_threads, paths.size()); ++t) {
            others.emplace_back(work);
        }
        work();
    }
    for (auto const& error : errors) {
        if (error) {
            std::rethrow_exception(error);
        }
    }
    return footers;
}

std::size_t FooterCache::parsed_for_testing() const {
    MutexLock const lock{state_->mutex};
    return state_->parsings;
}

std::shared_ptr<FooterCache> FooterCache::shared() {
    static Mutex mutex;
    static std::weak_ptr<FooterCache> present RAPIDSMPF_GUARDED_BY(mutex);
    MutexLock const lock{mutex};
    auto cache = present.lock();
    if (cache == nullptr) {
        cache = std::make_shared<FooterCache>();
        present = cache;
    }
    return cache;
}

FooterSummary summarize_footer(std::string const& path) {
    auto const footer = FooterCache::shared()->get(std::span{&path, 1}).front();
    FooterSummary summary;
    auto const& rows = footer->row_groups.rows;
    summary.rows = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    for (std::size_t i = 0; i < footer->leaves.size(); ++i) {
        auto const& element = footer->schema[footer->leaves[i]];
        if (element.parent_idx != 0) {
            continue;
        }
        // A file without row groups has no ranges either.
        auto const range = rows.empty() ? ColumnRange{} : footer->row_groups.ranges[i];
        summary.columns.push_back(
            ColumnSummary{
                .name = element.name,
                .is_required = element.max_definition_level == 0,
                .has_range = range.kind != ColumnRange::Kind::unknown,
                .least_high = static_cast<std::int64_t>(range.least >> 64),
                .least_low = static_cast<std::uint64_t>(range.least),
                .most_high = static_cast<std::int64_t>(range.most >> 64),
                .most_low = static_cast<std::uint64_t>(range.most)});
    }
    return summary;
}

// ---- Columns of a footer

namespace {

// Copies an element and what is below it; returns its new place.
std::size_t copy_below(
    Footer const& footer, std::size_t place, std::size_t parent, ColumnSelection& selection) {
    auto const at = selection.schema.size();
    selection.schema.push_back(footer.schema[place]);
    selection.schema[at].parent_idx = static_cast<cudf::size_type>(parent);
    selection.schema[at].children_idx.clear();
    if (footer.schema[place].children_idx.empty()) {
        auto const leaf = std::ranges::find(footer.leaves, place) - footer.leaves.begin();
        selection.leaves.push_back(static_cast<std::size_t>(leaf));
        selection.leaf_places.push_back(at);
    }
    for (auto const child : footer.schema[place].children_idx) {
        auto const copied = copy_below(footer, static_cast<std::size_t>(child), at, selection);
        selection.schema[at].children_idx.push_back(static_cast<cudf::size_type>(copied));
    }
    return at;
}

std::vector<std::string> selected_path(ColumnSelection const& selection, std::size_t place) {
    std::vector<std::string> path;
    for (; place != 0; place = static_cast<std::size_t>(selection.schema[place].parent_idx)) {
        path.push_back(selection.schema[place].name);
    }
    std::ranges::reverse(path);
    return path;
}

}  // namespace

ColumnSelection select_columns(Footer const& footer, std::span<std::string const> columns) {
    ColumnSelection selection;
    selection.schema.push_back(footer.schema.front());
    selection.schema.front().children_idx.clear();
    selection.schema.front().num_children = static_cast<std::int32_t>(columns.size());
    for (auto const& name : columns) {
        auto const& top = footer.schema.front().children_idx;
        auto const found = std::ranges::find_if(
            top, [&](auto place) { return footer.schema[static_cast<std::size_t>(place)].name == name; });
        if (found == top.end()) {
            throw std::runtime_error{footer.path + " has no column '" + name + "'"};
        }
        auto const copied = copy_below(footer, static_cast<std::size_t>(*found), 0, selection);
        selection.leaf_columns.resize(selection.leaves.size(), selection.schema.front().children_idx.size());
        selection.schema.front().children_idx.push_back(static_cast<cudf::size_type>(copied));
    }
    return selection;
}

cudf::io::parquet::FileMetaData reader_metadata(
    Footer const& footer, ColumnSelection const& selection, std::span<std::int32_t const> row_groups) {
    pq::FileMetaData metadata;
    metadata.version = footer.format_version;
    metadata.created_by = footer.created_by;
    metadata.schema = selection.schema;
    std::vector<std::vector<std::string>> paths;
    for (auto const place : selection.leaf_places) {
        paths.push_back(selected_path(selection, place));
    }
    metadata.row_groups.reserve(row_groups.size());
    for (auto const number : row_groups) {
        auto& row_group = metadata.row_groups.emplace_back();
        row_group.num_rows = footer.row_groups.rows.at(static_cast<std::size_t>(number));
        row_group.columns.reserve(selection.leaves.size());
        for (std::size_t i = 0; i < selection.leaves.size(); ++i) {
            auto const& place = footer.chunk(static_cast<std::size_t>(number), selection.leaves[i]);
            auto& chunk = row_group.columns.emplace_back();
            chunk.schema_idx = static_cast<int>(selection.leaf_places[i]);
            auto& column = chunk.meta_data;
            column.type = static_cast<pq::Type>(place.physical_type);
            column.codec = static_cast<pq::Compression>(place.codec);
            column.path_in_schema = paths[i];
            for (unsigned bit = 0; bit < 32; ++bit) {
                if ((place.encodings >> bit & 1U) != 0) {
                    column.encodings.push_back(static_cast<pq::Encoding>(bit));
                }
            }
            column.num_values = place.values;
            column.total_uncompressed_size = place.uncompressed_bytes;
            column.total_compressed_size = place.compressed_bytes;
            column.data_page_offset = place.data_page_offset;
            column.dictionary_page_offset = place.dictionary_page_offset;
            row_group.total_byte_size += place.uncompressed_bytes;
        }
        metadata.num_rows += row_group.num_rows;
    }
    return metadata;
}

}  // namespace rapidsmpf::compute
