#include "table/packed/packed_format.hpp"

#include <array>
#include <cstring>
#include <string>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/error.hpp>

#include "table/host/bits.hpp"
#include "table/host/bytes.hpp"

namespace rapidsmpf {

bool is_packed_table(std::span<std::uint8_t const> metadata) noexcept {
    return metadata.size() >= 4 && std::memcmp(metadata.data(), "RMPT", 4) == 0;
}

namespace detail {

namespace {

constexpr std::uint32_t magic = 0x54504d52;  // "RMPT"
constexpr std::uint32_t version = 1;
constexpr std::uint32_t narrow_version = 2;

// Positions in the header.
constexpr std::size_t size_at = 8;
constexpr std::size_t crc_at = 16;
constexpr std::size_t rows_at = 20;
constexpr std::size_t data_size_at = 28;
constexpr std::size_t header_size = 44;         // of a narrow table 8 more
constexpr std::size_t expected_node_size = 64;  // most take less
// The node of a column of fixed width: length, null count, where the validity is and how long, where the values are and how
// long.
using FixedNode = std::array<std::uint64_t, 6>;

bool has_data_piece(Layout layout) {
    return layout == Layout::offsets32 || layout == Layout::offsets64 || layout == Layout::view;
}

bool has_values_piece(Layout layout) {
    return layout != Layout::null && layout != Layout::fixed_list && layout != Layout::structure;
}

// Of all bytes but the checksum's own.
std::uint32_t checksum(std::span<std::uint8_t const> metadata) {
    return crc32c(metadata.subspan(crc_at + 4), crc32c(metadata.first(crc_at)));
}

class NodeReader {
  public:
    NodeReader(std::span<std::uint8_t const> nodes, std::span<std::byte const> data)
        : in_{nodes}, data_{data} {}

    // `rows`: how many it must have, negative when any number will do.
    [[nodiscard]] Column read(Field const& field, std::int64_t rows, std::string const& path) {
        path_ = &path;
        Column column;
        column.length = in_.number<std::int64_t>();
        column.null_count = in_.number<std::int64_t>();
        expect(column.length >= 0 && (rows < 0 || column.length == rows), "wrong number of rows");
        expect(column.null_count >= 0 && column.null_count <= column.length, "impossible null count");
        if (field.layout() == Layout::null) {
            expect(column.null_count == column.length, "impossible null count");
            return column;
        }
        auto const validity = piece(column.null_count == 0 ? 0 : bytes_for_bits(column.length));
        column.validity =
            column.null_count == 0 ? nullptr : reinterpret_cast<std::uint8_t const*>(validity.data());
        read_pieces(field, column);
        read_children(field, column, path);
        return column;
    }

    void expect_end() const {
        RAPIDSMPF_EXPECTS(in_.remaining() == 0, "malformed packed table: bytes after its end", FormatError);
    }

  private:
    void expect(bool condition, char const* message) const {
        RAPIDSMPF_EXPECTS(
            condition, "malformed packed table: column '" + *path_ + "': " + message, FormatError);
    }

    // The next piece, which must be `length` bytes long unless that is negative.
    [[nodiscard]] std::span<std::byte const> piece(std::int64_t length) {
        auto const offset = in_.number<std::uint64_t>();
        auto const size = in_.number<std::uint64_t>();
        expect(length < 0 || size == static_cast<std::uint64_t>(length), "a buffer has the wrong length");
        expect(offset % buffer_alignment == 0, "a buffer is not aligned");
        expect(offset <= data_.size() && size <= data_.size() - offset, "a buffer lies outside of the data");
        return data_.subspan(offset, size);
    }

    [[nodiscard]] std::int64_t times(std::int64_t rows, std::int64_t width) const {
        std::int64_t product{0};
        expect(!__builtin_mul_overflow(rows, width, &product), "impossible number of rows");
        return product;
    }

    [[nodiscard]] std::span<std::byte const> offsets_piece(std::int64_t rows, std::int64_t width) {
        std::int64_t size{0};
        expect(!__builtin_add_overflow(times(rows, width), width, &size), "impossible number of rows");
        return piece(rows == 0 ? 0 : size);
    }

    void read_pieces(Field const& field, Column& column) {
        switch (field.layout()) {
            case Layout::bits:
                column.values = piece(bytes_for_bits(column.length)).data();
                break;
            case Layout::fixed:
                column.values = piece(times(column.length, field.width())).data();
                break;
            case Layout::offsets32:
            case Layout::offsets64:
                column.offsets =
                    offsets_piece(column.length, field.layout() == Layout::offsets32 ? 4 : 8).data();
                column.data = piece(-1);
                break;
            case Layout::view: {
                column.values = piece(times(column.length, 16)).data();
                auto left = piece(-1);
                for (auto count = in_.count(8); count > 0; --count) {
                    auto const length = in_.number<std::int64_t>();
                    expect(
                        length >= 0 && static_cast<std::uint64_t>(length) <= left.size(),
                        "a view's buffer lies outside of the data");
                    column.variadic.push_back(left.first(static_cast<std::size_t>(length)));
                    left = left.subspan(static_cast<std::size_t>(length));
                }
                expect(left.empty(), "the views' buffers do not add up");
                break;
            }
            case Layout::list32:
            case Layout::list64:
                column.offsets =
                    offsets_piece(column.length, field.layout() == Layout::list32 ? 4 : 8).data();
                break;
            case Layout::null:
            case Layout::fixed_list:
            case Layout::structure:
                break;
        }
    }

    void read_children(Field const& field, Column& column, std::string const& path) {
        for (auto const& child : field.children()) {
            std::int64_t rows = -1;
            if (field.layout() == Layout::fixed_list) {
                rows = times(column.length, field.width());
            } else if (field.layout() == Layout::structure) {
                rows = column.length;
            }
            column.children.push_back(read(child, rows, path + "." + child.name()));
            path_ = &path;
        }
        if (field.dictionary() != nullptr) {
            column.dictionary = std::make_shared<Column const>(read(*field.dictionary(), -1, path));
        }
    }

    ByteReader in_;
    std::span<std::byte const> data_;
    std::string const* path_{nullptr};
};

}  // namespace

PackedBeginning PackedMetadataWriter::beginning(Schema const& table_schema) {
    auto const schema = table_schema.serialized();
    RAPIDSMPF_EXPECTS(schema.size() <= UINT32_MAX, "a schema takes more than 4 GiB", std::invalid_argument);
    std::vector<std::uint8_t> bytes;
    bytes.reserve(header_size + 8 + schema.size());
    ByteWriter out{bytes};
    out.number(magic);
    out.number(table_schema.is_narrow() ? narrow_version : version);
    out.number(std::uint64_t{0});  // size, set by finish()
    out.number(std::uint32_t{0});  // checksum, likewise
    out.number(std::int64_t{0});   // rows and bytes, set for each table
    out.number(std::uint64_t{0});
    if (table_schema.is_narrow()) {
        out.number(table_schema.row_growth());
    }
    out.number(std::uint64_t{schema.size()});
    bytes.insert(bytes.end(), schema.begin(), schema.end());
    return {std::move(bytes)};
}

PackedMetadataWriter::PackedMetadataWriter(
    PackedBeginning const& beginning, std::int64_t num_rows, std::uint64_t data_size,
    std::size_t expected_nodes) {
    bytes_.reserve(beginning.bytes.size() + expected_nodes * expected_node_size);
    bytes_.insert(bytes_.end(), beginning.bytes.begin(), beginning.bytes.end());
    std::memcpy(bytes_.data() + rows_at, &num_rows, sizeof num_rows);
    std::memcpy(bytes_.data() + data_size_at, &data_size, sizeof data_size);
}

void PackedMetadataWriter::node(Layout layout, PackedNode const& node) {
    // All words at once: a table in many small pieces has very many nodes.
    std::array<std::uint64_t, 8> words;
    std::size_t count = 0;
    auto const word = [&](auto value) { words[count++] = static_cast<std::uint64_t>(value); };
    auto const piece = [&](BufferRef const& ref) {
        word(ref.length == 0 ? 0 : ref.offset);
        word(ref.length);
    };
    word(node.length);
    word(node.null_count);
    if (layout != Layout::null) {
        piece(node.validity);
    }
    if (has_values_piece(layout)) {
        piece(node.values);
    }
    if (has_data_piece(layout)) {
        piece(node.data);
    }
    ByteWriter out{bytes_};
    out.numbers(std::span{words}.first(count));
    if (layout == Layout::view) {
        out.number(static_cast<std::uint32_t>(node.variadic.size()));
        for (auto const length : node.variadic) {
            out.number(length);
        }
    }
}

std::vector<std::uint8_t> PackedMetadataWriter::finish() {
    std::uint64_t const size = bytes_.size();
    std::memcpy(bytes_.data() + size_at, &size, sizeof size);
    auto const crc = checksum(bytes_);
    std::memcpy(bytes_.data() + crc_at, &crc, sizeof crc);
    return std::move(bytes_);
}

FixedMetadataWriter::FixedMetadataWriter(Schema const& schema) {
    bytes_ = PackedMetadataWriter::beginning(schema).bytes;
    nodes_at_ = bytes_.size();
    for (auto const& field : schema.fields()) {
        widths_.push_back(field.width());
    }
    bytes_.resize(nodes_at_ + widths_.size() * sizeof(FixedNode));
    std::uint64_t const size = bytes_.size();
    std::memcpy(bytes_.data() + size_at, &size, sizeof size);
}

std::vector<std::uint8_t> FixedMetadataWriter::of(std::int64_t num_rows, std::uint64_t data_size) {
    std::memcpy(bytes_.data() + rows_at, &num_rows, sizeof num_rows);
    std::memcpy(bytes_.data() + data_size_at, &data_size, sizeof data_size);
    auto* at = bytes_.data() + nodes_at_;
    std::uint64_t offset = 0;
    for (auto const width : widths_) {
        auto const length = static_cast<std::uint64_t>(num_rows * width);
        FixedNode const node{static_cast<std::uint64_t>(num_rows), 0, 0, 0, length == 0 ? 0 : offset, length};
        std::memcpy(at, &node, sizeof node);
        at += sizeof node;
        offset += round_up(length, buffer_alignment);
    }
    auto const crc = checksum(bytes_);
    std::memcpy(bytes_.data() + crc_at, &crc, sizeof crc);
    return bytes_;
}

PackedParts split_packed_metadata(std::span<std::uint8_t const> metadata) {
    RAPIDSMPF_EXPECTS(
        is_packed_table(metadata),
        "this is not a packed table: its metadata does not begin with the right mark", FormatError);
    RAPIDSMPF_EXPECTS(
        metadata.size() >= header_size, "malformed packed table: its metadata is cut short", FormatError);
    ByteReader in{metadata};
    static_cast<void>(in.take(4));
    auto const its_version = in.number<std::uint32_t>();
    auto const size = in.number<std::uint64_t>();
    auto const crc = in.number<std::uint32_t>();
    RAPIDSMPF_EXPECTS(
        its_version == version || its_version == narrow_version,
        "malformed packed table: version " + std::to_string(its_version) + ", this library reads "
            + std::to_string(version) + " and " + std::to_string(narrow_version),
        FormatError);
    RAPIDSMPF_EXPECTS(
        size == metadata.size(),
        "malformed packed table: " + std::to_string(metadata.size()) + " bytes of metadata where "
            + std::to_string(size) + " were packed",
        FormatError);
    RAPIDSMPF_EXPECTS(
        crc == checksum(metadata), "malformed packed table: the checksum of its metadata is wrong",
        FormatError);
    PackedParts parts{};
    parts.info.num_rows = in.number<std::int64_t>();
    parts.info.data_size = in.number<std::uint64_t>();
    RAPIDSMPF_EXPECTS(
        parts.info.num_rows >= 0, "malformed packed table: a negative number of rows", FormatError);
    parts.info.unpacked_size = parts.info.data_size;
    if (its_version == narrow_version) {
        parts.info.form = RowForm::narrow;
        auto const growth = in.number<std::int64_t>();
        std::int64_t more = 0;
        RAPIDSMPF_EXPECTS(
            growth >= 0 && !__builtin_mul_overflow(growth, parts.info.num_rows, &more)
                && !__builtin_add_overflow(
                    parts.info.data_size, static_cast<std::size_t>(more), &parts.info.unpacked_size),
            "malformed packed table: impossible growth of rows", FormatError);
    }
    parts.schema = in.take(in.number<std::uint64_t>());
    parts.nodes = in.take(in.remaining());
    return parts;
}

std::vector<Column> read_packed_columns(
    Schema const& schema, PackedParts const& parts, std::span<std::byte const> data) {
    NodeReader reader{parts.nodes, data};
    std::vector<Column> columns;
    columns.reserve(schema.fields().size());
    for (auto const& field : schema.fields()) {
        columns.push_back(reader.read(field, parts.info.num_rows, field.name()));
    }
    reader.expect_end();
    return columns;
}

bool read_fixed_columns(
    Schema const& schema, PackedParts const& parts, std::span<std::byte const> data,
    std::vector<std::byte const*>& values) {
    auto const rows = static_cast<std::uint64_t>(parts.info.num_rows);
    if (parts.nodes.size() != schema.fields().size() * sizeof(FixedNode)
        || parts.info.data_size != data.size() || rows > data.size()) {
        return false;
    }
    auto const* at = parts.nodes.data();
    for (auto const& field : schema.fields()) {
        FixedNode node;
        std::memcpy(&node, at, sizeof(FixedNode));
        at += sizeof(FixedNode);
        auto const [length, nulls, validity, validity_size, offset, size] = node;
        std::uint64_t needed = 0;
        bool const fits = length == rows && nulls == 0 && validity % buffer_alignment == 0
                          && validity <= data.size() && validity_size == 0
                          && !__builtin_mul_overflow(rows, static_cast<std::uint64_t>(field.width()), &needed)
                          && size == needed && offset % buffer_alignment == 0 && offset <= data.size()
                          && size <= data.size() - offset;
        if (!fits) {
            return false;
        }
        values.push_back(data.data() + offset);
    }
    return true;
}

}  // namespace detail

std::uint64_t packed_rows(std::span<std::uint8_t const> metadata) noexcept {
    std::uint64_t rows = 0;
    if (is_packed_table(metadata) && metadata.size() >= detail::header_size) {
        std::memcpy(&rows, metadata.data() + detail::rows_at, sizeof rows);
    }
    return rows;
}

}  // namespace rapidsmpf
