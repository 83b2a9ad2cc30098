// Rewrites Parquet column chunks of strings as chunks of INT32: each string is replaced by its index in a table of addresses and
// lengths. In dictionary pages and PLAIN pages a string starts where the one before it ends. A decoder that follows this chain in
// global memory waits for the memory at every string: 10 ms for a dictionary page of 1 MiB. Here many warps search one page.
//
//   list_strings      parses the page headers of each chunk and counts the strings for which there must be room
//   number_strings    fills the table (NumberPlan::places) and writes the indices
//   places_of_rows    looks up the decoded indices: the address and length of each row's string
//
// The output chunk has the headers, levels, dictionary indices and page sizes of the input chunk.
//
// NumberCounters::error is set if a page is damaged or has an unexpected layout. The output is then undefined, and the caller has
// to decode the input chunks.
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

// The address and length of a string. data is null for a null.
struct StringPlace {
    char const* data{nullptr};
    std::int32_t bytes{0};
};

// A column chunk of strings with uncompressed pages and without repetition levels.
struct StringChunk {
    std::uint8_t const* data{nullptr};
    std::uint64_t bytes{0};
    std::uint64_t values{0};
    std::uint8_t* out{nullptr};  // output: `bytes` bytes, which the caller has set to 0xFF
    bool has_levels{false};      // the column is optional: its pages have definition levels
};

// What list_strings finds in a chunk.
struct ChunkStrings {
    std::uint32_t first{0};  // index in NumberPlan::places of the first string of its dictionary page
    std::uint32_t dictionary_strings{0};
    std::uint32_t plain_strings{0};  // in PLAIN data pages, at most
};

struct NumberCounters {
    std::uint32_t pages{0};
    std::uint32_t tiles{0};
    std::uint32_t strings{0};  // entries that NumberPlan::places needs
    std::uint32_t error{0};    // a Problem
    // The next item of each step that no warp has taken.
    std::uint32_t next_to_find{0};
    std::uint32_t next_page{0};
    std::uint32_t next_to_number{0};
};

// All pointers refer to memory of the device that runs the plan. The caller owns that memory.
struct NumberPlan {
    StringChunk const* chunks{nullptr};
    std::uint32_t n_chunks{0};
    NumberCounters* counters{nullptr};     // zero
    ChunkStrings* chunk_strings{nullptr};  // of each chunk, zero
    StringPage* pages{nullptr};
    std::uint32_t most_pages{0};
    std::uint32_t* tile_pages{nullptr};  // the number of each tile's page
    StringTile* tiles{nullptr};
    std::uint32_t most_tiles{0};
    // The caller sets these two after list_strings, which counts what they must have room for.
    StringExit* exits{nullptr};    // NumberPlanLayout::exits_bytes()
    StringPlace* places{nullptr};  // NumberCounters::strings
};

// Where the parts of a plan are in one block of memory: chunks, counters and chunk_strings first, as the host fills and reads them.
struct NumberPlanLayout {
    std::uint32_t chunks{0};
    std::uint32_t pages{0};
    std::uint32_t tiles{0};
    std::size_t counters_at{0};
    std::size_t chunk_strings_at{0};
    std::size_t head_bytes{0};
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

// The decoded indices of a column.
struct NumberedRows {
    std::int32_t const* numbers{nullptr};
    std::uint32_t const* valid{nullptr};  // validity bitmap; null: all rows are valid
    std::uint64_t rows{0};
};

void list_strings_on_cpu(NumberPlan const& plan);
void number_strings_on_cpu(NumberPlan const& plan);
// Sets Problem::strings if an index is out of range.
void places_of_rows_on_cpu(NumberPlan const& plan, NumberedRows const& rows, StringPlace* places);

#ifdef RAPIDSMPF_HAVE_CUDA
// The same, enqueued on a stream.
void list_strings_on_gpu(NumberPlan const& plan, cudaStream_t stream);
void number_strings_on_gpu(NumberPlan const& plan, cudaStream_t stream);
void places_of_rows_on_gpu(
    NumberPlan const& plan, NumberedRows const& rows, StringPlace* places, cudaStream_t stream);
#endif

}  // namespace rapidsmpf::pages
