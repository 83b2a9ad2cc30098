// Footers of Parquet files, which anyone may have written. Seeds: scripts/parquet_footer_seeds.py.
#include "compute/scan/footer_parser.hpp"
#include "fuzzer.hpp"

namespace rapidsmpf::fuzz {

void read_input(std::span<std::uint8_t const> input) {
    auto const footer = copied(input);
    compute::RowGroups groups;
    if (!takes<compute::FooterError>([&] { groups = compute::parse_row_groups(footer); })) {
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
    auto const rest = compute::parse_row_groups(groups.rest);
    require(rest.rows.empty() && rest.chunks.empty(), "the rest has no row groups");
    require(rest.rest == groups.rest, "the rest of the rest is the rest");
}

std::vector<Bytes> seeds() {
    return {};
}

}  // namespace rapidsmpf::fuzz
