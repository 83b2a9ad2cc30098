// Footers of Parquet files, which anyone may have written. Seeds: scripts/parquet_footer_seeds.py.
#include <rapidsmpf/parquet/detail/footer_parser.hpp>

#include "fuzzer.hpp"

namespace rapidsmpf::fuzz {

void read_input(std::span<std::uint8_t const> input) {
    auto const footer = copied(input);
    static_cast<void>(takes<parquet::FooterError>([&] {
        for (auto const& size : parquet::row_group_sizes(footer)) {
            require(size.rows >= 0 && size.bytes >= 0, "sizes are not negative");
        }
    }));
    for (auto const* const name : {"integer", "text", "a", "b", "struct", ""}) {
        static_cast<void>(takes<parquet::FooterError>([&] {
            auto const facts = parquet::column_facts(footer, name);
            for (auto const& chunk : facts ? facts->chunks : std::vector<parquet::ChunkFacts>{}) {
                require(chunk.rows >= 0, "rows are not negative");
                require(
                    chunk.has_bounds || (chunk.least.empty() && chunk.most.empty()), "bounds are both there");
            }
        }));
    }
    parquet::RowGroups groups;
    if (!takes<parquet::FooterError>([&] { groups = parquet::parse_row_groups(footer); })) {
        return;
    }
    require(
        groups.chunks.size() == groups.rows.size() * groups.columns.size(),
        "each row group has a chunk of each column");
    for (auto const& chunk : groups.chunks) {
        require(
            chunk.offset() >= 0 && chunk.compressed_bytes >= 0 && chunk.uncompressed_bytes >= 0
                && chunk.values >= 0,
            "sizes are not negative");
    }
    auto const rest = parquet::parse_row_groups(groups.rest);
    require(rest.rows.empty() && rest.chunks.empty(), "the rest has no row groups");
    require(rest.rest == groups.rest, "the rest of the rest is the rest");
}

std::vector<Bytes> seeds() {
    return {};
}

}  // namespace rapidsmpf::fuzz
