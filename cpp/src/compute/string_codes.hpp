// Columns of strings as INT32 codes: coded columns. Scans give columns of few distinct strings in this form (scan/numbered_strings.hpp),
// filters, projections, groups and joins work on the codes, and whatever needs the strings decodes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>
#include <cudf/column/column.hpp>
#include <cudf/column/column_view.hpp>
#include <rmm/device_buffer.hpp>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/pages/detail/code_strings.hpp>

#include "compute/operators.hpp"
#include "compute/tables.hpp"

namespace rapidsmpf::compute {

// The strings of coded columns, by their codes. Grows while rows are coded; a code never changes. Two codes are equal if and only if
// their strings are.
//
// Thread-safe. Who drops the last reference has waited for the streams that read coded columns: pipelines wait for theirs at their ends,
// and sources and results keep what their chunks refer to.
class StringCodes {
  public:
    // Room for at least so many strings, and for more of which each has few bytes.
    StringCodes(std::size_t strings, Work& work);
    ~StringCodes();
    StringCodes(StringCodes const&) = delete;
    StringCodes& operator=(StringCodes const&) = delete;

    // The most strings that there is room for, however many are asked for.
    static constexpr std::size_t most_strings = 65'536;

    // What has been enqueued and can be read when the stream is done.
    struct Added {
        rmm::device_buffer codes;  // INT32, by the number of a string in the list; -1 outside of the ranges
        rmm::device_buffer state;  // a pages::StringSetState
    };
    // Enqueues that strings of a list are added and coded. `ranges` is on the device; `numbers`: more than those of all strings in it.
    [[nodiscard]] Added add(
        pages::StringList const& list, std::span<pages::StringRange const> ranges,
        std::uint32_t most_in_range, std::uint32_t numbers, Work& work);
    // To be called with the state that add() gave, when it has been read. Returns false if the strings did not fit: their codes are
    // undefined.
    [[nodiscard]] bool note(pages::StringSetState const& state) noexcept;
    // Whether nothing can be added any more.
    [[nodiscard]] bool is_full() const noexcept { return is_full_.load(std::memory_order_relaxed); }

    // The number of strings, of which all columns that have been coded so far have codes.
    [[nodiscard]] std::int32_t size() const noexcept { return size_.load(std::memory_order_acquire); }
    // Strings by code, size() at least; for codes with nulls with a null behind them. Kept as long as this.
    [[nodiscard]] cudf::column_view strings_for(cudf::column_view const& codes, Work& work);

    // The codes of a column of strings as INT32; -1: it has none.
    [[nodiscard]] ColumnPtr find(cudf::column_view const& strings, Work& work);
    // A column of strings, coded; null if they do not fit. Waits.
    [[nodiscard]] ColumnPtr code(cudf::column_view const& strings, Work& work);
    // The strings of a coded column.
    [[nodiscard]] ColumnPtr decode(cudf::column_view const& codes, Work& work) const;

  private:
    // Runs `enqueue` so that no work of others on the hash table runs at the same time.
    void in_turn(Work& work, std::function<void()> const& enqueue);

    pages::StringSetLayout layout_;
    rmm::device_buffer memory_;
    pages::StringSet set_;
    std::atomic<std::int32_t> size_{0};
    std::atomic<bool> is_full_{false};
    Mutex mutex_;
    cudaEvent_t last_ RAPIDSMPF_GUARDED_BY(mutex_){};  // the last work on the hash table
    struct Strings {
        ColumnPtr without_null;
        ColumnPtr with_null;
    };
    Mutex strings_mutex_;
    // As many columns as there were sizes: others may still read the earlier ones.
    std::vector<Strings> strings_ RAPIDSMPF_GUARDED_BY(strings_mutex_);
};

// A column of strings as a list, without its validity if it has no nulls.
[[nodiscard]] pages::StringList list_of(cudf::column_view const& strings, cuda::stream_ref stream);

// Values by code, for each row of a coded column. `values`: of StringCodes::strings_for() of the codes.
[[nodiscard]] ColumnPtr values_of_codes(
    cudf::column_view const& values, cudf::column_view const& codes, Work& work);

// ---- Chunks with coded columns

// The codes of the column of a chunk; null: it is not coded.
[[nodiscard]] StringCodesPtr const& codes_of(Coding const& coding, std::size_t column);
// A coding in which the column has these codes.
void set_codes(Coding& coding, std::size_t column, StringCodesPtr codes);

// Puts another column in the place of one; `codes`: if it is coded.
void replace_column(Chunk& chunk, std::size_t column, ColumnPtr with, StringCodesPtr codes);

// Replaces coded columns by their strings.
void decode_column(Chunk& chunk, std::size_t column, Work& work);
void decode_all(Chunk& chunk, Work& work);
// The coding of some of the columns.
[[nodiscard]] Coding select_coding(Coding const& coding, std::span<std::int32_t const> columns);
// The rows of all chunks in one, as concatenate() of tables. Columns that have not the same codes in all of them are decoded.
[[nodiscard]] Chunk concatenate(std::vector<Chunk> chunks, char const* what, Work& work);

}  // namespace rapidsmpf::compute
