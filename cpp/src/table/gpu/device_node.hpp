// A table's columns as a flat array that kernels can read: a node for each column and each of its descendants.
//
// Plain data and plain arithmetic, the same on the host and on the device; the tests run it on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rapidsmpf/table/table.hpp>

#include "table/host/hash.hpp"

namespace rapidsmpf::detail {

struct DeviceNode {
    // Addresses of the first row's value, of its offset, of the bytes that offsets point to, and of the bitmap.
    void const* values{nullptr};
    void const* offsets{nullptr};
    void const* data{nullptr};
    std::uint8_t const* validity{nullptr};  // null: no nulls
    std::int64_t bit_offset{0};             // of the first row, in the bitmap and in values that are bits
    std::int64_t length{0};
    std::int32_t width{0};  // of a fixed-width value, in bytes; of a fixed list, in rows of its child
    Layout layout{Layout::null};
    ValueKind kind{ValueKind::plain};
    // Indices into the array; -1: there is none.
    std::int32_t parent{-1};
    std::int32_t first_child{-1};
    std::int32_t sibling{-1};
    std::int32_t dictionary{-1};
};

// How deeply key columns may be nested.
inline constexpr int max_key_depth = 12;

// In the order of a packed table's metadata: depth first, children before the dictionary. Those of the table's
// columns are siblings: the first is node 0.
[[nodiscard]] inline std::size_t append_node(
    std::vector<DeviceNode>& nodes, Field const& field, Column const& column, std::int32_t parent) {
    auto const index = nodes.size();
    DeviceNode node;
    auto const at = column.offset;
    node.layout = field.layout();
    node.kind = field.value_kind();
    node.width = static_cast<std::int32_t>(field.width());
    node.length = column.length;
    node.bit_offset = at;
    node.validity = column.validity;
    node.parent = parent;
    auto const is_narrow = node.layout == Layout::offsets32 || node.layout == Layout::list32;
    if (column.offsets != nullptr) {
        node.offsets = static_cast<std::byte const*>(column.offsets) + at * (is_narrow ? 4 : 8);
    }
    node.data = column.data.data();
    if (column.values != nullptr) {
        auto const skipped = node.layout == Layout::fixed  ? at * field.width()
                             : node.layout == Layout::view ? at * 16
                                                           : 0;
        node.values = column.values + skipped;
    }
    nodes.push_back(node);
    std::int32_t previous{-1};
    for (std::size_t i = 0; i < field.children().size(); ++i) {
        auto const child = static_cast<std::int32_t>(
            append_node(nodes, field.children()[i], column.children[i], static_cast<std::int32_t>(index)));
        (previous < 0 ? nodes[index].first_child : nodes[static_cast<std::size_t>(previous)].sibling) = child;
        previous = child;
    }
    if (field.dictionary() != nullptr) {
        nodes[index].dictionary = static_cast<std::int32_t>(
            append_node(nodes, *field.dictionary(), *column.dictionary, static_cast<std::int32_t>(index)));
    }
    return index;
}

struct DeviceNodes {
    std::vector<DeviceNode> nodes;
    std::vector<std::int32_t> columns;  // the nodes of the table's columns
    std::vector<Field const*> fields;   // of each node
};

inline void append_fields(std::vector<Field const*>& fields, Field const& field) {
    fields.push_back(&field);
    for (auto const& child : field.children()) {
        append_fields(fields, child);
    }
    if (field.dictionary() != nullptr) {
        append_fields(fields, *field.dictionary());
    }
}

[[nodiscard]] inline DeviceNodes flatten(Schema const& schema, std::vector<Column> const& columns) {
    DeviceNodes flat;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        auto const& field = schema.fields()[i];
        flat.columns.push_back(static_cast<std::int32_t>(append_node(flat.nodes, field, columns[i], -1)));
        append_fields(flat.fields, field);
    }
    return flat;
}

// Levels of lists and structs under a node, itself included.
[[nodiscard]] inline int nesting(DeviceNode const* nodes, std::int32_t index) {
    int deepest{0};
    for (auto child = nodes[index].first_child; child >= 0; child = nodes[child].sibling) {
        auto const depth = nesting(nodes, child);
        deepest = depth > deepest ? depth : deepest;
    }
    if (nodes[index].dictionary >= 0) {
        auto const depth = nesting(nodes, nodes[index].dictionary);
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest + (nodes[index].first_child >= 0 ? 1 : 0);
}

RAPIDSMPF_HOST_DEVICE inline bool bit_at(void const* bits, std::int64_t position) noexcept {
    return ((static_cast<std::uint8_t const*>(bits)[position >> 3] >> (position & 7)) & 1) != 0;
}

RAPIDSMPF_HOST_DEVICE inline bool is_null_at(DeviceNode const& node, std::int64_t row) noexcept {
    return node.layout == Layout::null
           || (node.validity != nullptr && !bit_at(node.validity, node.bit_offset + row));
}

template <typename T>
RAPIDSMPF_HOST_DEVICE inline T value_at(void const* values, std::int64_t index) noexcept {
    return static_cast<T const*>(values)[index];
}

RAPIDSMPF_HOST_DEVICE inline bool has_narrow_offsets(Layout layout) noexcept {
    return layout == Layout::offsets32 || layout == Layout::list32;
}
RAPIDSMPF_HOST_DEVICE inline bool has_offsets(Layout layout) noexcept {
    return layout == Layout::offsets32 || layout == Layout::offsets64 || layout == Layout::list32
           || layout == Layout::list64;
}
RAPIDSMPF_HOST_DEVICE inline bool is_text(Layout layout) noexcept {
    return layout == Layout::offsets32 || layout == Layout::offsets64;
}

RAPIDSMPF_HOST_DEVICE inline std::int64_t offset_at(DeviceNode const& node, std::int64_t row) noexcept {
    return has_narrow_offsets(node.layout) ? value_at<std::int32_t>(node.offsets, row)
                                           : value_at<std::int64_t>(node.offsets, row);
}

RAPIDSMPF_HOST_DEVICE inline std::int64_t code_at(DeviceNode const& node, std::int64_t row) noexcept {
    switch (node.width) {
        case 1:
            return value_at<std::uint8_t>(node.values, row);
        case 2:
            return value_at<std::uint16_t>(node.values, row);
        case 4:
            return value_at<std::uint32_t>(node.values, row);
        default:
            return value_at<std::int64_t>(node.values, row);
    }
}

RAPIDSMPF_HOST_DEVICE inline std::uint64_t take_in_fixed(
    DeviceNode const& node, std::int64_t row, std::uint64_t state) noexcept {
    switch (node.width) {
        case 1:
            return hash::combine(state, value_at<std::uint8_t>(node.values, row));
        case 2: {
            auto const bits = value_at<std::uint16_t>(node.values, row);
            return hash::combine(state, node.kind == ValueKind::float16 ? hash::float16_word(bits) : bits);
        }
        case 4: {
            auto const bits = value_at<std::uint32_t>(node.values, row);
            return hash::combine(state, node.kind == ValueKind::float32 ? hash::float32_word(bits) : bits);
        }
        case 8: {
            auto const bits = value_at<std::uint64_t>(node.values, row);
            return hash::combine(state, node.kind == ValueKind::float64 ? hash::float64_word(bits) : bits);
        }
        default:
            break;
    }
    // Words of 8 bytes, the last one padded with zeros. The bytes need not be aligned.
    auto const* const bytes =
        static_cast<std::uint8_t const*>(node.values) + row * static_cast<std::int64_t>(node.width);
    std::int32_t done = 0;
    do {
        std::uint64_t word{0};
        for (int i = 0; i < 8 && done + i < node.width; ++i) {
            word |= static_cast<std::uint64_t>(bytes[done + i]) << (8 * i);
        }
        state = hash::combine(state, word);
        done += 8;
    } while (done < node.width);
    return state;
}

// hash::bytes_word reads words at any address, which a GPU does not: this does so byte by byte there.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t word_of_bytes(
    std::uint8_t const* bytes, std::size_t size) noexcept {
    std::uint64_t word{0};
    for (std::size_t i = 0; i < size; ++i) {
        word |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    }
    return word;
}

RAPIDSMPF_HOST_DEVICE inline std::uint64_t text_word(std::uint8_t const* bytes, std::size_t size) noexcept {
    if (size <= 16) {
        auto const low = word_of_bytes(bytes, size < 8 ? size : 8);
        auto const high = size > 8 ? word_of_bytes(bytes + 8, size - 8) : 0;
        return hash::short_bytes_word(low, high, size);
    }
    std::uint64_t state = size ^ hash::key3;
    std::size_t left = size;
    for (; left > 16; left -= 16, bytes += 16) {
        state = hash::fold(word_of_bytes(bytes, 8) ^ hash::key1, word_of_bytes(bytes + 8, 8) ^ state);
    }
    auto const* const last = bytes + left - 16;
    return hash::fold(word_of_bytes(last, 8) ^ hash::key2, word_of_bytes(last + 8, 8) ^ state);
}

// A value that has no values beneath it.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t take_in_leaf(
    DeviceNode const& node, std::int64_t row, std::uint64_t state) noexcept {
    switch (node.layout) {
        case Layout::bits:
            return hash::combine(state, bit_at(node.values, node.bit_offset + row) ? 1 : 0);
        case Layout::fixed:
            return take_in_fixed(node, row, state);
        default: {
            auto const begin = offset_at(node, row);
            auto const size = static_cast<std::size_t>(offset_at(node, row + 1) - begin);
            return hash::combine(state, text_word(static_cast<std::uint8_t const*>(node.data) + begin, size));
        }
    }
}

// The state after taking in the value of any type at `row` of node `index`: what hash_value() is on the host. What
// is still to be visited is kept in a list, for a GPU has little room for recursion.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t take_in_nested(
    DeviceNode const* nodes, std::int32_t index, std::int64_t row, std::uint64_t state) noexcept {
    struct Level {
        std::int32_t node;
        std::int64_t row;
        std::int64_t items;  // of a list: how many are left; of a struct: -1
    };
    Level levels[max_key_depth];
    int depth{0};
    for (;;) {
        auto const& node = nodes[index];
        if (is_null_at(node, row)) {
            state = hash::combine(state, hash::null_word);
        } else if (node.dictionary >= 0) {
            row = code_at(node, row);
            index = node.dictionary;
            continue;
        } else if (node.layout == Layout::structure) {
            state = hash::combine(state, hash::struct_word);
            if (node.first_child >= 0) {
                levels[depth++] = {node.first_child, row, -1};
            }
        } else if (node.first_child >= 0) {
            auto const is_fixed = node.layout == Layout::fixed_list;
            auto const begin = is_fixed ? row * node.width : offset_at(node, row);
            auto const items = is_fixed ? node.width : offset_at(node, row + 1) - begin;
            state = hash::combine(state, static_cast<std::uint64_t>(items));
            if (items > 0) {
                levels[depth++] = {node.first_child, begin, items};
            }
        } else {
            state = take_in_leaf(node, row, state);
        }
        if (depth == 0) {
            return state;
        }
        auto& level = levels[depth - 1];
        index = level.node;
        row = level.row;
        if (level.items < 0) {
            level.node = nodes[index].sibling;
            depth -= level.node < 0 ? 1 : 0;
        } else {
            ++level.row;
            depth -= --level.items == 0 ? 1 : 0;
        }
    }
}

RAPIDSMPF_HOST_DEVICE inline std::uint64_t take_in(
    DeviceNode const* nodes, std::int32_t index, std::int64_t row, std::uint64_t state) noexcept {
    auto const& node = nodes[index];
    if (node.first_child >= 0 || node.dictionary >= 0 || node.layout == Layout::structure) {
        return take_in_nested(nodes, index, row, state);
    }
    return is_null_at(node, row) ? hash::combine(state, hash::null_word) : take_in_leaf(node, row, state);
}

// The hash of a row by some of the nodes.
RAPIDSMPF_HOST_DEVICE inline std::uint64_t hash_of_row(
    DeviceNode const* nodes, std::int32_t const* keys, std::int32_t num_keys, std::int64_t row,
    std::uint64_t seed) noexcept {
    auto state = hash::start(seed);
    for (std::int32_t i = 0; i < num_keys; ++i) {
        state = take_in(nodes, keys[i], row, state);
    }
    return hash::finish(state);
}

}  // namespace rapidsmpf::detail
