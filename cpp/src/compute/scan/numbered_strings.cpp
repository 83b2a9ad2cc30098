#include "compute/scan/numbered_strings.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <variant>  // libcudf's headers need it first

#include <cuda_runtime_api.h>
#include <cudf/utilities/error.hpp>

#include "compute/scan/passes.hpp"
#include "compute/scan/plan_memory.hpp"
#include "compute/string_codes.hpp"
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

pages::NumberedRows numbers_of(cudf::column_view const& column) {
    return {
        .numbers = column.data<std::int32_t>(),
        .valid = column.nullable() ? column.null_mask() : nullptr,
        .rows = static_cast<std::uint64_t>(column.size())};
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
    PlanMemory memory{layout.bytes, layout.head_bytes, work};
    auto& plan = numbered.plan_;
    plan = layout.in(memory.on_device());
    memory.put<pages::StringChunk>(0, strings);
    memory.send(work);
    pages::list_strings_on_gpu(plan, stream.get());
    memory.read_back(layout.counters_at, layout.head_bytes, work);
    auto const counters = memory.get<pages::NumberCounters>(layout.counters_at);
    if (counters.error != 0) {
        return std::nullopt;
    }
    numbered.strings_ = counters.strings;
    numbered.dictionaries_.resize(columns);
    for (std::size_t i = 0; i < replaced.size(); ++i) {
        auto const found =
            memory.get<pages::ChunkStrings>(layout.chunk_strings_at + i * sizeof(pages::ChunkStrings));
        auto& column = numbered.dictionaries_[places[replaced[i]].column];
        column.has_all = column.has_all && found.plain_strings == 0;
        column.ranges.push_back({.first = found.first, .count = found.dictionary_strings});
        column.strings += found.dictionary_strings;
    }
    // Half of the bytes of the pages; freed when this function returns.
    rmm::device_buffer exits{pages::NumberPlanLayout::exits_bytes(counters.tiles), stream, work.mr()};
    plan.exits = static_cast<pages::StringExit*>(exits.data());
    numbered.places_ = rmm::device_buffer{counters.strings * sizeof(pages::StringPlace), stream, work.mr()};
    plan.places = static_cast<pages::StringPlace*>(numbered.places_.data());
    pages::number_strings_on_gpu(plan, stream.get());
    memory.read_back(layout.counters_at, layout.chunk_strings_at, work);
    if (memory.get<pages::NumberCounters>(layout.counters_at).error != 0) {
        return std::nullopt;
    }
    numbered.plan_memory_ = std::move(memory).release();
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

struct NumberedStrings::CodedColumn {
    std::size_t column{0};
    StringCodesPtr codes;
    StringCodes::Added added;
    rmm::device_buffer row_codes;
    pages::StringSetState state;
};

std::vector<NumberedStrings::CodedColumn> NumberedStrings::enqueue_codes(
    std::vector<std::unique_ptr<cudf::column>> const& columns, CodesFor const& codes_for, Work& work) const {
    std::vector<CodedColumn> coded;
    std::vector<pages::StringRange> ranges;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        auto const& of_column = dictionaries_[i];
        if (!columns_[i] || !of_column.has_all) {
            continue;
        }
        if (auto codes = codes_for(i, of_column.strings)) {
            coded.push_back(
                {.column = i, .codes = std::move(codes), .added = {}, .row_codes = {}, .state = {}});
            ranges.insert(ranges.end(), of_column.ranges.begin(), of_column.ranges.end());
        }
    }
    if (coded.empty()) {
        return coded;
    }
    auto const stream = work.stream();
    rmm::device_buffer const on_device{
        ranges.data(), ranges.size() * sizeof(pages::StringRange), stream, work.mr()};
    auto const* next = static_cast<pages::StringRange const*>(on_device.data());
    for (auto& column : coded) {
        auto const& own = dictionaries_[column.column].ranges;
        auto const most = std::ranges::max(own, {}, &pages::StringRange::count).count;
        column.added =
            column.codes->add({.places = plan_.places}, std::span{next, own.size()}, most, strings_, work);
        next += own.size();
        auto const numbers = numbers_of(columns[column.column]->view());
        column.row_codes = rmm::device_buffer{numbers.rows * sizeof(std::int32_t), stream, work.mr()};
        pages::code_rows_on_gpu(
            static_cast<std::int32_t const*>(column.added.codes.data()), strings_, numbers,
            static_cast<std::int32_t*>(column.row_codes.data()), &plan_.counters->error, stream.get());
        CUDF_CUDA_TRY(cudaMemcpyAsync(
            &column.state, column.added.state.data(), sizeof column.state, cudaMemcpyDeviceToHost,
            stream.get()));
    }
    work.synchronize();
    return coded;
}

void NumberedStrings::put_strings_of(std::unique_ptr<cudf::column>& column, Work& work) const {
    auto const numbers = numbers_of(column->view());
    StringPlaces places{numbers.rows, work};
    pages::places_of_rows_on_gpu(plan_, numbers, places.data(), work.stream().get());
    column.reset();
    column = places.strings(work);
}

void NumberedStrings::check_indices(Work& work) const {
    pages::NumberCounters counters;
    CUDF_CUDA_TRY(cudaMemcpyAsync(
        &counters, plan_.counters, sizeof counters, cudaMemcpyDeviceToHost, work.stream().get()));
    work.synchronize();
    if (counters.error != 0) {
        throw std::runtime_error{"a value is not in the dictionary of its column chunk"};
    }
}

Coding NumberedStrings::put_strings(
    std::vector<std::unique_ptr<cudf::column>>& columns, CodesFor const& codes_for, Work& work) {
    chunks_ = rmm::device_buffer{};  // decoded
    Coding coding;
    for (auto& coded : enqueue_codes(columns, codes_for, work)) {
        if (!coded.codes->note(coded.state)) {
            continue;
        }
        auto& column = columns[coded.column];
        auto const rows = column->size();
        auto const nulls = column->null_count();
        auto contents = column->release();
        column = std::make_unique<cudf::column>(
            cudf::data_type{cudf::type_id::INT32}, rows, std::move(coded.row_codes),
            std::move(*contents.null_mask), nulls);
        set_codes(coding, coded.column, std::move(coded.codes));
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
        if (columns_[i] && codes_of(coding, i) == nullptr) {
            put_strings_of(columns[i], work);
        }
    }
    check_indices(work);
    return coding;
}

}  // namespace rapidsmpf::compute
