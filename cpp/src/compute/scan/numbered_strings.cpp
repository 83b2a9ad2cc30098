#include "compute/scan/numbered_strings.hpp"

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <variant>  // libcudf's headers need it first

#include <cuda_runtime_api.h>
#include <cudf/utilities/error.hpp>

#include "compute/scan/passes.hpp"
#include "compute/string_places.hpp"

namespace rapidsmpf::compute {

namespace pq = cudf::io::parquet;

namespace {

bool is_flat_text(pq::SchemaElement const& element) {
    auto const is_text =
        (element.logical_type.has_value() && element.logical_type->type == pq::LogicalType::STRING)
        || element.converted_type == pq::ConvertedType::UTF8;
    return is_text && element.type == pq::Type::BYTE_ARRAY && is_flat(element);
}

bool can_be_numbered(DeviceChunk const& chunk, PassChunk const& of) {
    return is_flat_text(*of.element) && has_simple_encodings(*of.place) && has_plain_pages(chunk, *of.place);
}

}  // namespace

std::optional<NumberedStrings> NumberedStrings::make(
    std::vector<DeviceChunk>& chunks, std::span<PassChunk const> places, std::size_t columns, Work& work) {
    NumberedStrings numbered;
    numbered.columns_.resize(columns, true);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        auto const column = places[i].column;
        numbered.columns_[column] = numbered.columns_[column] && can_be_numbered(chunks[i], places[i]);
    }

    std::vector<pages::StringChunk> strings;
    std::vector<std::size_t> replaced;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        if (!numbered.columns_[places[i].column]) {
            continue;
        }
        strings.push_back(
            pages::StringChunk{
                .data = chunks[i].data,
                .bytes = chunks[i].bytes,
                .values = static_cast<std::uint64_t>(places[i].place->values),
                .out = nullptr,
                .has_levels = places[i].element->repetition_type == pq::FieldRepetitionType::OPTIONAL});
        replaced.push_back(i);
        bytes += with_padding(chunks[i].bytes);
    }
    if (strings.empty()) {
        return std::nullopt;
    }
    auto const stream = work.stream();
    numbered.chunks_ = rmm::device_buffer{bytes, stream, work.mr()};
    CUDF_CUDA_TRY(cudaMemsetAsync(numbered.chunks_.data(), 0xFF, bytes, stream.get()));
    auto* to = static_cast<std::uint8_t*>(numbered.chunks_.data());
    for (auto& chunk : strings) {
        chunk.out = to;
        to += with_padding(chunk.bytes);
    }
    auto const layout = pages::NumberPlanLayout::of(strings);
    numbered.plan_memory_ = rmm::device_buffer{layout.bytes, stream, work.mr()};
    auto& plan = numbered.plan_;
    plan = layout.in(static_cast<std::byte*>(numbered.plan_memory_.data()));
    // Chunks and counters are adjacent in the plan: one copy moves both.
    std::vector<std::byte> head(layout.counters_at + sizeof(pages::NumberCounters));
    pages::NumberCounters counters;
    std::memcpy(head.data(), strings.data(), strings.size() * sizeof(pages::StringChunk));
    std::memcpy(head.data() + layout.counters_at, &counters, sizeof counters);
    CUDF_CUDA_TRY(cudaMemcpyAsync(
        numbered.plan_memory_.data(), head.data(), head.size(), cudaMemcpyHostToDevice, stream.get()));
    pages::list_strings_on_gpu(plan, stream.get());
    auto const read_counters = [&] {
        CUDF_CUDA_TRY(
            cudaMemcpyAsync(&counters, plan.counters, sizeof counters, cudaMemcpyDeviceToHost, stream.get()));
        work.synchronize();
        return counters.error == 0;
    };
    if (!read_counters()) {
        return std::nullopt;
    }
    // Half of the bytes of the pages; freed when this function returns.
    rmm::device_buffer exits{pages::NumberPlanLayout::exits_bytes(counters.tiles), stream, work.mr()};
    plan.exits = static_cast<pages::StringExit*>(exits.data());
    numbered.places_ = rmm::device_buffer{counters.strings * sizeof(pages::StringPlace), stream, work.mr()};
    plan.places = static_cast<pages::StringPlace*>(numbered.places_.data());
    pages::number_strings_on_gpu(plan, stream.get());
    if (!read_counters()) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i < replaced.size(); ++i) {
        auto& chunk = chunks[replaced[i]];
        chunk.data = strings[i].out;
        chunk.is_compressed = false;
    }
    return numbered;
}

void NumberedStrings::describe(pq::SchemaElement& element) {
    element.type = pq::Type::INT32;
    element.converted_type.reset();
    element.logical_type.reset();
    element.arrow_type.reset();
}

void NumberedStrings::put_strings(std::vector<std::unique_ptr<cudf::column>>& columns, Work& work) {
    chunks_ = rmm::device_buffer{};  // decoded
    auto const stream = work.stream();
    for (std::size_t i = 0; i < columns.size(); ++i) {
        if (!columns_[i]) {
            continue;
        }
        auto const numbers = columns[i]->view();
        StringPlaces places{static_cast<std::size_t>(numbers.size()), work};
        pages::places_of_rows_on_gpu(
            plan_,
            {.numbers = numbers.data<std::int32_t>(),
             .valid = numbers.nullable() ? numbers.null_mask() : nullptr,
             .rows = static_cast<std::uint64_t>(numbers.size())},
            places.data(), stream.get());
        columns[i].reset();
        columns[i] = places.strings(work);
    }
    pages::NumberCounters counters;
    CUDF_CUDA_TRY(
        cudaMemcpyAsync(&counters, plan_.counters, sizeof counters, cudaMemcpyDeviceToHost, stream.get()));
    work.synchronize();
    if (counters.error != 0) {
        throw std::runtime_error{"a value is not in the dictionary of its column chunk"};
    }
}

}  // namespace rapidsmpf::compute
