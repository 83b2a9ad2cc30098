// Decodes Parquet column chunks of fixed-width values at the top level of a schema (no repetition levels, at most one definition
// level) into columns: values one after the other, and a validity bitmap. Pages are PLAIN or have dictionary indices, and are not
// compressed. libcudf's reader does the same for all types and encodings, in about eighty launches and twenty waits a call.
//
// ValueCounters::error is set if a page is damaged or has another layout. The output is then undefined, and the caller has to decode
// the chunks by other means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#ifdef RAPIDSMPF_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include <rapidsmpf/pages/detail/decompress.hpp>

namespace rapidsmpf::pages {

struct ValuePage;

// A column chunk with uncompressed pages.
struct ValueChunk {
    std::uint8_t const* data{nullptr};
    std::uint64_t bytes{0};
    std::uint64_t values{0};  // nulls included
    std::uint64_t row{0};     // of the column, where its first value goes
    std::uint32_t column{0};  // index in ValuePlan::columns
};

// A column that is decoded.
struct ValueColumn {
    std::uint8_t* out{nullptr};  // output: out_bytes for each row
    // Output: the validity bitmap, which the caller has set to zero. Null if the column is required, as Parquet calls it.
    std::uint32_t* valid{nullptr};
    std::uint32_t stored_bytes{0};  // size of a value in a page: 4 or 8
    // Size of a value in `out`: 1, 2, 4 or 8, at most stored_bytes. The low-order bytes are kept; nulls become 0.
    std::uint32_t out_bytes{0};
    std::uint32_t nulls{0};  // output: how many rows are null
};

struct ValueCounters {
    std::uint32_t pages{0};
    std::uint32_t error{0};      // a Problem
    std::uint32_t next_page{0};  // that no warp has taken
};

// All pointers refer to memory of the device that runs the plan. The caller owns that memory.
struct ValuePlan {
    ValueChunk const* chunks{nullptr};
    std::uint32_t n_chunks{0};
    ValueColumn* columns{nullptr};
    ValueCounters* counters{nullptr};  // zero
    ValuePage* pages{nullptr};
    std::uint32_t most_pages{0};
};

// Where the parts of a plan are in one block of memory: chunks, columns and counters first, as the host fills them; it reads columns
// and counters again.
struct ValuePlanLayout {
    std::uint32_t chunks{0};
    std::uint32_t pages{0};
    std::size_t columns_at{0};
    std::size_t counters_at{0};
    std::size_t pages_at{0};
    std::size_t bytes{0};

    [[nodiscard]] static ValuePlanLayout of(std::span<ValueChunk const> chunks, std::size_t columns);
    // The plan in such a block of memory.
    [[nodiscard]] ValuePlan in(std::byte* memory) const;
};

void decode_values_on_cpu(ValuePlan const& plan);

#ifdef RAPIDSMPF_HAVE_CUDA
// The same, enqueued on a stream.
void decode_values_on_gpu(ValuePlan const& plan, cudaStream_t stream);
#endif

}  // namespace rapidsmpf::pages
