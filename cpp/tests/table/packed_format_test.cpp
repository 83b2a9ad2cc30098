// Metadata that no packer writes, with a checksum that is right.
#include "table/packed/packed_format.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {
namespace {

// Offsets for so many rows would take more bytes than a 64-bit number counts.
TEST(PackedFormat, a_number_of_rows_whose_offsets_overflow_is_refused) {
    alignas(buffer_alignment) std::array<std::byte, 64> const data{};
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    struct Case {
        Field field;
        std::int64_t rows;
    };
    std::vector<Case> const cases{
        {Field{"text", "u"}, most / 4},
        {Field{"large_text", "U"}, most / 8},
        {Field{"list", "+l", ARROW_FLAG_NULLABLE, {Field{"item", "n"}}}, most / 4},
        {Field{"large_list", "+L", ARROW_FLAG_NULLABLE, {Field{"item", "n"}}}, most / 8},
    };
    for (auto const& [field, rows] : cases) {
        Schema const schema{{field}};
        PackedNode node;
        node.length = rows;
        node.values = BufferRef{0, data.size()};
        PackedMetadataWriter writer{PackedMetadataWriter::beginning(schema), rows, data.size(), 2};
        writer.node(field.layout(), node);
        if (!field.children().empty()) {
            writer.node(Layout::null, PackedNode{});
        }
        auto const metadata = writer.finish();
        EXPECT_THROW(
            static_cast<void>(read_packed_columns(schema, split_packed_metadata(metadata), data)),
            FormatError)
            << field.name();
    }
}

}  // namespace
}  // namespace rapidsmpf::detail
