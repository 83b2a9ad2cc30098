#include <rapidsmpf/parquet/detail/footer_parser.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "parquet/compact_reader.hpp"

namespace rapidsmpf::parquet {

namespace {

std::int64_t text_bytes(CompactReader& reader) {
    std::int64_t bytes = -1;
    reader.fields(
        [&](std::int64_t field, std::uint8_t type) { return field == 1 && reader.take_integer(type, bytes); },
        4);
    return bytes;
}

// The fields of Parquet's Statistics that ranges need.
struct ChunkStatistics {
    std::optional<std::string_view> least;
    std::optional<std::string_view> most;
    std::int64_t nulls{-1};
};

ChunkStatistics chunk_statistics(CompactReader& reader) {
    ChunkStatistics found;
    reader.fields(
        [&](std::int64_t field, std::uint8_t type) {
            if (field == 3) {
                return reader.take_integer(type, found.nulls);
            }
            // The deprecated fields 1 and 2 (max, min) do not define the order in which values were compared.
            if ((field == 5 || field == 6) && type == wire::binary) {
                (field == 5 ? found.most : found.least) = reader.bytes();
                return true;
            }
            return false;
        },
        4);
    return found;
}

// Decodes a minimum or maximum, which is PLAIN-encoded; nothing if the type has no numbers or the length is wrong.
std::optional<__int128> number(std::uint8_t physical_type, std::string_view value) {
    constexpr std::uint8_t int32 = 1;
    constexpr std::uint8_t int64 = 2;
    constexpr std::uint8_t fixed_bytes = 7;
    if (physical_type == int32 && value.size() == 4) {
        std::int32_t n{};
        std::memcpy(&n, value.data(), 4);
        return n;
    }
    if (physical_type == int64 && value.size() == 8) {
        std::int64_t n{};
        std::memcpy(&n, value.data(), 8);
        return n;
    }
    if (physical_type == fixed_bytes && !value.empty() && value.size() <= 16) {
        // Two's complement, big-endian.
        unsigned __int128 n =
            (static_cast<std::uint8_t>(value.front()) & 0x80U) != 0 ? ~static_cast<unsigned __int128>(0) : 0;
        for (auto const byte : value) {
            n = n << 8U | static_cast<std::uint8_t>(byte);
        }
        return static_cast<__int128>(n);
    }
    return std::nullopt;
}

void widen(ColumnRange& range, ColumnChunkPlace const& place, ChunkStatistics const& found) {
    using Kind = ColumnRange::Kind;
    if (range.kind == Kind::unknown || place.values == 0 || found.nulls == place.values) {
        return;
    }
    auto const least = found.least ? number(place.physical_type, *found.least) : std::nullopt;
    auto const most = found.most ? number(place.physical_type, *found.most) : std::nullopt;
    if (!least || !most || *least > *most) {
        range.kind = Kind::unknown;
        return;
    }
    range.least = range.kind == Kind::empty ? *least : std::min(range.least, *least);
    range.most = range.kind == Kind::empty ? *most : std::max(range.most, *most);
    range.kind = Kind::between;
}

// ColumnMetaData. `path`: the bytes of its list of names, as they are.
ColumnChunkPlace column_meta_data(
    CompactReader& reader, std::string_view& path, ChunkStatistics& statistics) {
    ColumnChunkPlace place;
    reader.fields(
        [&](std::int64_t field, std::uint8_t type) {
            if (is_wire_integer(type)) {
                switch (field) {
                    case 1:
                        place.physical_type = static_cast<std::uint8_t>(reader.integer());
                        return true;
                    case 4:
                        place.codec = static_cast<std::uint8_t>(reader.integer());
                        return true;
                    case 5:
                        place.values = reader.integer();
                        return true;
                    case 6:
                        place.uncompressed_bytes = reader.integer();
                        return true;
                    case 7:
                        place.compressed_bytes = reader.integer();
                        return true;
                    case 9:
                        place.data_page_offset = reader.integer();
                        return true;
                    case 11:
                        place.dictionary_page_offset = reader.integer();
                        return true;
                    default:
                        return false;
                }
            }
            if (field == 2 && type == wire::list) {
                auto const [n, element] = reader.list_header();
                for (std::size_t i = 0; i < n; ++i) {
                    if (!is_wire_integer(element)) {
                        throw FooterError{"the encodings of a column are no numbers"};
                    }
                    auto const encoding = reader.integer();
                    if (encoding >= 0 && encoding < 32) {
                        place.encodings |= std::uint32_t{1} << static_cast<unsigned>(encoding);
                    }
                }
                return true;
            }
            if (field == 3 && type == wire::list) {
                auto const* const begin = reader.at();
                auto const [n, element] = reader.list_header();
                for (std::size_t i = 0; i < n; ++i) {
                    if (element != wire::binary) {
                        throw FooterError{"the path of a column is no text"};
                    }
                    static_cast<void>(reader.bytes());
                }
                path = {reinterpret_cast<char const*>(begin), static_cast<std::size_t>(reader.at() - begin)};
                return true;
            }
            if (field == 12 && type == wire::structure) {
                statistics = chunk_statistics(reader);
                return true;
            }
            if (field == 16 && type == wire::structure) {
                place.text_bytes = text_bytes(reader);
                return true;
            }
            return false;
        },
        3);
    if (place.compressed_bytes < 0 || place.uncompressed_bytes < 0 || place.values < 0
        || place.offset() < 0) {
        throw FooterError{"a column chunk has a negative size"};
    }
    return place;
}

// ColumnChunk.
ColumnChunkPlace column_chunk(CompactReader& reader, std::string_view& path, ChunkStatistics& statistics) {
    ColumnChunkPlace place;
    bool found = false;
    reader.fields(
        [&](std::int64_t field, std::uint8_t type) {
            if (field == 3 && type == wire::structure) {
                place = column_meta_data(reader, path, statistics);
                found = true;
                return true;
            }
            if (field == 1 && type == wire::binary) {
                if (!reader.bytes().empty()) {
                    throw FooterError{"a column is in another file, which is not supported"};
                }
                return true;
            }
            if (field == 8 || field == 9) {
                throw FooterError{"a column is encrypted, which is not supported"};
            }
            return false;
        },
        2);
    if (!found) {
        throw FooterError{"a column chunk does not say where it is"};
    }
    return place;
}

std::string joined_path(std::string_view raw) {
    CompactReader reader{{reinterpret_cast<std::uint8_t const*>(raw.data()), raw.size()}};
    auto const [n, element] = reader.list_header();
    std::string joined;
    for (std::size_t i = 0; i < n; ++i) {
        joined += i == 0 ? "" : std::string(1, '\0');
        joined += reader.bytes();
    }
    return joined;
}

}  // namespace

RowGroups parse_row_groups(std::span<std::uint8_t const> footer) {
    CompactReader reader{footer};
    RowGroups result;
    std::vector<std::string_view> paths;
    // What `rest` has in another form: the list of row groups, and the number of rows, which libcudf holds against them.
    std::span<std::uint8_t const> list_bytes;
    std::span<std::uint8_t const> rows_bytes;

    auto const row_group = [&] {
        std::int64_t rows = -1;
        bool has_columns = false;
        reader.fields(
            [&](std::int64_t field, std::uint8_t type) {
                if (field == 3) {
                    return reader.take_integer(type, rows);
                }
                if (field != 1 || type != wire::list) {
                    return false;
                }
                auto const [n, element] = reader.list_header();
                if (element != wire::structure || has_columns
                    || (!result.rows.empty() && n != paths.size())) {
                    throw FooterError{"the row groups do not have the same columns"};
                }
                has_columns = true;
                for (std::size_t i = 0; i < n; ++i) {
                    std::string_view path;
                    ChunkStatistics statistics;
                    result.chunks.push_back(column_chunk(reader, path, statistics));
                    if (result.rows.empty()) {
                        paths.push_back(path);
                        result.ranges.emplace_back();
                    } else if (path != paths[i]) {
                        throw FooterError{"the row groups do not have the same columns"};
                    }
                    widen(result.ranges[i], result.chunks.back(), statistics);
                }
                return true;
            },
            1);
        if (rows < 0 || !has_columns) {
            throw FooterError{"a row group says neither its columns nor its rows"};
        }
        result.rows.push_back(rows);
    };

    reader.fields(
        [&](std::int64_t field, std::uint8_t type) {
            if (field == 8) {
                throw FooterError{"the file is encrypted, which is not supported"};
            }
            auto const* const value = reader.at();
            if (field == 3 && is_wire_integer(type)) {
                static_cast<void>(reader.integer());
                rows_bytes = {value, reader.at()};
                return true;
            }
            if (field != 4 || type != wire::list) {
                return false;
            }
            if (!list_bytes.empty()) {
                throw FooterError{"the footer has its row groups twice"};
            }
            auto const n = reader.structures("the row groups");
            result.rows.reserve(std::min<std::size_t>(n, footer.size() / 64));
            for (std::size_t i = 0; i < n; ++i) {
                row_group();
                if (i == 0) {
                    result.chunks.reserve(std::min<std::size_t>(n * paths.size(), footer.size() / 32));
                }
            }
            list_bytes = {value, reader.at()};
            return true;
        },
        0);
    if (list_bytes.empty() || rows_bytes.empty() || rows_bytes.data() > list_bytes.data()) {
        throw FooterError{"the footer has no row groups after its number of rows"};
    }
    for (auto const path : paths) {
        result.columns.push_back(joined_path(path));
    }
    auto const append = [&](std::uint8_t const* begin, std::uint8_t const* end) {
        result.rest.insert(result.rest.end(), begin, end);
    };
    append(footer.data(), rows_bytes.data());
    result.rest.push_back(0);
    append(rows_bytes.data() + rows_bytes.size(), list_bytes.data());
    result.rest.push_back(wire::structure);  // the header of an empty list of structures
    append(list_bytes.data() + list_bytes.size(), footer.data() + footer.size());
    return result;
}

}  // namespace rapidsmpf::parquet
