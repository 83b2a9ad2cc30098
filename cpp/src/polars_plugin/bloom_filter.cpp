// Bloom filters of the keys of a join's side: an expression that leaves out rows of the other side while Polars reads
// them, and functions by which Python makes the filter (cudf_polars.execute.bloom_filter).

#include "polars_plugin/bloom_filter.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "polars_plugin/plugin.hpp"

namespace {

namespace bloom_filter = polars_plugin::bloom_filter;

// A column that Polars has given to the plugin, and that is released with it.
class Given {
  public:
    explicit Given(SeriesExport const& series) : series_{series} {}
    ~Given() {
        for (auto* const array : arrays()) {
            if (array->release != nullptr) {
                array->release(array);
            }
        }
        if (series_.release != nullptr) {
            series_.release(&series_);
        }
    }
    Given(Given const&) = delete;
    Given& operator=(Given const&) = delete;

    [[nodiscard]] std::span<ArrowArray* const> arrays() const { return {series_.arrays, series_.n_arrays}; }
    [[nodiscard]] ArrowSchema const& field() const { return *series_.field; }

  private:
    SeriesExport series_;
};

template <typename T>
std::span<T const> values_of(ArrowArray const& array) {
    if (array.length == 0) {
        return {};
    }
    return {static_cast<T const*>(array.buffers[1]) + array.offset, static_cast<std::size_t>(array.length)};
}

// The words of a filter, which are the arguments of the call, and stay with the plan for as long as it is run.
std::span<std::uint32_t const> words_of(std::uint8_t const* arguments, std::size_t n_arguments) {
    auto const n_words = n_arguments / sizeof(std::uint32_t);
    if (n_words < bloom_filter::words_of_block
        || reinterpret_cast<std::uintptr_t>(arguments) % alignof(std::uint32_t) != 0) {
        throw std::invalid_argument("a Bloom filter has no words; please report this query");
    }
    return {reinterpret_cast<std::uint32_t const*>(arguments), n_words};
}

// Sets what a field of booleans is; it owns its name.
void make_boolean(char const* name, ArrowSchema& field) {
    field = ArrowSchema{};
    auto owned = std::make_unique<std::string>(name == nullptr ? "" : name);
    field.format = "b";
    field.name = owned->c_str();
    field.private_data = owned.release();
    field.release = [](ArrowSchema* schema) {
        delete static_cast<std::string*>(schema->private_data);
        schema->release = nullptr;
        schema->private_data = nullptr;
    };
}

// Booleans without nulls as an Arrow array that owns them.
struct Booleans {
    explicit Booleans(std::size_t count) : bytes((count + 7) / 8) {}
    std::vector<std::uint8_t> bytes;
    std::array<void const*, 2> buffers{};
};

std::unique_ptr<ArrowArray> as_array(std::unique_ptr<Booleans> values, std::size_t count) {
    auto array = std::make_unique<ArrowArray>();
    values->buffers = {nullptr, values->bytes.data()};
    array->length = static_cast<std::int64_t>(count);
    array->n_buffers = 2;
    array->buffers = values->buffers.data();
    array->private_data = values.release();
    array->release = [](ArrowArray* self) {
        delete static_cast<Booleans*>(self->private_data);
        self->release = nullptr;
        self->private_data = nullptr;
    };
    return array;
}

// What a result points into: Polars takes what is in the array, and leaves the rest to the result's release.
struct Result {
    ArrowSchema field{};
    std::unique_ptr<ArrowArray> array;
    std::array<ArrowArray*, 1> arrays{};
};

SeriesExport as_series(char const* name, std::unique_ptr<Booleans> values, std::size_t count) {
    auto result = std::make_unique<Result>();
    result->array = as_array(std::move(values), count);
    result->arrays[0] = result->array.get();
    make_boolean(name, result->field);
    auto* const field = &result->field;
    auto* const arrays = result->arrays.data();
    return {
        field, arrays, 1,
        [](SeriesExport* self) {
            std::unique_ptr<Result> const owned{static_cast<Result*>(self->private_data)};
            if (owned->field.release != nullptr) {
                owned->field.release(&owned->field);
            }
            self->release = nullptr;
            self->private_data = nullptr;
        },
        result.release()};
}

SeriesExport may_contain(Given const& hashes, std::span<std::uint32_t const> words) {
    if (hashes.field().format == nullptr || std::string_view{"L"} != hashes.field().format) {
        throw std::invalid_argument(
            "a Bloom filter was asked for what is no UInt64; please report this query");
    }
    std::size_t count = 0;
    for (auto const* const array : hashes.arrays()) {
        count += static_cast<std::size_t>(array->length);
    }
    auto values = std::make_unique<Booleans>(count);
    std::size_t first = 0;
    for (auto const* const array : hashes.arrays()) {
        // A hash is never null, not even that of null.
        auto const chunk = values_of<std::uint64_t>(*array);
        auto* const bytes = values->bytes.data();
        bloom_filter::look_up(words, chunk, [&](std::size_t at, bool found) {
            auto const bit = first + at;
            bytes[bit / 8] |= static_cast<std::uint8_t>(static_cast<unsigned>(found) << (bit % 8));
        });
        first += chunk.size();
    }
    return as_series(hashes.field().name, std::move(values), count);
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] void _polars_plugin_field_may_contain(
    ArrowSchema const* inputs, std::size_t, ArrowSchema* result, std::uint8_t const*, std::size_t) {
    *result = ArrowSchema{};
    try {
        make_boolean(inputs[0].name, *result);
    } catch (std::exception const& error) {
        polars_plugin::last_error() = error.what();
    }
}

// Of each hash, a UInt64, whether it may be in the filter whose words are the arguments. They are no second column: the
// streaming engine would repeat a list for every row.
[[gnu::visibility("default")]] void _polars_plugin_may_contain(
    SeriesExport const* inputs, std::size_t, std::uint8_t const* arguments, std::size_t n_arguments,
    SeriesExport* result, void*) {
    *result = SeriesExport{};
    Given const hashes{inputs[0]};
    try {
        *result = may_contain(hashes, words_of(arguments, n_arguments));
    } catch (std::exception const& error) {
        polars_plugin::last_error() = error.what();
    }
}

// For Python, by ctypes. `words` is as long as the filter has words.
[[gnu::visibility("default")]] void bloom_filter_insert(
    std::uint32_t* words, std::size_t n_words, std::uint64_t const* hashes, std::size_t n_hashes) {
    bloom_filter::insert({words, n_words}, {hashes, n_hashes});
}

[[gnu::visibility("default")]] void bloom_filter_halve(std::uint32_t* words, std::size_t n_words) {
    bloom_filter::halve({words, n_words});
}

[[gnu::visibility("default")]] double bloom_filter_count(std::uint32_t const* words, std::size_t n_words) {
    return bloom_filter::estimated_count({words, n_words});
}

}  // extern "C"
