#include "compute/scan/column_types.hpp"

#include <array>
#include <cstdint>

namespace rapidsmpf::compute {

namespace {

using cudf::type_id;

// How many bits an integer's values take, without the sign; 0: no integer.
int integer_bits(type_id id) noexcept {
    switch (id) {
        case type_id::INT8:
            return 7;
        case type_id::UINT8:
            return 8;
        case type_id::INT16:
            return 15;
        case type_id::UINT16:
            return 16;
        case type_id::INT32:
            return 31;
        case type_id::UINT32:
            return 32;
        case type_id::INT64:
            return 63;
        case type_id::UINT64:
            return 64;
        default:
            return 0;
    }
}

bool is_unsigned_integer(type_id id) noexcept {
    return id == type_id::UINT8 || id == type_id::UINT16 || id == type_id::UINT32 || id == type_id::UINT64;
}

// Digits that every value of the type may have; 0: no decimal.
int decimal_digits(type_id id) noexcept {
    switch (id) {
        case type_id::DECIMAL32:
            return 9;
        case type_id::DECIMAL64:
            return 18;
        case type_id::DECIMAL128:
            return 38;
        default:
            return 0;
    }
}

bool is_in_family(type_id id, type_id first, type_id last) noexcept {
    return first <= id && id <= last;
}

}  // namespace

bool holds_all_values(cudf::data_type from, cudf::data_type to) noexcept {
    if (from == to) {
        return true;
    }
    if (auto const bits = integer_bits(from.id()); bits > 0) {
        if (to.id() == type_id::FLOAT32) {
            return bits <= 24;
        }
        if (to.id() == type_id::FLOAT64) {
            return bits <= 53;
        }
        return integer_bits(to.id()) >= bits
               && (is_unsigned_integer(from.id()) || !is_unsigned_integer(to.id()));
    }
    if (from.id() == type_id::FLOAT32) {
        return to.id() == type_id::FLOAT64;
    }
    if (auto const had = decimal_digits(from.id()); had > 0) {
        auto const more_places = from.scale() - to.scale();
        return decimal_digits(to.id()) > 0 && more_places >= 0
               && decimal_digits(to.id()) - more_places >= had;
    }
    // From coarse to fine, as libcudf numbers them.
    for (auto const& [first, last] :
         {std::pair{type_id::TIMESTAMP_DAYS, type_id::TIMESTAMP_NANOSECONDS},
          std::pair{type_id::DURATION_DAYS, type_id::DURATION_NANOSECONDS}}) {
        if (is_in_family(from.id(), first, last)) {
            return is_in_family(to.id(), from.id(), last);
        }
    }
    return false;
}

cudf::data_type cudf_type(DataType const& type) {
    auto const id = static_cast<type_id>(type.id);
    return decimal_digits(id) > 0 ? cudf::data_type{id, type.scale} : cudf::data_type{id};
}

std::string type_name(cudf::data_type type) {
    constexpr std::array<char const*, 29> names{
        "EMPTY",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "FLOAT32",
        "FLOAT64",
        "BOOL8",
        "TIMESTAMP_DAYS",
        "TIMESTAMP_SECONDS",
        "TIMESTAMP_MILLISECONDS",
        "TIMESTAMP_MICROSECONDS",
        "TIMESTAMP_NANOSECONDS",
        "DURATION_DAYS",
        "DURATION_SECONDS",
        "DURATION_MILLISECONDS",
        "DURATION_MICROSECONDS",
        "DURATION_NANOSECONDS",
        "DICTIONARY32",
        "STRING",
        "LIST",
        "DECIMAL32",
        "DECIMAL64",
        "DECIMAL128",
        "STRUCT"};
    static_assert(names.size() == static_cast<std::size_t>(type_id::NUM_TYPE_IDS));
    auto const id = static_cast<std::size_t>(type.id());
    std::string name = id < names.size() ? names[id] : "type " + std::to_string(id);
    if (decimal_digits(type.id()) > 0) {
        name += " with " + std::to_string(-type.scale()) + " decimal places";
    }
    return name;
}

}  // namespace rapidsmpf::compute
