// Makes column chunks of integers of column chunks of strings, so that a reader of pages decodes numbers where it would follow
// strings one by one. A string of a dictionary page or of a page with plain values begins where the one before ends: a reader
// that looks for them in the memory of a device waits for that memory at every string, ten milliseconds for a dictionary page
// of a megabyte. Here warps look at many parts of a page at a time.
//
//   list_strings      of each chunk: which pages it has, and how many strings may be in them
//   number_strings    notes where each string is, and writes the number of the note in its place
//   places_of_rows    when a reader has decoded the numbers: where the string of each row is
//
// The chunk that is written has the headers, levels and dictionary indices of the other, and pages of the same lengths.
//
// Where something is wrong or unusual, NumberCounters::error says so, and what was written means nothing: a reader of strings
// has to read the chunks then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#ifdef RAPIDSMPF_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include <rapidsmpf/pages/detail/decompress.hpp>

namespace rapidsmpf::pages {

struct StringExit;
struct StringPage;
struct StringTile;

// Where a string is; null: no string.
struct StringPlace {
    char const* data{nullptr};
    std::int32_t bytes{0};
};

// A column chunk of strings whose pages are not compressed. There are no repetition levels.
struct StringChunk {
    std::uint8_t const* data{nullptr};
    std::uint64_t bytes{0};
    std::uint64_t values{0};
    std::uint8_t* out{nullptr};  // as many bytes, each 0xFF before
    bool has_levels{false};      // its values may be null
};

struct NumberCounters {
    std::uint32_t pages{0};
    std::uint32_t tiles{0};
    std::uint32_t strings{0};  // for which places are needed, nulls included
    std::uint32_t error{0};    // a Problem
    // The next items that no group of lanes has taken.
    std::uint32_t next_to_find{0};
    std::uint32_t next_page{0};
    std::uint32_t next_to_number{0};
};

// All memory is of the device that works, and belongs to who made the plan.
struct NumberPlan {
    StringChunk const* chunks{nullptr};
    std::uint32_t n_chunks{0};
    NumberCounters* counters{nullptr};  // zero
    StringPage* pages{nullptr};
    std::uint32_t most_pages{0};
    std::uint32_t* tile_pages{nullptr};  // the number of each tile's page
    StringTile* tiles{nullptr};
    std::uint32_t most_tiles{0};
    // What follows is needed from when strings have been listed on.
    StringExit* exits{nullptr};    // NumberPlanLayout::exits_bytes()
    StringPlace* places{nullptr};  // NumberCounters::strings
};

// Where the parts of a plan are in one block of memory: chunks first, then counters, as the host fills and reads them.
struct NumberPlanLayout {
    std::uint32_t chunks{0};
    std::uint32_t pages{0};
    std::uint32_t tiles{0};
    std::size_t counters_at{0};
    std::size_t pages_at{0};
    std::size_t tile_pages_at{0};
    std::size_t tiles_at{0};
    std::size_t bytes{0};

    [[nodiscard]] static NumberPlanLayout of(std::span<StringChunk const> chunks);
    // The plan in such a block of memory.
    [[nodiscard]] NumberPlan in(std::byte* memory) const;
    // Of NumberPlan::exits, for so many NumberCounters::tiles.
    [[nodiscard]] static std::size_t exits_bytes(std::uint32_t tiles);
};

// The rows of a column of numbers as a reader has decoded them.
struct NumberedRows {
    std::int32_t const* numbers{nullptr};
    std::uint32_t const* valid{nullptr};  // a bit for each row; null: all rows are valid
    std::uint64_t rows{0};
};

void list_strings_on_cpu(NumberPlan const& plan);
void number_strings_on_cpu(NumberPlan const& plan);
// Problem::strings if a row has a number that no string has.
void places_of_rows_on_cpu(NumberPlan const& plan, NumberedRows const& rows, StringPlace* places);

#ifdef RAPIDSMPF_HAVE_CUDA
// These enqueue the same. What is listed has to be read by the host before strings are numbered.
void list_strings_on_gpu(NumberPlan const& plan, cudaStream_t stream);
void number_strings_on_gpu(NumberPlan const& plan, cudaStream_t stream);
void places_of_rows_on_gpu(
    NumberPlan const& plan, NumberedRows const& rows, StringPlace* places, cudaStream_t stream);
#endif

}  // namespace rapidsmpf::pages
