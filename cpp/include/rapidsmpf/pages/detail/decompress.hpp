// Decompresses the Snappy pages of Parquet column chunks, whose bytes are in the memory of a device, into chunks of the same
// pages without compression, for a reader to decode. A dictionary page of a megabyte is then decompressed by many warps, where
// other decoders use one.
//
// Where something is wrong or unusual, Counters::error says so, and what was written means nothing: a reader that takes every
// page has to read the chunks then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#ifdef RAPIDSMPF_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace rapidsmpf::pages {

struct Page;
struct Fragment;
namespace snappy {
struct Tile;
struct Exit;
}  // namespace snappy

enum class Problem : std::uint32_t {
    none,
    header,      // no page header, or one whose sizes contradict each other
    room,        // more pages, tiles, fragments or bytes than there is room for
    length,      // a page is not as long as its header says when it is decompressed
    chain,       // elements do not end where the page does
    dependency,  // a fragment cannot be decoded by itself
    encoding,    // values or levels are not stored in a way that is known here
    strings,     // strings do not end where their page does, or there are not as many as it says
};

// A column chunk whose pages are compressed by Snappy.
struct Chunk {
    std::uint8_t const* data{nullptr};
    std::uint64_t bytes{0};
    std::uint64_t values{0};
    std::uint8_t* out{nullptr};
    std::uint64_t room{0};       // bytes at `out`
    std::uint64_t out_bytes{0};  // result: what the chunk takes there
};

struct Counters {
    std::uint32_t pages{0};
    std::uint32_t tiles{0};
    std::uint32_t fragments{0};
    std::uint32_t error{0};  // a Problem
    // The next items that no group of lanes has taken.
    std::uint32_t next_tile{0};
    std::uint32_t next_page{0};
    std::uint32_t next_fragment{0};
};

// All pointers refer to memory of the device that runs the plan. The caller owns that memory.
struct Plan {
    Chunk* chunks{nullptr};
    std::uint32_t n_chunks{0};
    Counters* counters{nullptr};  // zero
    Page* pages{nullptr};
    std::uint32_t most_pages{0};
    std::uint32_t* tile_pages{nullptr};  // the number of each tile's page
    snappy::Tile* tiles{nullptr};
    snappy::Exit* exits{nullptr};  // segment_bytes for each tile
    std::uint32_t most_tiles{0};
    Fragment* fragments{nullptr};
    std::uint32_t most_fragments{0};
};

// Bytes that a chunk may take without compression. `uncompressed`: what the file's footer says, headers included.
[[nodiscard]] std::uint64_t room_for(std::uint64_t uncompressed);

// Where the parts of a plan are in one block of memory: chunks first, then counters, as the host fills and reads them.
struct PlanLayout {
    std::uint32_t chunks{0};
    std::uint32_t pages{0};
    std::uint32_t tiles{0};
    std::uint32_t fragments{0};
    std::size_t counters_at{0};
    std::size_t pages_at{0};
    std::size_t tile_pages_at{0};
    std::size_t tiles_at{0};
    std::size_t exits_at{0};
    std::size_t fragments_at{0};
    std::size_t bytes{0};

    // Room for the pages that writers make: 4 KiB of compressed bytes on average, or more.
    [[nodiscard]] static PlanLayout of(std::span<Chunk const> chunks);
    // The plan in such a block of memory.
    [[nodiscard]] Plan in(std::byte* memory) const;
};

// Does all steps, one after the other.
void decompress_on_cpu(Plan const& plan);

#ifdef RAPIDSMPF_HAVE_CUDA
// Enqueues all steps. The chunks and counters are in place when the stream gets there; counters are zero.
void decompress_on_gpu(Plan const& plan, cudaStream_t stream);
#endif

}  // namespace rapidsmpf::pages
