#include "compute/scan/passes.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace rapidsmpf::compute {

namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t after = 64;

// Passes of at most so many rows and bytes, and of at most a share of the rows, which evens them out.
std::vector<Pass> cut(
    std::span<RowGroupSize const> row_groups, std::int64_t max_rows, std::int64_t max_bytes) {
    std::vector<Pass> passes;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < row_groups.size(); ++i) {
        auto const& next = row_groups[i];
        auto const fits = !passes.empty() && passes.back().rows + next.rows <= max_rows
                          && bytes + next.decoded_bytes <= max_bytes
                          && row_groups[passes.back().begin].schema == next.schema;
        if (!fits) {
            passes.push_back(Pass{.begin = i, .end = i, .rows = 0});
            bytes = 0;
        }
        passes.back().end = i + 1;
        passes.back().rows += next.rows;
        bytes += next.decoded_bytes;
    }
    return passes;
}

std::int64_t signed_limit(std::size_t limit) {
    return static_cast<std::int64_t>(
        std::min<std::size_t>(limit, std::size_t{std::numeric_limits<std::int64_t>::max()}));
}

}  // namespace

std::vector<Pass> make_passes(
    std::span<RowGroupSize const> row_groups, std::size_t max_rows, std::size_t max_bytes) {
    // A table of libcudf has less than 2^31 rows.
    auto const rows =
        std::min<std::int64_t>(signed_limit(max_rows), std::numeric_limits<std::int32_t>::max());
    auto const bytes = signed_limit(max_bytes);
    auto passes = cut(row_groups, rows, bytes);
    if (passes.size() > 1) {
        // As many passes of about the same size instead of full ones and a rest: threads end at the same time.
        auto const total = std::accumulate(
            passes.begin(), passes.end(), std::int64_t{0},
            [](auto sum, Pass const& pass) { return sum + pass.rows; });
        auto const largest = std::ranges::max(row_groups, {}, &RowGroupSize::rows).rows;
        auto const share = total / static_cast<std::int64_t>(passes.size()) + largest;
        if (share < rows) {
            if (auto even = cut(row_groups, share, bytes); even.size() == passes.size()) {
                passes = std::move(even);
            }
        }
    }
    std::erase_if(passes, [](Pass const& pass) { return pass.rows == 0; });
    return passes;
}

PassLayout lay_out(std::span<ChunkRange const> chunks) {
    PassLayout layout;
    layout.places.resize(chunks.size());
    std::vector<std::size_t> order(chunks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
        return chunks[a].file != chunks[b].file ? chunks[a].file < chunks[b].file
                                                : chunks[a].offset < chunks[b].offset;
    });
    for (auto const i : order) {
        auto const& chunk = chunks[i];
        auto* last = layout.extents.empty() ? nullptr : &layout.extents.back();
        // What overlaps, as in no file that a writer made, is copied twice.
        if (last == nullptr || last->file != chunk.file || last->offset + last->bytes != chunk.offset) {
            layout.bytes = (layout.bytes + alignment - 1) / alignment * alignment;
            last = &layout.extents.emplace_back(
                Extent{.file = chunk.file, .offset = chunk.offset, .bytes = 0, .place = layout.bytes});
            layout.bytes += after;
        }
        layout.places[i] = last->place + last->bytes;
        last->bytes += chunk.bytes;
        layout.bytes += chunk.bytes;
    }
    return layout;
}

}  // namespace rapidsmpf::compute
