// Pieces travel to the kernels in their arguments; a block takes a chunk of one piece.
#include <algorithm>

#include "table/gpu/concat_kernels.hpp"
#include "table/gpu/device_bytes.hpp"
#include "table/gpu/launch.cuh"

namespace rapidsmpf::detail {

namespace {

constexpr std::uint32_t threads = 256;
constexpr std::int64_t items_per_chunk = 8192;
constexpr std::uint32_t pieces_per_launch = 640;

template <typename Piece>
struct Batch {
    Piece pieces[pieces_per_launch];
    std::uint32_t first_chunk[pieces_per_launch];
    std::uint32_t count;
};

// The words of a destination that a piece has bits in.
__host__ __device__ inline std::int64_t words_of(BitPiece const& piece) {
    return piece.count == 0 ? 0 : (piece.position + piece.count - 1) / 32 - piece.position / 32 + 1;
}

template <typename Offset>
struct JoinOffsets {
    __host__ __device__ static std::int64_t items(OffsetPiece const& piece) { return piece.rows; }
    __device__ static void run(OffsetPiece const& piece, std::int64_t item) {
        auto const* const source = static_cast<Offset const*>(piece.source);
        auto* const destination = static_cast<Offset*>(piece.destination);
        if (item == 0 && piece.base == 0) {
            destination[-1] = 0;
        }
        destination[item] = static_cast<Offset>(piece.base + (source[item + 1] - source[0]));
    }
};

struct JoinBits {
    __host__ __device__ static std::int64_t items(BitPiece const& piece) { return words_of(piece); }
    __device__ static void run(BitPiece const& piece, std::int64_t item) {
        auto const word = piece.position / 32 + item;
        auto const bits = bits_for_word(piece, word);
        // The first and the last word may have bits of neighbours.
        if (item == 0 || item == words_of(piece) - 1) {
            atomicOr(piece.destination + word, bits);
        } else {
            piece.destination[word] = bits;
        }
    }
};

template <typename Join, typename Piece>
__global__ void join_kernel(__grid_constant__ Batch<Piece> const batch) {
    auto const index = last_not_above(batch.first_chunk, 0, batch.count, blockIdx.x);
    auto const& piece = batch.pieces[index];
    auto const begin = static_cast<std::int64_t>(blockIdx.x - batch.first_chunk[index]) * items_per_chunk;
    auto const items = Join::items(piece);
    auto const end = begin + items_per_chunk < items ? begin + items_per_chunk : items;
    for (auto item = begin + threadIdx.x; item < end; item += threads) {
        Join::run(piece, item);
    }
}

template <typename Join, typename Piece>
void join(std::span<Piece const> pieces, Stream stream) {
    while (!pieces.empty()) {
        Batch<Piece> batch;
        batch.count = 0;
        std::uint32_t chunks{0};
        std::size_t taken{0};
        for (; taken < pieces.size() && batch.count < pieces_per_launch; ++taken) {
            auto const items = Join::items(pieces[taken]);
            if (items > 0) {
                batch.pieces[batch.count] = pieces[taken];
                batch.first_chunk[batch.count++] = chunks;
                chunks += static_cast<std::uint32_t>((items + items_per_chunk - 1) / items_per_chunk);
            }
        }
        pieces = pieces.subspan(taken);
        if (chunks > 0) {
            join_kernel<Join, Piece><<<chunks, threads, 0, native(stream)>>>(batch);
            check_cuda(cudaGetLastError(), "putting columns together");
        }
    }
}

}  // namespace

void join_offsets32(std::span<OffsetPiece const> pieces, Stream stream) {
    join<JoinOffsets<std::int32_t>>(pieces, stream);
}

void join_offsets64(std::span<OffsetPiece const> pieces, Stream stream) {
    join<JoinOffsets<std::int64_t>>(pieces, stream);
}

void join_bits(std::span<BitPiece const> pieces, Stream stream) {
    join<JoinBits>(pieces, stream);
}

void clear_memory(void* begin, std::size_t bytes, Stream stream) {
    check_cuda(cudaMemsetAsync(begin, 0, bytes, native(stream)), "clearing memory");
}

}  // namespace rapidsmpf::detail
