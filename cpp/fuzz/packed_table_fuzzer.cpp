// Packed tables that came off a wire or a disk: their metadata, the schema in it and what the buffers contain. What is taken
// is read as its users read it: every value, hashed, exported to Arrow and back.
//
// An input is: a byte of choices, a 32-bit size, metadata of that size, data. The first choice is to make the header's sizes and
// checksum right, without which nothing behind it would be looked at; others to make the table as long as its first column, and to
// take it for a narrow one, which is widened, too. Seeds: scripts/packed_table_seeds.py.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>

#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/table/table.hpp>

#include "fuzzer.hpp"
#include "table/host/column_access.hpp"
#include "table/host/hash.hpp"
#include "table/narrow/narrow_types.hpp"
#include "table/narrow/wide_writer.hpp"
#include "table/packed/packed_format.hpp"

namespace rapidsmpf::fuzz {

namespace {

using detail::PackedParts;

enum Choice : std::uint8_t { repair = 1, full = 2, same_rows = 4, narrow = 8 };
// Rows cost no bytes in columns without buffers: reading them all would take for ever.
constexpr std::int64_t most_rows = 1 << 14;

// Memory that begins where a table's must, and ends where its bytes end.
class Data {
  public:
    explicit Data(std::span<std::uint8_t const> bytes) : size_{bytes.size()} {
        void* memory = nullptr;
        require(::posix_memalign(&memory, detail::buffer_alignment, size_) == 0, "there is memory");
        bytes_.reset(static_cast<std::byte*>(memory));
        if (size_ > 0) {
            std::memcpy(bytes_.get(), bytes.data(), size_);
        }
    }
    [[nodiscard]] std::span<std::byte const> bytes() const { return {bytes_.get(), size_}; }

  private:
    struct Free {
        void operator()(std::byte* memory) const noexcept { std::free(memory); }
    };
    std::unique_ptr<std::byte, Free> bytes_;
    std::size_t size_;
};

// As packed_format.cpp lays metadata out: version, size, checksum, rows, bytes of data, size of the schema, which follows; then
// the nodes, of numbers of eight bytes.
constexpr std::size_t growth_at = 36;  // of rows, in narrow tables only
// Where the header says how large the schema is, and where it ends.
struct Header {
    std::size_t schema_size_at;
    std::size_t size;
};
Header header_of(unsigned choices) {
    auto const growth_size = (choices & Choice::narrow) != 0 ? std::size_t{8} : std::size_t{0};
    return {growth_at + growth_size, growth_at + growth_size + 8};
}

void repair_header(Bytes& metadata, std::uint64_t data_size, unsigned choices) {
    auto const [schema_size_at, header_size] = header_of(choices);
    bool const same_rows = (choices & Choice::same_rows) != 0;
    if (metadata.size() < header_size) {
        return;
    }
    std::uint64_t schema_size = 0;
    std::memcpy(&schema_size, metadata.data() + schema_size_at, 8);
    if (same_rows && metadata.size() - header_size >= 8 && schema_size <= metadata.size() - header_size - 8) {
        std::memcpy(metadata.data() + 20, metadata.data() + header_size + schema_size, 8);
    }
    std::memcpy(metadata.data(), (choices & Choice::narrow) != 0 ? "RMPT\2\0\0\0" : "RMPT\1\0\0\0", 8);
    std::uint64_t const size = metadata.size();
    std::memcpy(metadata.data() + 8, &size, 8);
    std::memcpy(metadata.data() + 28, &data_size, 8);
    auto const all = std::span<std::uint8_t const>{metadata};
    auto const crc = crc32c(all.subspan(20), crc32c(all.first(16)));
    std::memcpy(metadata.data() + 16, &crc, 4);
}

// All rows of all nodes, or none when there are more than can be read.
std::optional<std::int64_t> count_rows(Column const& column) {
    std::int64_t rows = column.length;
    auto const add = [&](Column const& below) {
        auto const more = count_rows(below);
        rows = more && rows <= most_rows ? rows + *more : most_rows + 1;
    };
    if (rows <= most_rows) {
        for (auto const& child : column.children) {
            add(child);
        }
        if (column.dictionary) {
            add(*column.dictionary);
        }
    }
    return rows <= most_rows ? std::optional{rows} : std::nullopt;
}

struct Reader {
    unsigned sum{0};  // of all bytes, so that each is read

    void bytes(std::span<std::uint8_t const> some) {
        for (auto const byte : some) {
            sum += byte;
        }
    }

    void column(Field const& field, Column const& column) {
        for (std::int64_t row = 0; row < column.length; ++row) {
            value(field, column, row);
        }
        for (std::size_t i = 0; i < column.children.size(); ++i) {
            this->column(field.children()[i], column.children[i]);
        }
        if (column.dictionary) {
            this->column(*field.dictionary(), *column.dictionary);
        }
    }

    void value(Field const& field, Column const& column, std::int64_t row) {
        bool const valid = column.is_valid(row);
        auto const fixed = [&](std::int64_t width) {
            auto const* const first = reinterpret_cast<std::uint8_t const*>(column.values);
            bytes({first + (column.offset + row) * width, static_cast<std::size_t>(width)});
        };
        switch (field.layout()) {
            case Layout::null:
                break;
            case Layout::bits: {
                auto const bit = column.offset + row;
                sum += (static_cast<unsigned>(column.values[bit >> 3]) >> (bit & 7)) & 1U;
                break;
            }
            case Layout::fixed:
                fixed(field.width());
                require(
                    field.dictionary() == nullptr || !valid
                        || detail::code_at(field, column, row)
                               < static_cast<std::uint64_t>(column.dictionary->length),
                    "a code is one of the dictionary's");
                break;
            case Layout::offsets32:
            case Layout::offsets64:
            case Layout::view:
                bytes(detail::bytes_at(field.layout(), column, row));
                break;
            case Layout::list32:
            case Layout::list64:
            case Layout::fixed_list: {
                auto const items = detail::items_at(field, column, row);
                require(
                    items.begin >= 0 && items.length >= 0
                        && items.begin + items.length <= column.children[0].length,
                    "items are the child's");
                break;
            }
            case Layout::structure:
                require(column.children.empty() || row < column.children[0].length, "fields have the rows");
                break;
        }
    }
};

detail::BufferRef piece_at(void const* pointer, std::size_t size, std::span<std::byte const> data) {
    return size == 0
               ? detail::BufferRef{}
               : detail::BufferRef{
                     static_cast<std::uint64_t>(static_cast<std::byte const*>(pointer) - data.data()), size};
}

// Metadata of the same columns.
void write_node(
    detail::PackedMetadataWriter& writer, Field const& field, Column const& column,
    std::span<std::byte const> data) {
    auto const rows = static_cast<std::size_t>(column.length);
    detail::PackedNode node;
    node.length = column.length;
    node.null_count = column.null_count;
    node.validity = piece_at(column.validity, column.validity == nullptr ? 0 : (rows + 7) / 8, data);
    switch (field.layout()) {
        case Layout::bits:
            node.values = piece_at(column.values, (rows + 7) / 8, data);
            break;
        case Layout::fixed:
            node.values = piece_at(column.values, rows * static_cast<std::size_t>(field.width()), data);
            break;
        case Layout::offsets32:
        case Layout::list32:
            node.values = piece_at(column.offsets, rows == 0 ? 0 : (rows + 1) * 4, data);
            break;
        case Layout::offsets64:
        case Layout::list64:
            node.values = piece_at(column.offsets, rows == 0 ? 0 : (rows + 1) * 8, data);
            break;
        case Layout::view: {
            node.values = piece_at(column.values, rows * 16, data);
            std::size_t size = 0;
            for (auto const& buffer : column.variadic) {
                node.variadic.push_back(static_cast<std::int64_t>(buffer.size()));
                size += buffer.size();
            }
            node.data = piece_at(column.variadic.empty() ? nullptr : column.variadic[0].data(), size, data);
            break;
        }
        case Layout::null:
        case Layout::fixed_list:
        case Layout::structure:
            break;
    }
    if (field.layout() == Layout::offsets32 || field.layout() == Layout::offsets64) {
        node.data = piece_at(column.data.data(), column.data.size(), data);
    }
    writer.node(field.layout(), node);
    for (std::size_t i = 0; i < column.children.size(); ++i) {
        write_node(writer, field.children()[i], column.children[i], data);
    }
    if (column.dictionary) {
        write_node(writer, *field.dictionary(), *column.dictionary, data);
    }
}

void write_again(
    Schema const& schema, std::vector<Column> const& columns, PackedParts const& parts,
    std::span<std::byte const> data) {
    detail::PackedMetadataWriter writer{
        detail::PackedMetadataWriter::beginning(schema), parts.info.num_rows, data.size(), columns.size()};
    for (std::size_t i = 0; i < columns.size(); ++i) {
        write_node(writer, schema.fields()[i], columns[i], data);
    }
    auto const metadata = writer.finish();
    auto const again = detail::read_packed_columns(schema, detail::split_packed_metadata(metadata), data);
    detail::validate_columns(schema, again, ValidateData::bounds);
}

// What concat reads tables of plain columns by.
void read_plain(Schema const& schema, PackedParts const& parts, std::span<std::byte const> data) {
    for (auto const& field : schema.fields()) {
        if (field.layout() != Layout::fixed || field.dictionary() != nullptr) {
            return;
        }
    }
    std::vector<std::byte const*> values;
    if (!detail::read_fixed_columns(schema, parts, data, values)) {
        return;
    }
    Reader reader;
    for (std::size_t i = 0; i < values.size(); ++i) {
        auto const size = static_cast<std::size_t>(parts.info.num_rows * schema.fields()[i].width());
        reader.bytes({reinterpret_cast<std::uint8_t const*>(values[i]), size});
    }
    auto const metadata = detail::FixedMetadataWriter{schema}.of(
        parts.info.num_rows, static_cast<std::uint64_t>(parts.info.num_rows) << 16U);
    static_cast<void>(detail::split_packed_metadata(metadata));
}

void use(Table const& table) {
    static_cast<void>(table.byte_size());
    auto const half = table.slice(table.num_rows() / 2, table.num_rows() - table.num_rows() / 2);
    static_cast<void>(half.byte_size());
    std::vector<int> keys;
    for (std::size_t i = 0; i < table.num_columns(); ++i) {
        keys.push_back(static_cast<int>(i));
    }
    if (!keys.empty()) {
        std::vector<std::uint64_t> hashes(static_cast<std::size_t>(half.num_rows()));
        hash_rows(half, keys, 0, hashes);
    }
    ArrowArray array{};
    table.export_array(&array);
    auto const again = Table::import_arrow(table.schema(), &array);
    require(again.num_rows() == table.num_rows(), "as many rows come back");
}

// A field says again which type its rows have.
void mark_again(Field const& field, Field const& wide) {
    if (!detail::is_marked(field)) {
        return;
    }
    auto const again = detail::narrow_field(wide, field.width(), detail::growth_of(field));
    require(again.format() == field.format(), "a column is as narrow as it was");
    require(detail::growth_of(again) == detail::growth_of(field), "a row grows as it did");
    require(detail::wide_field(again).format() == wide.format(), "the type of the rows comes back");
}

// Twice, as two parts of one table.
void widen(Table const& table) {
    std::shared_ptr<Schema const> wide;
    if (!takes([&] { wide = detail::wide_schema(table.schema()); })) {
        return;  // a field says something impossible
    }
    std::vector<std::size_t> changed;
    std::vector<Field> fields;
    for (std::size_t i = 0; i < wide->num_columns(); ++i) {
        mark_again(table.schema()->fields()[i], wide->fields()[i]);
        if (wide->fields()[i].format() != table.schema()->fields()[i].format()) {
            changed.push_back(i);
            fields.push_back(wide->fields()[i]);
        }
    }
    std::vector<std::optional<Table>> const parts{table, table};
    detail::WideWriter writer{*wide, parts, changed, 2 * table.num_rows()};
    auto const memory = std::make_shared<Data const>(Bytes(writer.size()));
    writer.place(const_cast<std::byte*>(memory->bytes().data()));
    writer.append(table);
    writer.append(table);
    std::vector<Column> columns;
    Reader reader;
    for (std::size_t i = 0; i < changed.size(); ++i) {
        columns.push_back(writer.column(i));
        reader.column(fields[i], columns.back());
    }
    use(Table{
        std::make_shared<Schema const>(std::move(fields)), std::move(columns), 2 * table.num_rows(), memory});
}

void use_schema(Schema const& schema) {
    ArrowSchema exported{};
    schema.to_arrow(&exported);
    auto const again = Schema::from_arrow(exported);
    exported.release(&exported);
    require(difference(schema, *again).empty(), "the schema comes back");
    for (auto const& field : schema.fields()) {
        static_cast<void>(field.type_name());
        static_cast<void>(schema.index_of(field.name()));
    }
    static_cast<void>(takes<std::invalid_argument>([&] { static_cast<void>(schema.index_of("no such")); }));
}

}  // namespace

void read_input(std::span<std::uint8_t const> bytes) {
    Input input{bytes};
    auto const choices = input.byte();
    std::uint32_t metadata_size = 0;
    auto const size = input.take(sizeof metadata_size);
    std::memcpy(&metadata_size, size.data(), size.size());
    auto metadata = copied(input.take(metadata_size));
    auto const memory = std::make_shared<Data const>(input.rest());
    auto const data = memory->bytes();
    if ((choices & Choice::repair) != 0) {
        repair_header(metadata, data.size(), choices);
    }
    static_cast<void>(is_packed_table(metadata));
    std::optional<PackedParts> parts;
    std::shared_ptr<Schema const> schema;
    if (!takes([&] {
            parts = detail::split_packed_metadata(metadata);
            schema = Schema::deserialize(parts->schema, parts->info.form);
        })
        || parts->info.data_size != data.size()) {  // as unpack() has it
        return;
    }
    require(copied(schema->serialized()) == copied(parts->schema), "a schema says the same again");
    use_schema(*schema);
    read_plain(*schema, *parts, data);
    std::vector<Column> columns;
    if (!takes([&] {
            columns = detail::read_packed_columns(*schema, *parts, data);
            detail::validate_columns(
                *schema, columns, (choices & Choice::full) != 0 ? ValidateData::full : ValidateData::bounds);
        })) {
        return;
    }
    write_again(*schema, columns, *parts, data);
    std::int64_t rows = 0;
    for (auto const& column : columns) {
        auto const more = count_rows(column);
        if (!more || rows + *more > most_rows) {
            return;
        }
        rows += *more;
    }
    Reader reader;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        reader.column(schema->fields()[i], columns[i]);
    }
    if (parts->info.num_rows > most_rows) {
        return;
    }
    Table table{schema, std::move(columns), parts->info.num_rows, memory};
    if (!schema->is_narrow()) {
        use(table);
        return;
    }
    widen(table);
}

// A number at which arithmetic with rows and sizes goes wrong.
std::uint64_t a_limit(std::minstd_rand& random) {
    auto const most = random() % 2 == 0 ? std::uint64_t{INT64_MAX} : std::uint64_t{UINT64_MAX};
    return (most >> (random() % 8)) + random() % 3 - 1;
}

// Writes such a number into a word of the nodes, which are few bytes of an input, or makes the first column and with it the
// table so long; false where there are no nodes.
bool change_a_word(std::span<std::uint8_t> input, std::minstd_rand& random) {
    constexpr std::size_t word_size = sizeof(std::uint64_t);
    constexpr std::size_t metadata_at = 1 + sizeof(std::uint32_t);
    auto const [schema_size_at, header_size] = header_of(input.empty() ? 0U : unsigned{input[0]});
    if (input.size() < metadata_at + header_size) {
        return false;
    }
    std::uint32_t metadata_size = 0;
    std::uint64_t schema_size = 0;
    std::memcpy(&metadata_size, input.data() + 1, sizeof metadata_size);
    std::memcpy(&schema_size, input.data() + metadata_at + schema_size_at, sizeof schema_size);
    auto const rest = input.subspan(metadata_at + header_size);
    auto const end = metadata_size < header_size ? 0 : std::min(metadata_size - header_size, rest.size());
    constexpr std::size_t words_without_nulls = 4;  // length, null count, and where the validity is
    if (schema_size >= end || end - schema_size < words_without_nulls * word_size) {
        return false;
    }
    auto const nodes = rest.subspan(schema_size, end - schema_size);
    auto const limit = a_limit(random);
    if (random() % 2 == 0) {
        input[0] |= Choice::repair | Choice::same_rows;
        std::fill_n(nodes.begin(), words_without_nulls * word_size, std::uint8_t{0});
        std::memcpy(nodes.data(), &limit, word_size);
    } else {
        auto const word = random() % (nodes.size() / word_size);
        std::memcpy(nodes.data() + word * word_size, &limit, word_size);
    }
    return true;
}

std::vector<Bytes> seeds() {
    return {};  // tables of every type come from scripts/packed_table_seeds.py, by the library itself
}

}  // namespace rapidsmpf::fuzz

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(
    std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
    std::minstd_rand random{seed};
    if (random() % 4 == 0 && rapidsmpf::fuzz::change_a_word({data, size}, random)) {
        return size;
    }
    return LLVMFuzzerMutate(data, size, max_size);
}
