#include "compute/scan/fixed_width.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <cuda_runtime_api.h>
#include <cudf/io/parquet_schema.hpp>
#include <cudf/null_mask.hpp>
#include <cudf/types.hpp>
#include <cudf/utilities/error.hpp>
#include <cudf/utilities/traits.hpp>
#include <rmm/device_buffer.hpp>

#include <rapidsmpf/pages/detail/decode_values.hpp>

#include "compute/scan/plan_memory.hpp"

namespace rapidsmpf::compute {

namespace pq = cudf::io::parquet;

namespace {

using cudf::type_id;

std::optional<cudf::data_type> integer_type(pq::IntType const& type, bool is_long) {
    if (is_long != (type.bitWidth == 64)) {
        return std::nullopt;
    }
    switch (type.bitWidth) {
        case 8:
            return cudf::data_type{type.isSigned ? type_id::INT8 : type_id::UINT8};
        case 16:
            return cudf::data_type{type.isSigned ? type_id::INT16 : type_id::UINT16};
        case 32:
            return cudf::data_type{type.isSigned ? type_id::INT32 : type_id::UINT32};
        case 64:
            return cudf::data_type{type.isSigned ? type_id::INT64 : type_id::UINT64};
        default:
            return std::nullopt;
    }
}

std::optional<cudf::data_type> timestamp_type(pq::TimeUnit unit) {
    switch (unit.type) {
        case pq::TimeUnit::MILLIS:
            return cudf::data_type{type_id::TIMESTAMP_MILLISECONDS};
        case pq::TimeUnit::MICROS:
            return cudf::data_type{type_id::TIMESTAMP_MICROSECONDS};
        case pq::TimeUnit::NANOS:
            return cudf::data_type{type_id::TIMESTAMP_NANOSECONDS};
        default:
            return std::nullopt;
    }
}

// The type that libcudf gives the column, if its values are decoded by copying the low-order bytes of what is stored.
std::optional<cudf::data_type> decoded_type(pq::SchemaElement const& element) {
    auto const is_long = element.type == pq::Type::INT64;
    if (element.arrow_type.has_value() || element.output_as_byte_array) {
        return std::nullopt;
    }
    if (!element.logical_type.has_value()) {
        if (element.converted_type.has_value()) {
            return std::nullopt;
        }
        switch (element.type) {
            case pq::Type::INT32:
                return cudf::data_type{type_id::INT32};
            case pq::Type::INT64:
                return cudf::data_type{type_id::INT64};
            case pq::Type::FLOAT:
                return cudf::data_type{type_id::FLOAT32};
            case pq::Type::DOUBLE:
                return cudf::data_type{type_id::FLOAT64};
            default:
                return std::nullopt;
        }
    }
    if (!is_long && element.type != pq::Type::INT32) {
        return std::nullopt;
    }
    auto const& logical = *element.logical_type;
    switch (logical.type) {
        case pq::LogicalType::INTEGER:
            return logical.int_type.has_value() ? integer_type(*logical.int_type, is_long) : std::nullopt;
        case pq::LogicalType::DECIMAL:
            if (!logical.decimal_type.has_value()) {
                return std::nullopt;
            }
            return cudf::data_type{
                is_long ? type_id::DECIMAL64 : type_id::DECIMAL32, -logical.decimal_type->scale};
        case pq::LogicalType::DATE:
            return is_long ? std::nullopt : std::optional{cudf::data_type{type_id::TIMESTAMP_DAYS}};
        case pq::LogicalType::TIMESTAMP:
            return is_long && logical.timestamp_type.has_value()
                       ? timestamp_type(logical.timestamp_type->unit)
                       : std::nullopt;
        default:
            return std::nullopt;
    }
}

// What is known of a column. Its type and whether it is optional are those of its first chunk; if those of another chunk differ, as
// in another file, the column cannot be decoded here.
struct Candidate {
    bool is_possible{true};
    std::optional<cudf::data_type> type;
    bool is_optional{false};
    std::int64_t values{0};
};

std::vector<Candidate> find_candidates(
    std::span<DeviceChunk const> chunks, std::span<PassChunk const> places,
    std::vector<bool> const& is_number, std::int64_t rows) {
    std::vector<Candidate> candidates(is_number.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        auto const& element = *places[i].element;
        auto const number = is_number[places[i].column];
        auto const type = number ? cudf::data_type{type_id::INT32} : decoded_type(element);
        auto const is_optional = element.repetition_type == pq::FieldRepetitionType::OPTIONAL;
        auto& column = candidates[places[i].column];
        if (!column.type) {
            column.type = type;
            column.is_optional = is_optional;
        }
        column.values += places[i].place->values;
        column.is_possible = column.is_possible && type.has_value() && type == column.type
                             && is_optional == column.is_optional && is_flat(element)
                             && has_simple_encodings(*places[i].place)
                             && has_plain_pages(chunks[i], *places[i].place) && places[i].place->values >= 0;
    }
    for (auto& column : candidates) {
        column.is_possible = column.is_possible && column.values == rows;
    }
    return candidates;
}

}  // namespace

std::vector<std::unique_ptr<cudf::column>> decode_fixed_width(
    std::span<DeviceChunk const> chunks, std::span<PassChunk const> places,
    std::vector<bool> const& is_number, std::int64_t rows, Work& work) {
    std::vector<std::unique_ptr<cudf::column>> decoded(is_number.size());
    if (rows <= 0 || rows > std::numeric_limits<cudf::size_type>::max()) {
        return decoded;
    }
    auto const size = static_cast<cudf::size_type>(rows);
    auto const candidates = find_candidates(chunks, places, is_number, rows);
    auto const stream = work.stream();
    std::vector<std::size_t> numbers;                       // of the columns that are decoded
    std::vector<std::uint32_t> in_plan(candidates.size());  // of each column
    std::vector<pages::ValueColumn> columns;
    std::vector<rmm::device_buffer> values;
    std::vector<rmm::device_buffer> masks;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (!candidates[i].is_possible) {
            continue;
        }
        in_plan[i] = static_cast<std::uint32_t>(columns.size());
        numbers.push_back(i);
        auto const bytes = cudf::size_of(*candidates[i].type);
        values.emplace_back(bytes * static_cast<std::size_t>(rows), stream, work.mr());
        masks.push_back(
            candidates[i].is_optional
                ? cudf::create_null_mask(size, cudf::mask_state::ALL_NULL, stream, work.mr())
                : rmm::device_buffer{});
        columns.push_back(
            pages::ValueColumn{
                .out = static_cast<std::uint8_t*>(values.back().data()),
                .valid = static_cast<std::uint32_t*>(masks.back().data()),
                .stored_bytes = std::max(static_cast<std::uint32_t>(bytes), std::uint32_t{4}),
                .out_bytes = static_cast<std::uint32_t>(bytes)});
    }
    if (columns.empty()) {
        return decoded;
    }
    std::vector<pages::ValueChunk> to_decode;
    std::vector<std::uint64_t> row(candidates.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        auto const column = places[i].column;
        if (!candidates[column].is_possible) {
            continue;
        }
        auto const n = static_cast<std::uint64_t>(places[i].place->values);
        to_decode.push_back(
            pages::ValueChunk{
                .data = chunks[i].data,
                .bytes = chunks[i].bytes,
                .values = n,
                .row = row[column],
                .column = in_plan[column]});
        row[column] += n;
    }
    auto const layout = pages::ValuePlanLayout::of(to_decode, columns.size());
    auto const head_bytes = layout.counters_at + sizeof(pages::ValueCounters);
    PlanMemory memory{layout.bytes, head_bytes, work};
    memory.put<pages::ValueChunk>(0, to_decode);
    memory.put<pages::ValueColumn>(layout.columns_at, columns);
    memory.send(work);
    pages::decode_values_on_gpu(layout.in(memory.on_device()), stream.get());
    // Columns have their counts of nulls now, and counters follow them.
    memory.read_back(layout.columns_at, head_bytes, work);
    if (memory.get<pages::ValueCounters>(layout.counters_at).error != 0) {
        return decoded;
    }
    memory.get<pages::ValueColumn>(layout.columns_at, columns);
    for (std::size_t i = 0; i < columns.size(); ++i) {
        auto const type = *candidates[numbers[i]].type;
        decoded[numbers[i]] = std::make_unique<cudf::column>(
            type, size, std::move(values[i]), std::move(masks[i]),
            static_cast<cudf::size_type>(columns[i].nulls));
    }
    return decoded;
}

}  // namespace rapidsmpf::compute
