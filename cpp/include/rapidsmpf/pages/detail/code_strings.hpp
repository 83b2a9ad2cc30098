// A set of strings in device memory, in which each string has a code: 0, 1, 2, ... Columns of few distinct strings are grouped and
// joined by such codes.
//
//   add_strings      adds strings that are not in the set yet, and gives the code of each
//   find_strings     gives the codes of strings
//   code_rows        looks up the codes of rows whose strings are numbered (number_strings.hpp)
//   places_of_codes  the address and length of the string of each code
//
// Strings are only ever added, so that codes stay valid while other streams read the set. It has a fixed size: when it is full,
// StringSetState::is_full is set for good, nothing more is added, and the codes that add_strings has given in that call are undefined.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef RAPIDSMPF_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include <rapidsmpf/pages/detail/number_strings.hpp>

namespace rapidsmpf::pages {

struct StringSetState {
    std::uint32_t strings{0};
    std::uint32_t bytes{0};  // the length of all strings together
    std::uint32_t is_full{0};
};

// All pointers refer to memory of the device that runs the functions. The caller owns that memory.
struct StringSet {
    std::uint32_t* slots{nullptr};  // a hash table with open addressing, zero at first
    std::uint32_t slot_count{0};    // a power of two
    StringPlace* strings{nullptr};  // by code; they refer to `characters`
    std::uint32_t* hashes{nullptr};
    std::uint32_t most_strings{0};
    char* characters{nullptr};
    std::uint32_t most_bytes{0};
    StringSetState* state{nullptr};  // zero at first
};

// Where the parts of a set are in one block of memory. What has to be zero at first is at its start.
struct StringSetLayout {
    std::uint32_t slot_count{0};
    std::uint32_t most_strings{0};
    std::uint32_t most_bytes{0};
    std::size_t slots_at{0};
    std::size_t zero_bytes{0};
    std::size_t strings_at{0};
    std::size_t hashes_at{0};
    std::size_t characters_at{0};
    std::size_t bytes{0};

    [[nodiscard]] static StringSetLayout of(std::uint32_t most_strings, std::uint32_t most_bytes);
    [[nodiscard]] StringSet in(std::byte* memory) const;
};

// Strings to add or to look up: either an array of their addresses and lengths, or a string column in Arrow's layout, whose offsets
// have 32 or 64 bits.
struct StringList {
    StringPlace const* places{nullptr};
    char const* characters{nullptr};
    void const* offsets{nullptr};
    bool has_wide_offsets{false};
    std::uint32_t const* valid{nullptr};  // validity bitmap of a column; null: all rows are valid
};

// Strings [first, first + count) of a list.
struct StringRange {
    std::uint32_t first{0};
    std::uint32_t count{0};
};

struct AddStrings {
    StringSet set;
    StringList list;
    StringRange const* ranges{nullptr};  // the strings of the list that are added; ranges must not overlap
    std::uint32_t n_ranges{0};
    std::uint32_t most_in_range{0};  // the largest count
    // By the number of a string in the list; of numbers in no range nothing is read or written. The code of a null is 0.
    std::uint32_t* slots{nullptr};  // working memory
    std::int32_t* codes{nullptr};
};

// Two calls that add to one set, or one that adds and find_strings, must not run at the same time.
void add_strings_on_cpu(AddStrings const& add);
// The code of a string that is not in the set is -1, that of a null 0.
void find_strings_on_cpu(StringSet const& set, StringList const& list, std::uint64_t n, std::int32_t* codes);
// `codes`: by number, of the `n` strings that are numbered. The code of a null row is 0. Sets `error` if a number is out of range, or
// has the code -1.
void code_rows_on_cpu(
    std::int32_t const* codes, std::uint32_t n, NumberedRows const& rows, std::int32_t* row_codes,
    std::uint32_t* error);
// A code that is out of range has the place of a null.
void places_of_codes_on_cpu(StringSet const& set, NumberedRows const& codes, StringPlace* places);

#ifdef RAPIDSMPF_HAVE_CUDA
// The same, enqueued on a stream.
void add_strings_on_gpu(AddStrings const& add, cudaStream_t stream);
void find_strings_on_gpu(
    StringSet const& set, StringList const& list, std::uint64_t n, std::int32_t* codes, cudaStream_t stream);
void code_rows_on_gpu(
    std::int32_t const* codes, std::uint32_t n, NumberedRows const& rows, std::int32_t* row_codes,
    std::uint32_t* error, cudaStream_t stream);
void places_of_codes_on_gpu(
    StringSet const& set, NumberedRows const& codes, StringPlace* places, cudaStream_t stream);
#endif

}  // namespace rapidsmpf::pages
