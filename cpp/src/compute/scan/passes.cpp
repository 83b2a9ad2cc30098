#include "compute/scan/passes.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace rapidsmpf::compute {

namespace {

struct PassLimits {
    std::int64_t rows;
    std::int64_t bytes;
};

// As much into each pass as it may hold.
std::vector<Pass> full_passes(std::span<RowGroupSize const> row_groups, PassLimits limits) {
    std::vector<Pass> passes;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < row_groups.size(); ++i) {
        auto const& next = row_groups[i];
        auto const fits = !passes.empty() && passes.back().rows + next.rows <= limits.rows
                          && bytes + next.decoded_bytes <= limits.bytes
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

// `n` passes that end where an n-th of the rows does, or nothing if one of them held too much.
std::vector<Pass> even_passes(
    std::span<RowGroupSize const> row_groups, std::size_t n, std::int64_t rows, PassLimits limits) {
    std::vector<Pass> passes;
    std::int64_t so_far = 0;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < row_groups.size(); ++i) {
        auto const& next = row_groups[i];
        auto const border = rows / static_cast<std::int64_t>(n) * static_cast<std::int64_t>(passes.size());
        if (passes.empty() || (so_far + next.rows / 2 >= border && passes.size() < n)) {
            passes.push_back(Pass{.begin = i, .end = i, .rows = 0});
            bytes = 0;
        }
        auto& pass = passes.back();
        pass.end = i + 1;
        pass.rows += next.rows;
        bytes += next.decoded_bytes;
        so_far += next.rows;
        if (pass.end - pass.begin > 1
            && (pass.rows > limits.rows || bytes > limits.bytes
                || row_groups[pass.begin].schema != next.schema)) {
            return {};
        }
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
    PassLimits const limits{
        std::min<std::int64_t>(signed_limit(max_rows), std::numeric_limits<std::int32_t>::max()),
        signed_limit(max_bytes)};
    auto passes = full_passes(row_groups, limits);
    if (passes.size() > 1) {
        // As many passes of about the same size instead of full ones and a rest: threads end at the same time.
        auto const rows = std::accumulate(
            passes.begin(), passes.end(), std::int64_t{0},
            [](auto sum, Pass const& pass) { return sum + pass.rows; });
        if (auto even = even_passes(row_groups, passes.size(), rows, limits); !even.empty()) {
            passes = std::move(even);
        }
    }
    std::erase_if(passes, [](Pass const& pass) { return pass.rows == 0; });
    return passes;
}

std::vector<Pass> with_small_edges(
    std::span<RowGroupSize const> row_groups, std::vector<Pass> passes, std::size_t edge_rows) {
    auto const edge = signed_limit(edge_rows);
    if (edge == 0 || passes.empty()) {
        return passes;
    }
    // The pieces of a pass, from its first row group on or from its last back.
    auto const divide = [&](Pass const& pass, bool backwards) {
        std::vector<Pass> pieces;
        auto wanted = edge;
        auto left = pass.rows;
        for (std::size_t i = 0; i < pass.end - pass.begin; ++i) {
            auto const place = backwards ? pass.end - 1 - i : pass.begin + i;
            if (pieces.empty() || (pieces.back().rows >= wanted && left >= edge)) {
                wanted = pieces.empty() ? edge : 2 * wanted;
                pieces.push_back(Pass{.begin = place, .end = place + 1, .rows = 0});
            }
            auto& piece = pieces.back();
            piece.begin = std::min(piece.begin, place);
            piece.end = std::max(piece.end, place + 1);
            piece.rows += row_groups[place].rows;
            left -= row_groups[place].rows;
        }
        if (backwards) {
            std::ranges::reverse(pieces);
        }
        return pieces;
    };
    auto divided = divide(passes.front(), false);
    if (passes.size() > 1) {
        divided.insert(divided.end(), passes.begin() + 1, passes.end() - 1);
        std::ranges::copy(divide(passes.back(), true), std::back_inserter(divided));
    }
    std::erase_if(divided, [](Pass const& pass) { return pass.rows == 0; });
    return divided;
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
            layout.bytes = (layout.bytes + extent_alignment - 1) / extent_alignment * extent_alignment;
            last = &layout.extents.emplace_back(
                Extent{.file = chunk.file, .offset = chunk.offset, .bytes = 0, .place = layout.bytes});
            layout.bytes += extent_padding;
        }
        layout.places[i] = last->place + last->bytes;
        last->bytes += chunk.bytes;
        layout.bytes += chunk.bytes;
    }
    return layout;
}

}  // namespace rapidsmpf::compute
