#include <rapidsmpf/parquet/detail/column_facts.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "parquet/compact_reader.hpp"

namespace rapidsmpf::parquet {

namespace {

// Parquet's physical types.
namespace physical {
constexpr std::int64_t boolean = 0;
constexpr std::int64_t int32 = 1;
constexpr std::int64_t int64 = 2;
constexpr std::int64_t float32 = 4;
constexpr std::int64_t float64 = 5;
constexpr std::int64_t byte_array = 6;
constexpr std::int64_t fixed_bytes = 7;
}  // namespace physical

// A SchemaElement.
struct Element {
    std::string_view name;
    std::int64_t type{-1};  // of a leaf
    std::int64_t repetition{-1};
    std::int64_t children{0};
    std::int64_t converted_type{-1};
    std::int64_t scale{0};
    std::int64_t logical_type{0};  // the field of the union that is there
    std::int64_t logical_scale{-1};
    bool is_signed{true};
};

// LogicalType, a union.
void read_logical_type(CompactReader& reader, Element& element) {
    constexpr std::int64_t decimal = 5;
    constexpr std::int64_t integer = 10;
    reader.fields(
        [&](std::int64_t kind, std::uint8_t type) {
            element.logical_type = kind;
            if (type != wire::structure) {
                return false;
            }
            reader.fields(
                [&](std::int64_t field, std::uint8_t of) {
                    if (kind == decimal && field == 1) {
                        return reader.take_integer(of, element.logical_scale);
                    }
                    if (kind == integer && field == 2) {
                        element.is_signed = of != wire::boolean_false;
                    }
                    return false;
                },
                3);
            return true;
        },
        2);
}

Element read_element(CompactReader& reader) {
    Element element;
    reader.fields(
        [&](std::int64_t field, std::uint8_t type) {
            switch (field) {
                case 1:
                    return reader.take_integer(type, element.type);
                case 3:
                    return reader.take_integer(type, element.repetition);
                case 4:
                    if (type != wire::binary) {
                        return false;
                    }
                    element.name = reader.bytes();
                    return true;
                case 5:
                    return reader.take_integer(type, element.children);
                case 6:
                    return reader.take_integer(type, element.converted_type);
                case 7:
                    return reader.take_integer(type, element.scale);
                case 10:
                    if (type != wire::structure) {
                        return false;
                    }
                    read_logical_type(reader, element);
                    return true;
                default:
                    return false;
            }
        },
        1);
    return element;
}

ValueType integers_of(Element const& element) {
    switch (element.logical_type) {
        case 5:
            return ValueType::decimal;
        case 6:
            return ValueType::day;
        case 7:
        case 8:
            return ValueType::clock;
        case 10:
            return element.is_signed ? ValueType::signed_integer : ValueType::unsigned_integer;
        case 0:
            break;
        default:
            return ValueType::unknown;
    }
    switch (element.converted_type) {
        case 5:
            return ValueType::decimal;
        case 6:
            return ValueType::day;
        case 7:
        case 8:
        case 9:
        case 10:
            return ValueType::clock;
        case 11:
        case 12:
        case 13:
        case 14:
            return ValueType::unsigned_integer;
        case -1:
        case 15:
        case 16:
        case 17:
        case 18:
            return ValueType::signed_integer;
        default:
            return ValueType::unknown;
    }
}

ValueType bytes_of(Element const& element) {
    switch (element.logical_type) {
        case 1:
            return ValueType::text;
        case 5:
            return ValueType::decimal_bytes;
        case 0:
            break;
        default:
            return ValueType::unknown;
    }
    switch (element.converted_type) {
        case 0:
            return ValueType::text;
        case 5:
            return ValueType::decimal_bytes;
        case -1:
            return ValueType::bytes;
        default:
            return ValueType::unknown;
    }
}

ValueType type_of(Element const& element) {
    switch (element.type) {
        case physical::boolean:
            return ValueType::boolean;
        case physical::int32:
        case physical::int64:
            return integers_of(element);
        case physical::float32:
            return ValueType::float32;
        case physical::float64:
            return ValueType::float64;
        case physical::byte_array:
        case physical::fixed_bytes:
            return bytes_of(element);
        default:
            return ValueType::unknown;
    }
}

// A column that is not nested.
struct Leaf {
    std::size_t number;  // among all leaves
    Element element;
};

// Of the schema, which is a tree, depth first.
std::optional<Leaf> find_leaf(CompactReader& reader, std::string_view name) {
    auto const count = reader.structures("the elements of the schema");
    std::optional<Leaf> found;
    std::size_t leaves = 0;
    std::int64_t left_below = 0;  // elements that belong to the present column of the root
    for (std::size_t i = 0; i < count; ++i) {
        auto const element = read_element(reader);
        if (element.children < 0 || element.children > static_cast<std::int64_t>(count)) {
            throw FooterError{"the schema has an impossible number of children"};
        }
        if (i == 0) {
            continue;  // the root
        }
        bool const is_top = left_below == 0;
        left_below += element.children - (is_top ? 0 : 1);
        if (element.children > 0) {
            continue;
        }
        if (is_top && !found && element.type >= 0 && element.name == name) {
            found = Leaf{leaves, element};
        }
        ++leaves;
    }
    return found;
}

struct Bounds {
    std::optional<std::string_view> least;
    std::optional<std::string_view> most;
};

// Statistics. The deprecated bounds were compared as signed numbers, which is right for few types.
void read_statistics(CompactReader& reader, bool takes_deprecated, ChunkFacts& facts) {
    Bounds bounds;
    Bounds deprecated;
    reader.fields(
        [&](std::int64_t field, std::uint8_t type) {
            if (field == 3) {
                return reader.take_integer(type, facts.nulls);
            }
            if (type != wire::binary) {
                return false;
            }
            switch (field) {
                case 1:
                    deprecated.most = reader.bytes();
                    return true;
                case 2:
                    deprecated.least = reader.bytes();
                    return true;
                case 5:
                    bounds.most = reader.bytes();
                    return true;
                case 6:
                    bounds.least = reader.bytes();
                    return true;
                default:
                    return false;
            }
        },
        4);
    if (!(bounds.least && bounds.most) && takes_deprecated) {
        bounds = deprecated;
    }
    if (bounds.least && bounds.most) {
        facts.has_bounds = true;
        facts.least = *bounds.least;
        facts.most = *bounds.most;
    }
}

bool compares_as_signed(ValueType type) {
    return type == ValueType::signed_integer || type == ValueType::day || type == ValueType::clock
           || type == ValueType::decimal || type == ValueType::float32 || type == ValueType::float64;
}

// Whether a path in the schema is that one name.
bool is_path(CompactReader& reader, std::string_view name) {
    auto const [count, type] = reader.list_header();
    bool is_same = count == 1;
    for (std::size_t i = 0; i < count; ++i) {
        if (type != wire::binary) {
            throw FooterError{"the path of a column is no text"};
        }
        is_same &= reader.bytes() == name;
    }
    return is_same;
}

// ColumnChunk, into what is known of its rows.
void read_chunk(CompactReader& reader, Leaf const& leaf, ValueType value_type, ChunkFacts& facts) {
    bool is_readable = true;
    bool is_its = false;
    std::int64_t physical_type = -1;
    ChunkFacts told;
    reader.fields(
        [&](std::int64_t field, std::uint8_t type) {
            if (field == 8 || field == 9) {
                is_readable = false;  // encrypted
                return false;
            }
            if (field != 3 || type != wire::structure) {
                return false;
            }
            reader.fields(
                [&](std::int64_t of_data, std::uint8_t its_type) {
                    if (of_data == 1) {
                        return reader.take_integer(its_type, physical_type);
                    }
                    if (of_data == 3 && its_type == wire::list) {
                        is_its = is_path(reader, leaf.element.name);
                        return true;
                    }
                    if (of_data == 12 && its_type == wire::structure) {
                        read_statistics(reader, compares_as_signed(value_type), told);
                        return true;
                    }
                    return false;
                },
                3);
            return true;
        },
        2);
    if (is_readable && is_its && physical_type == leaf.element.type) {
        auto const rows = facts.rows;
        facts = std::move(told);
        facts.rows = rows;
    }
}

}  // namespace

std::vector<RowGroupSize> row_group_sizes(std::span<std::uint8_t const> footer) {
    CompactReader reader{footer};
    std::vector<RowGroupSize> sizes;
    bool found = false;
    reader.fields(
        [&](std::int64_t field, std::uint8_t type) {
            if (field != 4 || type != wire::list || found) {
                return false;
            }
            found = true;
            for (auto left = reader.structures("the row groups"); left > 0; --left) {
                RowGroupSize size{-1, -1};
                reader.fields(
                    [&](std::int64_t of_group, std::uint8_t its_type) {
                        return of_group == 2   ? reader.take_integer(its_type, size.bytes)
                               : of_group == 3 ? reader.take_integer(its_type, size.rows)
                                               : false;
                    },
                    1);
                if (size.rows < 0 || size.bytes < 0) {
                    throw FooterError{"a row group has no size, or a negative one"};
                }
                sizes.push_back(size);
            }
            return true;
        },
        0);
    if (!found) {
        throw FooterError{"the footer has no row groups"};
    }
    return sizes;
}

std::optional<ColumnFacts> column_facts(std::span<std::uint8_t const> footer, std::string_view name) {
    CompactReader reader{footer};
    std::optional<Leaf> leaf;
    ColumnFacts facts;
    bool has_schema = false;
    bool has_groups = false;
    reader.fields(
        [&](std::int64_t field, std::uint8_t type) {
            if (field == 2 && type == wire::list && !has_schema) {
                has_schema = true;
                leaf = find_leaf(reader, name);
                if (leaf) {
                    constexpr std::int64_t required = 0;
                    auto const& element = leaf->element;
                    facts.type = type_of(element);
                    facts.is_required = element.repetition == required;
                    facts.scale = static_cast<std::int32_t>(
                        element.logical_scale >= 0 ? element.logical_scale : element.scale);
                }
                return true;
            }
            if (field != 4 || type != wire::list || has_groups || !leaf) {
                return false;
            }
            has_groups = true;
            for (auto left = reader.structures("the row groups"); left > 0; --left) {
                ChunkFacts chunk;
                chunk.rows = -1;
                reader.fields(
                    [&](std::int64_t of_group, std::uint8_t its_type) {
                        if (of_group == 3) {
                            return reader.take_integer(its_type, chunk.rows);
                        }
                        if (of_group != 1 || its_type != wire::list) {
                            return false;
                        }
                        auto const count = reader.structures("the columns of a row group");
                        for (std::size_t i = 0; i < count; ++i) {
                            if (i == leaf->number) {
                                read_chunk(reader, *leaf, facts.type, chunk);
                            } else {
                                reader.skip(wire::structure, 2);
                            }
                        }
                        return true;
                    },
                    1);
                if (chunk.rows < 0) {
                    throw FooterError{"a row group does not say its rows"};
                }
                facts.chunks.push_back(std::move(chunk));
            }
            return true;
        },
        0);
    if (reader.at() != footer.data() + footer.size()) {
        throw FooterError{"the footer is signed, for columns are encrypted"};
    }
    if (!leaf) {
        return std::nullopt;
    }
    if (!has_groups) {
        throw FooterError{"the footer has no row groups behind its schema"};
    }
    return facts;
}

}  // namespace rapidsmpf::parquet
