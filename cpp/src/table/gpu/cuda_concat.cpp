// Concatenates packed tables on a GPU. All sizes are in their metadata, so nothing has to be waited for. The padding
// between the buffers of the result is not cleared: it is read in place, and packing it again copies what is there only.
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/detail/gather_copy.hpp>

#include "table/gpu/concat_kernels.hpp"
#include "table/gpu/device_table.hpp"
#include "table/host/bits.hpp"
#include "table/packed/packed_layout.hpp"
#include "table/packed/slab.hpp"

namespace rapidsmpf::detail {

namespace {

class GpuConcat {
  public:
    GpuConcat(Schema const& schema, std::span<Table const> tables) {
        for (std::size_t i = 0; i < schema.num_columns(); ++i) {
            std::vector<Column const*> sources;
            for (auto const& table : tables) {
                sources.push_back(&table.columns()[i]);
            }
            add_node(schema.fields()[i], sources);
        }
        for (auto const& table : tables) {
            rows_ += table.num_rows();
        }
    }

    [[nodiscard]] PackedData run(
        Schema const& schema, BufferResource& br, AllowOverbooking allow, Stream stream) {
        PackedLayout layout{fields_, 1};
        for (std::size_t n = 0; n < fields_.size(); ++n) {
            auto& piece = layout.slot(n, 0);
            for (auto const* const column : sources_[n]) {
                piece.rows += column->length;
                piece.nulls += column->null_count;
                piece.bytes += static_cast<std::int64_t>(column->data.size());
            }
        }
        auto const sizes = layout.place();
        auto buffers = allocate_device_parts(sizes, {}, br, allow, stream);
        buffers.front()->write([&](std::byte* base, Stream on) {
            for (std::size_t n = 0; n < fields_.size(); ++n) {
                write_node(n, layout.slot(n, 0), base, on);
            }
            gather_copy_cuda(copies_, on);
            join_offsets32(offsets32_, on);
            join_offsets64(offsets64_, on);
            join_bits(bits_, on);
        });
        return PackedData{
            layout.metadata(0, PackedMetadataWriter::beginning(schema), rows_, sizes[0]),
            std::move(buffers.front())};
    }

  private:
    void add_node(Field const& field, std::vector<Column const*> const& sources) {
        fields_.push_back(&field);
        sources_.push_back(sources);
        for (std::size_t i = 0; i < field.children().size(); ++i) {
            std::vector<Column const*> children;
            for (auto const* const column : sources) {
                children.push_back(&column->children[i]);
            }
            add_node(field.children()[i], children);
        }
    }

    void write_node(std::size_t node, ColumnSlot const& placed, std::byte* base, Stream stream) {
        auto const& field = *fields_[node];
        auto const layout = field.layout();
        if (placed.validity != ColumnSlot::nowhere) {
            write_bits(node, base + placed.validity, placed.rows, stream, Bits::validity);
        }
        if (placed.values == ColumnSlot::nowhere) {
            return;
        }
        auto* const values = base + placed.values;
        if (layout == Layout::bits) {
            write_bits(node, values, placed.rows, stream, Bits::values);
            return;
        }
        if (layout == Layout::fixed) {
            copy_bytes(node, values, [&](Column const& column) {
                return std::span{column.values, static_cast<std::size_t>(column.length * field.width())};
            });
            return;
        }
        if (placed.data != ColumnSlot::nowhere) {
            copy_bytes(node, base + placed.data, [](Column const& column) { return column.data; });
        }
        auto const is_narrow = layout == Layout::offsets32 || layout == Layout::list32;
        auto const is_list = layout == Layout::list32 || layout == Layout::list64;
        std::int64_t row{1};
        std::int64_t before{0};
        for (auto const* const column : sources_[node]) {
            if (column->length > 0) {
                (is_narrow ? offsets32_ : offsets64_)
                    .push_back({column->offsets, values + row * (is_narrow ? 4 : 8), column->length, before});
            }
            row += column->length;
            before += is_list ? column->children[0].length : static_cast<std::int64_t>(column->data.size());
        }
    }

    enum class Bits : std::uint8_t { validity, values };

    void write_bits(std::size_t node, std::byte* to, std::int64_t rows, Stream stream, Bits which) {
        clear_memory(to, padded_size(bytes_for_bits(rows)), stream);
        std::int64_t position{0};
        for (auto const* const column : sources_[node]) {
            auto const* const from = which == Bits::validity ? static_cast<void const*>(column->validity)
                                                             : static_cast<void const*>(column->values);
            if (column->length > 0) {
                bits_.push_back(
                    {static_cast<std::uint32_t const*>(from), reinterpret_cast<std::uint32_t*>(to), position,
                     column->length});
            }
            position += column->length;
        }
    }

    template <typename BytesOf>
    void copy_bytes(std::size_t node, std::byte* to, BytesOf const& bytes_of) {
        for (auto const* const column : sources_[node]) {
            auto const bytes = bytes_of(*column);
            copies_.push_back({bytes.data(), to, bytes.size()});
            to += bytes.size();
        }
    }

    std::vector<Field const*> fields_;                 // of each node
    std::vector<std::vector<Column const*>> sources_;  // of each node, by table
    std::int64_t rows_{0};
    std::vector<CopyPiece> copies_;
    std::vector<OffsetPiece> offsets32_;
    std::vector<OffsetPiece> offsets64_;
    std::vector<BitPiece> bits_;
};

}  // namespace

PackedData concat_packed_on_gpu(
    Schema const& schema, std::span<Table const> tables, BufferResource& br, AllowOverbooking allow,
    Stream stream) {
    return GpuConcat{schema, tables}.run(schema, br, allow, stream);
}

}  // namespace rapidsmpf::detail
