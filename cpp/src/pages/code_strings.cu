// The steps of code_strings.hpp as kernels: a thread for each string or row.
#include <algorithm>

#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/pages/detail/code_strings.hpp>

#include "pages/string_set.hpp"

namespace rapidsmpf::pages {

namespace {

constexpr unsigned threads = 256;

unsigned blocks_for(std::uint64_t n) {
    return static_cast<unsigned>((n + threads - 1) / threads);
}

__device__ std::uint64_t item_of_thread() {
    return std::uint64_t{blockIdx.x} * threads + threadIdx.x;
}

// Calls step(number) for the string of this thread in each range that its row of blocks has.
template <typename Step>
__device__ void for_string_of_thread(AddStrings const& add, Step&& step) {
    auto const i = item_of_thread();
    for (auto range = blockIdx.y; range < add.n_ranges; range += gridDim.y) {
        auto const [first, count] = add.ranges[range];
        if (i < count) {
            step(first + static_cast<std::uint32_t>(i));
        }
    }
}

__global__ void __launch_bounds__(threads) claim_slots(AddStrings const add) {
    for_string_of_thread(add, [&](std::uint32_t number) { claim_slot<LanesOfWarp>(add, number); });
}

__global__ void __launch_bounds__(threads) publish_all(AddStrings const add) {
    for_string_of_thread(add, [&](std::uint32_t number) { publish<LanesOfWarp>(add, number); });
}

__global__ void __launch_bounds__(threads) codes_of_slots(AddStrings const add) {
    for_string_of_thread(add, [&](std::uint32_t number) { code_of_slot(add, number); });
}

__global__ void __launch_bounds__(threads)
    find_all(StringSet const set, StringList const list, std::uint64_t n, std::int32_t* codes) {
    auto const i = item_of_thread();
    if (i < n) {
        codes[i] = find_string(set, place_in_list(list, i));
    }
}

__global__ void __launch_bounds__(threads) codes_of_rows(
    std::int32_t const* codes, std::uint32_t n, NumberedRows const rows, std::int32_t* row_codes,
    std::uint32_t* error) {
    auto const row = item_of_thread();
    if (row < rows.rows) {
        row_codes[row] = code_of_row<LanesOfWarp>(codes, n, rows, row, error);
    }
}

__global__ void __launch_bounds__(threads)
    places_of_all_codes(StringSet const set, NumberedRows const codes, StringPlace* places) {
    auto const row = item_of_thread();
    if (row < codes.rows) {
        places[row] = place_of_code(set, codes, row);
    }
}

void check_launch() {
    device::detail::check_cuda(cudaGetLastError(), "cudaGetLastError");
}

}  // namespace

void add_strings_on_gpu(AddStrings const& add, cudaStream_t stream) {
    if (add.n_ranges == 0 || add.most_in_range == 0) {
        return;
    }
    constexpr std::uint32_t most_blocks_y = 65'535;
    dim3 const blocks{blocks_for(add.most_in_range), std::min(add.n_ranges, most_blocks_y)};
    claim_slots<<<blocks, threads, 0, stream>>>(add);
    publish_all<<<blocks, threads, 0, stream>>>(add);
    codes_of_slots<<<blocks, threads, 0, stream>>>(add);
    check_launch();
}

void find_strings_on_gpu(
    StringSet const& set, StringList const& list, std::uint64_t n, std::int32_t* codes, cudaStream_t stream) {
    if (n == 0) {
        return;
    }
    find_all<<<blocks_for(n), threads, 0, stream>>>(set, list, n, codes);
    check_launch();
}

void code_rows_on_gpu(
    std::int32_t const* codes, std::uint32_t n, NumberedRows const& rows, std::int32_t* row_codes,
    std::uint32_t* error, cudaStream_t stream) {
    if (rows.rows == 0) {
        return;
    }
    codes_of_rows<<<blocks_for(rows.rows), threads, 0, stream>>>(codes, n, rows, row_codes, error);
    check_launch();
}

void places_of_codes_on_gpu(
    StringSet const& set, NumberedRows const& codes, StringPlace* places, cudaStream_t stream) {
    if (codes.rows == 0) {
        return;
    }
    places_of_all_codes<<<blocks_for(codes.rows), threads, 0, stream>>>(set, codes, places);
    check_launch();
}

}  // namespace rapidsmpf::pages
