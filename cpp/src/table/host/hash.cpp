#include "table/host/hash.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <rapidsmpf/core/error.hpp>

#include "table/gpu/device_table.hpp"
#include "table/host/bits.hpp"
#include "table/host/column_access.hpp"
#include "table/host/row_hasher.hpp"

namespace rapidsmpf {

namespace detail {

namespace {

template <typename Word>
void take_in(Column const& column, std::int64_t first, std::span<std::uint64_t> states, Word const& word) {
    auto const count = static_cast<std::int64_t>(states.size());
    if (column.validity == nullptr) {
        for (std::int64_t i = 0; i < count; ++i) {
            states[static_cast<std::size_t>(i)] =
                hash::combine(states[static_cast<std::size_t>(i)], word(first + i));
        }
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
        auto& state = states[static_cast<std::size_t>(i)];
        state = hash::combine(state, column.is_valid(first + i) ? word(first + i) : hash::null_word);
    }
}

std::uint64_t view_word(Column const& column, std::int64_t row) {
    auto const view = load_view(column, row);
    if (view.size > View::max_inline) {
        auto const* const bytes =
            reinterpret_cast<std::uint8_t const*>(column.variadic[view.buffer].data()) + view.offset;
        return hash::bytes_word(bytes, view.size);
    }
    // Bytes after the text are zero by the specification; a producer that errs there must not matter.
    auto low = view.prefix | (static_cast<std::uint64_t>(view.buffer) << 32U);
    std::uint64_t high = view.offset;
    if (view.size <= 8) {
        low &= low_bits(8 * static_cast<std::int64_t>(view.size));
        high = 0;
    } else {
        high &= low_bits(8 * (static_cast<std::int64_t>(view.size) - 8));
    }
    return hash::short_bytes_word(low, high, view.size);
}

std::uint64_t text_word(Layout layout, Column const& column, std::int64_t row) {
    if (layout == Layout::view) {
        return view_word(column, row);
    }
    auto const bytes = bytes_at(layout, column, row);
    return hash::bytes_word(bytes.data(), bytes.size());
}

bool is_text_like(Layout layout) {
    return layout == Layout::view || layout == Layout::offsets32 || layout == Layout::offsets64;
}

// The word of a fixed-width value of at most 8 bytes (1, 2, 4 or 8 of them).
template <typename T, ValueKind kind>
std::uint64_t fixed_word(Column const& column, std::int64_t row) {
    auto const bits = load<T>(column.values, column.offset + row);
    if constexpr (kind == ValueKind::float64) {
        return hash::float64_word(bits);
    } else if constexpr (kind == ValueKind::float32) {
        return hash::float32_word(bits);
    } else if constexpr (kind == ValueKind::float16) {
        return hash::float16_word(bits);
    } else {
        return bits;
    }
}

std::uint64_t hash_fixed(Field const& field, Column const& column, std::int64_t row, std::uint64_t state) {
    switch (field.value_kind()) {
        case ValueKind::float64:
            return hash::combine(state, fixed_word<std::uint64_t, ValueKind::float64>(column, row));
        case ValueKind::float32:
            return hash::combine(state, fixed_word<std::uint32_t, ValueKind::float32>(column, row));
        case ValueKind::float16:
            return hash::combine(state, fixed_word<std::uint16_t, ValueKind::float16>(column, row));
        case ValueKind::plain:
            break;
    }
    // Words of 8 bytes, the last one padded with zeros; fixed-size binary has any width.
    auto const width = static_cast<std::size_t>(field.width());
    auto const* const bytes =
        reinterpret_cast<std::uint8_t const*>(column.values) + (column.offset + row) * field.width();
    std::size_t done = 0;
    do {
        auto const size = std::min<std::size_t>(width - done, 8);
        state = hash::combine(state, size == 0 ? 0 : hash::load_word(bytes + done, size));
        done += size;
    } while (done < width);
    return state;
}

// Calls use(word), where word(row) is what a valid value contributes, if one word is all that it does; else returns false.
template <typename Use>
bool with_words(Field const& field, Column const& column, Use const& use) {
    if (field.dictionary() != nullptr) {
        return false;
    }
    if (field.layout() == Layout::view) {
        use([&](std::int64_t row) { return view_word(column, row); });
        return true;
    }
    if (field.layout() != Layout::fixed) {
        return false;
    }
    auto const use_fixed = [&]<typename T, ValueKind kind>() {
        use([&](std::int64_t row) { return fixed_word<T, kind>(column, row); });
        return true;
    };
    switch (field.value_kind()) {
        case ValueKind::float64:
            return use_fixed.template operator()<std::uint64_t, ValueKind::float64>();
        case ValueKind::float32:
            return use_fixed.template operator()<std::uint32_t, ValueKind::float32>();
        case ValueKind::float16:
            return use_fixed.template operator()<std::uint16_t, ValueKind::float16>();
        case ValueKind::plain:
            break;
    }
    switch (field.width()) {
        case 1:
            return use_fixed.template operator()<std::uint8_t, ValueKind::plain>();
        case 2:
            return use_fixed.template operator()<std::uint16_t, ValueKind::plain>();
        case 4:
            return use_fixed.template operator()<std::uint32_t, ValueKind::plain>();
        case 8:
            return use_fixed.template operator()<std::uint64_t, ValueKind::plain>();
        default:
            return false;
    }
}

// The words of all values of a dictionary of texts; empty when values are not texts.
std::vector<std::uint64_t> dictionary_words(Field const& field, Column const& values) {
    std::vector<std::uint64_t> words;
    if (is_text_like(field.layout())) {
        words.resize(static_cast<std::size_t>(values.length));
        for (std::int64_t i = 0; i < values.length; ++i) {
            words[static_cast<std::size_t>(i)] =
                values.is_valid(i) ? text_word(field.layout(), values, i) : hash::null_word;
        }
    }
    return words;
}

}  // namespace

std::uint64_t hash_value(Field const& field, Column const& column, std::int64_t row, std::uint64_t state) {
    if (field.layout() == Layout::null || !column.is_valid(row)) {
        return hash::combine(state, hash::null_word);
    }
    if (field.dictionary() != nullptr) {
        auto const code = static_cast<std::int64_t>(code_at(field, column, row));
        return hash_value(*field.dictionary(), *column.dictionary, code, state);
    }
    switch (field.layout()) {
        case Layout::bits: {
            auto const bit =
                get_bit(reinterpret_cast<std::uint8_t const*>(column.values), column.offset + row);
            return hash::combine(state, bit ? 1 : 0);
        }
        case Layout::fixed:
            return hash_fixed(field, column, row, state);
        case Layout::offsets32:
        case Layout::offsets64:
        case Layout::view:
            return hash::combine(state, text_word(field.layout(), column, row));
        case Layout::list32:
        case Layout::list64:
        case Layout::fixed_list: {
            auto const items = items_at(field, column, row);
            state = hash::combine(state, static_cast<std::uint64_t>(items.length));
            for (std::int64_t i = 0; i < items.length; ++i) {
                state = hash_value(field.children()[0], column.children[0], items.begin + i, state);
            }
            return state;
        }
        case Layout::structure:
            state = hash::combine(state, hash::struct_word);
            for (std::size_t i = 0; i < column.children.size(); ++i) {
                state = hash_value(field.children()[i], column.children[i], row, state);
            }
            return state;
        case Layout::null:
            break;
    }
    return state;
}

bool same_value(
    Field const& field, Column const& a, std::int64_t row_a, Column const& b, std::int64_t row_b) {
    if (field.layout() == Layout::null) {
        return true;
    }
    auto const valid = a.is_valid(row_a);
    if (valid != b.is_valid(row_b) || !valid) {
        return valid == b.is_valid(row_b);
    }
    if (field.dictionary() != nullptr) {
        return same_value(
            *field.dictionary(), *a.dictionary, static_cast<std::int64_t>(code_at(field, a, row_a)),
            *b.dictionary, static_cast<std::int64_t>(code_at(field, b, row_b)));
    }
    switch (field.layout()) {
        case Layout::bits:
            return get_bit(reinterpret_cast<std::uint8_t const*>(a.values), a.offset + row_a)
                   == get_bit(reinterpret_cast<std::uint8_t const*>(b.values), b.offset + row_b);
        case Layout::fixed:
            return field.width() == 0
                   || std::memcmp(
                          a.values + (a.offset + row_a) * field.width(),
                          b.values + (b.offset + row_b) * field.width(),
                          static_cast<std::size_t>(field.width()))
                          == 0;
        case Layout::offsets32:
        case Layout::offsets64:
        case Layout::view: {
            auto const left = bytes_at(field.layout(), a, row_a);
            auto const right = bytes_at(field.layout(), b, row_b);
            return std::equal(left.begin(), left.end(), right.begin(), right.end());
        }
        case Layout::list32:
        case Layout::list64:
        case Layout::fixed_list: {
            auto const left = items_at(field, a, row_a);
            auto const right = items_at(field, b, row_b);
            if (left.length != right.length) {
                return false;
            }
            for (std::int64_t i = 0; i < left.length; ++i) {
                if (!same_value(
                        field.children()[0], a.children[0], left.begin + i, b.children[0], right.begin + i)) {
                    return false;
                }
            }
            return true;
        }
        case Layout::structure:
            for (std::size_t i = 0; i < a.children.size(); ++i) {
                if (!same_value(field.children()[i], a.children[i], row_a, b.children[i], row_b)) {
                    return false;
                }
            }
            return true;
        case Layout::null:
            break;
    }
    return true;
}

RowHasher::RowHasher(Table const& table, std::span<int const> key_columns, std::uint64_t seed) : seed_{seed} {
    for (auto const index : key_columns) {
        RAPIDSMPF_EXPECTS(
            index >= 0 && static_cast<std::size_t>(index) < table.num_columns(),
            "there is no key column number " + std::to_string(index) + " in a table of "
                + std::to_string(table.num_columns()) + " columns",
            std::out_of_range);
        auto const at = static_cast<std::size_t>(index);
        Key key{&table.schema()->fields()[at], &table.columns()[at], {}};
        if (key.column->dictionary && key.column->dictionary->length <= table.num_rows()) {
            key.dictionary_words = dictionary_words(*key.field->dictionary(), *key.column->dictionary);
        }
        keys_.push_back(std::move(key));
    }
}

template <typename Use>
bool RowHasher::with_words_of(Key const& key, Use const& use) {
    if (key.dictionary_words.empty()) {
        return with_words(*key.field, *key.column, use);
    }
    use([&](std::int64_t row) { return key.dictionary_words[code_at(*key.field, *key.column, row)]; });
    return true;
}

void RowHasher::take_in_key(Key const& key, std::int64_t first, std::span<std::uint64_t> states) {
    auto const by_words =
        with_words_of(key, [&](auto const& word) { take_in(*key.column, first, states, word); });
    for (std::size_t i = 0; !by_words && i < states.size(); ++i) {
        states[i] = hash_value(*key.field, *key.column, first + static_cast<std::int64_t>(i), states[i]);
    }
}

// Everything but the last step.
void RowHasher::states(std::int64_t first, std::span<std::uint64_t> states) const {
    std::fill(states.begin(), states.end(), hash::start(seed_));
    for (auto const& key : keys_) {
        take_in_key(key, first, states);
    }
}

// One pass over a single key that has no nulls, as most are; the compiler knows everything but the values.
bool RowHasher::partitions_of_one_key(
    std::int64_t first, std::uint32_t num_partitions, std::span<std::uint32_t> partitions) const {
    if (keys_.size() != 1 || keys_.front().column->validity != nullptr) {
        return false;
    }
    auto const state = hash::start(seed_);
    return with_words_of(keys_.front(), [&](auto const& word) {
        auto* const out = partitions.data();
        auto const count = static_cast<std::int64_t>(partitions.size());
        for (std::int64_t i = 0; i < count; ++i) {
            out[i] = hash::partition_of(hash::finish(hash::combine(state, word(first + i))), num_partitions);
        }
    });
}

void RowHasher::operator()(std::int64_t first, std::span<std::uint64_t> hashes) const {
    states(first, hashes);
    for (auto& value : hashes) {
        value = hash::finish(value);
    }
}

void RowHasher::partitions(
    std::int64_t first, std::uint32_t num_partitions, std::span<std::uint32_t> partitions,
    std::vector<std::uint64_t>& scratch) const {
    if (partitions_of_one_key(first, num_partitions, partitions)) {
        return;
    }
    constexpr std::size_t tile = 1024;  // its states stay in the first cache
    scratch.resize(std::min(tile, partitions.size()));
    for (std::size_t begin = 0; begin < partitions.size(); begin += tile) {
        auto const count = std::min(tile, partitions.size() - begin);
        states(first + static_cast<std::int64_t>(begin), std::span{scratch}.first(count));
        for (std::size_t i = 0; i < count; ++i) {
            partitions[begin + i] = hash::partition_of(hash::finish(scratch[i]), num_partitions);
        }
    }
}

}  // namespace detail

void hash_rows(
    Table const& table, std::span<int const> key_columns, std::int64_t first, std::span<std::uint64_t> hashes,
    std::uint64_t seed) {
    auto const count = static_cast<std::int64_t>(hashes.size());
    RAPIDSMPF_EXPECTS(
        first >= 0 && first <= table.num_rows() && count <= table.num_rows() - first,
        "rows to hash are beyond the end of the table", std::out_of_range);
    if (table.place() == TablePlace::gpu) {
        detail::hash_rows_on_gpu(table, key_columns, first, hashes, seed);
        return;
    }
    detail::RowHasher{table, key_columns, seed}(first, hashes);
}

}  // namespace rapidsmpf
