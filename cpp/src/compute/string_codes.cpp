#include "compute/string_codes.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <cudf/column/column_factories.hpp>
#include <cudf/copying.hpp>
#include <cudf/replace.hpp>
#include <cudf/scalar/scalar.hpp>
#include <cudf/strings/strings_column_view.hpp>
#include <cudf/utilities/error.hpp>

#include "compute/string_places.hpp"

namespace rapidsmpf::compute {

namespace {

constexpr cudf::data_type code_type{cudf::type_id::INT32};
constexpr std::size_t least_strings = 1024;
// Strings of few values are short: names of countries, kinds, states.
constexpr std::size_t bytes_a_string = 32;

pages::StringSetLayout layout_for(std::size_t strings) {
    auto const most = std::clamp(4 * strings, least_strings, StringCodes::most_strings);
    return pages::StringSetLayout::of(
        static_cast<std::uint32_t>(most), static_cast<std::uint32_t>(bytes_a_string * most));
}

pages::NumberedRows rows_of(cudf::column_view const& codes) {
    return {
        .numbers = codes.data<std::int32_t>(),
        .valid = codes.has_nulls() ? codes.null_mask() : nullptr,
        .rows = static_cast<std::uint64_t>(codes.size())};
}

// A column of codes with the nulls of another column.
ColumnPtr with_nulls_of(cudf::column_view const& like, rmm::device_buffer codes, Work& work) {
    auto nulls = like.has_nulls() ? cudf::copy_bitmask(like, work.stream(), work.mr()) : rmm::device_buffer{};
    return std::make_unique<cudf::column>(
        code_type, like.size(), std::move(codes), std::move(nulls), like.null_count());
}

}  // namespace

pages::StringList list_of(cudf::column_view const& strings, cuda::stream_ref stream) {
    if (strings.offset() != 0) {
        throw std::logic_error{"a slice of a column of strings is not coded"};
    }
    cudf::strings_column_view const view{strings};
    auto const offsets = view.offsets();
    return {
        .places = nullptr,
        .characters = view.chars_begin(stream),
        .offsets = offsets.head(),
        .has_wide_offsets = offsets.type().id() == cudf::type_id::INT64,
        .valid = strings.has_nulls() ? strings.null_mask() : nullptr};
}

StringCodes::StringCodes(std::size_t strings, Work& work)
    : layout_{layout_for(strings)},
      memory_{layout_.bytes, work.stream(), work.mr()},
      set_{layout_.in(static_cast<std::byte*>(memory_.data()))} {
    CUDF_CUDA_TRY(cudaMemsetAsync(memory_.data(), 0, layout_.zero_bytes, work.stream().get()));
    CUDF_CUDA_TRY(cudaEventCreateWithFlags(&last_, cudaEventDisableTiming));
    auto const status = cudaEventRecord(last_, work.stream().get());
    if (status != cudaSuccess) {
        cudaEventDestroy(last_);
        CUDF_CUDA_TRY(status);
    }
}

StringCodes::~StringCodes() {
    cudaEventSynchronize(last_);
    cudaEventDestroy(last_);
}

void StringCodes::in_turn(Work& work, std::function<void()> const& enqueue) {
    MutexLock const lock{mutex_};
    CUDF_CUDA_TRY(cudaStreamWaitEvent(work.stream().get(), last_, 0));
    enqueue();
    CUDF_CUDA_TRY(cudaEventRecord(last_, work.stream().get()));
}

StringCodes::Added StringCodes::add(
    pages::StringList const& list, std::span<pages::StringRange const> ranges, std::uint32_t most_in_range,
    std::uint32_t numbers, Work& work) {
    auto const stream = work.stream();
    Added added{
        .codes = rmm::device_buffer{numbers * sizeof(std::int32_t), stream, work.mr()},
        .state = rmm::device_buffer{sizeof(pages::StringSetState), stream, work.mr()}};
    rmm::device_buffer slots{numbers * sizeof(std::uint32_t), stream, work.mr()};
    CUDF_CUDA_TRY(cudaMemsetAsync(added.codes.data(), 0xFF, added.codes.size(), stream.get()));
    in_turn(work, [&] {
        pages::add_strings_on_gpu(
            {.set = set_,
             .list = list,
             .ranges = ranges.data(),
             .n_ranges = static_cast<std::uint32_t>(ranges.size()),
             .most_in_range = most_in_range,
             .slots = static_cast<std::uint32_t*>(slots.data()),
             .codes = static_cast<std::int32_t*>(added.codes.data())},
            stream.get());
        // The state of this moment: strings that others add next are not in place when it is read.
        CUDF_CUDA_TRY(cudaMemcpyAsync(
            added.state.data(), set_.state, sizeof(pages::StringSetState), cudaMemcpyDeviceToDevice,
            stream.get()));
    });
    return added;
}

bool StringCodes::note(pages::StringSetState const& state) noexcept {
    if (state.is_full != 0) {
        is_full_.store(true, std::memory_order_relaxed);
        return false;
    }
    auto const strings = static_cast<std::int32_t>(state.strings);
    auto known = size_.load(std::memory_order_relaxed);
    while (known < strings && !size_.compare_exchange_weak(known, strings, std::memory_order_release)) {
    }
    return true;
}

cudf::column_view StringCodes::strings_for(cudf::column_view const& codes, Work& work) {
    auto const count = size();
    auto const view_of = [&](Strings const& strings) {
        return (codes.has_nulls() ? strings.with_null : strings.without_null)->view();
    };
    {
        MutexLock const lock{strings_mutex_};
        if (!strings_.empty() && strings_.back().without_null->size() >= count) {
            return view_of(strings_.back());
        }
    }
    // Without the lock: who waits for memory must not keep others from ending their chunks.
    auto const copied = [&](cudf::size_type nulls) {
        StringPlaces places{static_cast<std::size_t>(count + nulls), work};
        auto const stream = work.stream().get();
        CUDF_CUDA_TRY(cudaMemcpyAsync(
            places.data(), set_.strings, static_cast<std::size_t>(count) * sizeof(pages::StringPlace),
            cudaMemcpyDeviceToDevice, stream));
        CUDF_CUDA_TRY(cudaMemsetAsync(
            places.data() + count, 0, static_cast<std::size_t>(nulls) * sizeof(pages::StringPlace), stream));
        return places.strings(work);
    };
    Strings made{.without_null = copied(0), .with_null = copied(1)};
    work.synchronize();  // other threads read it on their streams
    MutexLock const lock{strings_mutex_};
    if (strings_.empty() || strings_.back().without_null->size() < count) {
        strings_.push_back(std::move(made));
    }
    return view_of(strings_.back());
}

ColumnPtr StringCodes::find(cudf::column_view const& strings, Work& work) {
    auto const stream = work.stream();
    auto const rows = static_cast<std::size_t>(strings.size());
    rmm::device_buffer codes{rows * sizeof(std::int32_t), stream, work.mr()};
    auto const list = list_of(strings, stream);
    in_turn(work, [&] {
        pages::find_strings_on_gpu(set_, list, rows, static_cast<std::int32_t*>(codes.data()), stream.get());
    });
    return with_nulls_of(strings, std::move(codes), work);
}

ColumnPtr StringCodes::code(cudf::column_view const& strings, Work& work) {
    auto const stream = work.stream();
    auto const rows = static_cast<std::uint32_t>(strings.size());
    pages::StringRange const range{.first = 0, .count = rows};
    rmm::device_buffer const ranges{&range, sizeof range, stream, work.mr()};
    auto added =
        add(list_of(strings, stream), {static_cast<pages::StringRange const*>(ranges.data()), 1}, rows, rows,
            work);
    pages::StringSetState state;
    CUDF_CUDA_TRY(
        cudaMemcpyAsync(&state, added.state.data(), sizeof state, cudaMemcpyDeviceToHost, stream.get()));
    work.synchronize();
    return note(state) ? with_nulls_of(strings, std::move(added.codes), work) : nullptr;
}

ColumnPtr StringCodes::decode(cudf::column_view const& codes, Work& work) const {
    StringPlaces places{static_cast<std::size_t>(codes.size()), work};
    pages::places_of_codes_on_gpu(set_, rows_of(codes), places.data(), work.stream().get());
    return places.strings(work);
}

ColumnPtr values_of_codes(cudf::column_view const& values, cudf::column_view const& codes, Work& work) {
    auto const gathered = [&](cudf::column_view const& map) {
        auto columns =
            gather_rows(cudf::table_view{{values}}, map, cudf::out_of_bounds_policy::DONT_CHECK, work)
                ->release();
        return std::move(columns.front());
    };
    if (!codes.has_nulls()) {
        return gathered(cudf::column_view{code_type, codes.size(), codes.head(), nullptr, 0, codes.offset()});
    }
    cudf::numeric_scalar<std::int32_t> const of_null{values.size() - 1, true, work.stream(), work.mr()};
    auto const map = cudf::replace_nulls(codes, of_null, work.stream(), work.mr());
    return gathered(map->view());
}

StringCodesPtr const& codes_of(Coding const& coding, std::size_t column) {
    static StringCodesPtr const none;
    return column < coding.size() ? coding[column] : none;
}

void set_codes(Coding& coding, std::size_t column, StringCodesPtr codes) {
    if (codes == nullptr && column >= coding.size()) {
        return;
    }
    coding.resize(std::max(coding.size(), column + 1));
    coding[column] = std::move(codes);
}

void replace_column(Chunk& chunk, std::size_t column, ColumnPtr with, StringCodesPtr codes) {
    auto const rows = chunk.rows->num_rows();
    auto columns = chunk.rows->release();
    columns.at(column) = std::move(with);
    chunk.rows = std::make_unique<cudf::table>(std::move(columns), rows);
    set_codes(chunk.coding, column, std::move(codes));
}

void decode_column(Chunk& chunk, std::size_t column, Work& work) {
    auto const codes = codes_of(chunk.coding, column);
    if (codes == nullptr) {
        return;
    }
    auto const view = chunk.rows->view().column(static_cast<cudf::size_type>(column));
    replace_column(chunk, column, codes->decode(view, work), nullptr);
}

void decode_all(Chunk& chunk, Work& work) {
    for (std::size_t column = 0; column < chunk.coding.size(); ++column) {
        decode_column(chunk, column, work);
    }
    chunk.coding.clear();
}

Coding select_coding(Coding const& coding, std::span<std::int32_t const> columns) {
    Coding selected;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        set_codes(selected, i, codes_of(coding, static_cast<std::size_t>(columns[i])));
    }
    return selected;
}

Chunk concatenate(std::vector<Chunk> chunks, char const* what, Work& work) {
    std::size_t columns = 0;
    for (auto const& chunk : chunks) {
        columns = std::max(columns, chunk.coding.size());
    }
    Chunk result;
    result.sequence = chunks.front().sequence;
    for (std::size_t column = 0; column < columns; ++column) {
        auto const first = codes_of(chunks.front().coding, column);
        auto const is_same = std::ranges::all_of(
            chunks, [&](Chunk const& chunk) { return codes_of(chunk.coding, column) == first; });
        if (is_same) {
            set_codes(result.coding, column, first);
            continue;
        }
        for (auto& chunk : chunks) {
            decode_column(chunk, column, work);
        }
    }
    std::vector<TablePtr> tables;
    for (auto& chunk : chunks) {
        tables.push_back(std::move(chunk.rows));
    }
    result.rows = concatenate(std::move(tables), what, work);
    return result;
}

}  // namespace rapidsmpf::compute
