#include "table/packed/packed_layout.hpp"

#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/error.hpp>

#include "table/host/bits.hpp"

namespace rapidsmpf::detail {

std::size_t padded_size(std::int64_t bytes) {
    return round_up(static_cast<std::size_t>(bytes), buffer_alignment);
}

std::int64_t values_bytes(Field const& field, std::int64_t rows) {
    switch (field.layout()) {
        case Layout::bits:
            return bytes_for_bits(rows);
        case Layout::fixed:
            return rows * field.width();
        case Layout::view:
            return rows * 16;
        case Layout::offsets32:
        case Layout::list32:
            return rows == 0 ? 0 : (rows + 1) * 4;
        case Layout::offsets64:
        case Layout::list64:
            return rows == 0 ? 0 : (rows + 1) * 8;
        case Layout::null:
        case Layout::fixed_list:
        case Layout::structure:
            break;
    }
    return 0;
}

PackedLayout::PackedLayout(std::vector<Field const*> fields, std::size_t num_partitions)
    : fields_{std::move(fields)}, num_partitions_{num_partitions}, slots_(fields_.size() * num_partitions) {}

void PackedLayout::check_lengths(std::size_t node, std::size_t partition) const {
    auto const& field = *fields_[node];
    // The child of a list is the node behind it.
    auto const too_long = (field.layout() == Layout::offsets32 && slot(node, partition).bytes > INT32_MAX)
                          || (field.layout() == Layout::list32 && slot(node + 1, partition).rows > INT32_MAX);
    RAPIDSMPF_EXPECTS(
        !too_long,
        "column '" + field.name() + "' of type " + field.type_name()
            + " would have more than 2^31 items in one piece, beyond its 32-bit offsets; cast it to "
              "large_utf8, large_binary, large_list or a view type first, or partition the table further",
        std::invalid_argument);
}

std::vector<std::size_t> PackedLayout::place() {
    std::vector<std::size_t> sizes(num_partitions_, 0);
    for (std::size_t node = 0; node < fields_.size(); ++node) {
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            check_lengths(node, p);
            auto& placed = slot(node, p);
            auto const put = [&at = sizes[p]](std::uint64_t& offset, std::int64_t bytes) {
                offset = bytes == 0 ? ColumnSlot::nowhere : at;
                at += padded_size(bytes);
            };
            auto const has_bitmap = placed.nulls > 0 && fields_[node]->layout() != Layout::null;
            put(placed.validity, has_bitmap ? bytes_for_bits(placed.rows) : 0);
            put(placed.values, values_bytes(*fields_[node], placed.rows));
            put(placed.data, placed.bytes);
        }
    }
    return sizes;
}

std::vector<std::uint8_t> PackedLayout::metadata(
    std::size_t partition, PackedBeginning const& beginning, std::int64_t rows, std::uint64_t size) const {
    PackedMetadataWriter writer{beginning, rows, size, fields_.size()};
    for (std::size_t node = 0; node < fields_.size(); ++node) {
        auto const& placed = slot(node, partition);
        auto const& field = *fields_[node];
        auto const ref = [](std::uint64_t offset, std::int64_t bytes) {
            return bytes == 0 ? BufferRef{} : BufferRef{offset, static_cast<std::uint64_t>(bytes)};
        };
        PackedNode packed;
        packed.length = placed.rows;
        packed.null_count = field.layout() == Layout::null ? placed.rows : placed.nulls;
        packed.validity = ref(placed.validity, placed.nulls == 0 ? 0 : bytes_for_bits(placed.rows));
        packed.values = ref(placed.values, values_bytes(field, placed.rows));
        packed.data = ref(placed.data, placed.bytes);
        std::int64_t begin{0};
        for (auto const end : placed.segment_ends) {
            packed.variadic.push_back(end - begin);
            begin = end;
        }
        writer.node(field.layout(), packed);
    }
    return writer.finish();
}

}  // namespace rapidsmpf::detail
