#include "table/host/pack_writer.hpp"

#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "table/host/tuning.hpp"
#include "table/packed/packed_format.hpp"
#include "table/packed/packed_layout.hpp"
#include "table/packed/slab.hpp"

namespace rapidsmpf::detail {

namespace {

// The address of a buffer of `bytes` bytes. Its padding is zeroed: it travels, and must not carry what was there before.
std::byte* placed_at(std::byte* base, std::uint64_t offset, std::int64_t bytes) {
    if (offset == ColumnSlot::nowhere) {
        return nullptr;
    }
    std::memset(base + offset + padded_size(bytes) - buffer_alignment, 0, buffer_alignment);
    return base + offset;
}

}  // namespace

PackWriter::PackWriter(
    PackPlan plan, std::span<std::uint32_t const> order, BufferResource& br, AllowOverbooking allow)
    : plan_{std::move(plan)},
      writers_(plan_.nodes.size() * plan_.num_partitions()),
      moved_(plan_.nodes.size()),
      dictionary_of_(plan_.nodes.size(), nullptr) {
    auto const sizes = plan_.layout.place();
    buffers_ = allocate_parts(sizes, order, br, allow);
    if (std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) >= tuning::smallest_streamed_pack) {
        stores_ = Stores::streaming;
    }
    place_writers();
    for (auto& dictionary : plan_.dictionaries) {
        dictionary_of_[dictionary.node] = &dictionary;
    }
    write_dictionaries();
}

void PackWriter::place_writers() {
    std::vector<std::byte*> bases;
    bases.reserve(buffers_.size());
    for (auto const& buffer : buffers_) {
        bases.push_back(buffer->mutable_host_bytes().data());
    }
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
        auto const& field = *plan_.nodes[n].field;
        auto const layout = field.layout();
        for (std::size_t p = 0; p < bases.size(); ++p) {
            auto const& placed = plan_.layout.slot(n, p);
            auto& writer = writers(n)[p];
            writer.validity = placed_at(bases[p], placed.validity, bytes_for_bits(placed.rows));
            writer.values = placed_at(bases[p], placed.values, values_bytes(field, placed.rows));
            writer.data = placed_at(bases[p], placed.data, placed.bytes);
            if (writer.values == nullptr) {
                continue;
            }
            if (layout == Layout::offsets32 || layout == Layout::list32) {
                store<std::int32_t>(writer.values, 0, 0);
            } else if (layout == Layout::offsets64 || layout == Layout::list64) {
                store<std::int64_t>(writer.values, 0, 0);
            }
        }
    }
}

void PackWriter::write_dictionaries() {
    auto const visit = [this](auto node, auto const& column, auto const& rows) {
        this->write_node(node, column, rows);
        return true;
    };
    for (auto& dictionary : plan_.dictionaries) {
        auto const node = plan_.nodes[dictionary.node].values;
        for (source_ = 0; source_ < dictionary.values.size(); ++source_) {
            auto const& values = dictionary.values[source_];
            start_source(node, *values.column);
            walk_(plan_.nodes, node, *values.column, values.selection, visit);
        }
    }
    source_ = 0;
}

void PackWriter::start_source(std::size_t index, Column const& column) {
    auto const& node = plan_.nodes[index];
    if (node.field->layout() == Layout::view) {
        auto const partitions = plan_.num_partitions();
        moved_[index].assign(partitions, {});
        for (std::size_t p = 0; p < partitions; ++p) {
            if (node.moves_buffers[source_ * partitions + p] != 0) {
                moved_[index][p] = append_buffers(writers(index)[p], column, plan_.max_segment);
            }
        }
    }
    for (std::size_t i = 0; i < node.children.size(); ++i) {
        start_source(node.children[i], column.children[i]);
    }
}

template <typename Selection>
void PackWriter::write_blocks(Table const& table, std::span<Selection const> blocks) {
    for (std::size_t i = 0; i < plan_.columns.size(); ++i) {
        start_source(plan_.columns[i], table.columns()[i]);
    }
    auto const visit = [this](auto node, auto const& column, auto const& rows) {
        this->write_node(node, column, rows);
        return true;
    };
    for (auto const& block : blocks) {
        for (std::size_t i = 0; i < plan_.columns.size(); ++i) {
            walk_(plan_.nodes, plan_.columns[i], table.columns()[i], block, visit);
        }
    }
    ++source_;
}

void PackWriter::write(Table const& table, std::span<IndexSelection const> blocks) {
    write_blocks(table, blocks);
}

void PackWriter::write(Table const& table, std::span<RangeSelection const> blocks) {
    write_blocks(table, blocks);
}

template <typename Selection>
void PackWriter::write_node(std::size_t index, Column const& column, Selection const& selection) {
    auto const& node = plan_.nodes[index];
    if (node.field->layout() == Layout::null) {
        return;
    }
    if constexpr (std::is_same_v<Selection, IndexSelection>) {
        if (stores_ == Stores::streaming && plan_.num_partitions() >= tuning::fewest_prefetched_partitions
            && node.field->layout() == Layout::fixed) {
            auto const width = node.field->width();
            device::prefetch(
                column.values + (column.offset + selection.base) * width,
                static_cast<std::size_t>(selection.num_rows() * width));
        }
    }
    auto* const to = writers(index);
    selection.for_each_run([&](std::size_t p, auto const& run) {
        if (node.is_nullable) {
            append_validity(to[p], column, run);
        }
        if (node.values != 0) {
            append_codes(index, p, to[p], column, run);
        } else {
            append_values(index, p, to[p], column, run);
        }
        to[p].row += run.num_rows();
    });
}

template <typename Run>
void PackWriter::append_values(
    std::size_t node, std::size_t partition, ColumnWriter& to, Column const& column, Run const& run) {
    auto const& field = *plan_.nodes[node].field;
    switch (field.layout()) {
        case Layout::bits:
            append_bits(to, column, run);
            break;
        case Layout::fixed:
            append_fixed_width(to, column, run, field.width(), stores_);
            break;
        case Layout::offsets32:
            append_offsets<std::int32_t>(to, column, run, true);
            break;
        case Layout::offsets64:
            append_offsets<std::int64_t>(to, column, run, true);
            break;
        case Layout::list32:
            append_offsets<std::int32_t>(to, column, run, false);
            break;
        case Layout::list64:
            append_offsets<std::int64_t>(to, column, run, false);
            break;
        case Layout::view:
            if (moved_[node][partition].empty()) {
                append_views(to, column, run, plan_.max_segment);
            } else {
                append_moved_views(to, column, run, moved_[node][partition]);
            }
            break;
        case Layout::null:
        case Layout::fixed_list:
        case Layout::structure:
            break;
    }
}

template <typename Run>
void PackWriter::append_codes(
    std::size_t node, std::size_t partition, ColumnWriter& to, Column const& column, Run const& run) {
    auto& dictionary = *dictionary_of_[node];
    auto const width = plan_.nodes[node].field->width();
    if (dictionary.is_compacted) {
        auto& at = dictionary.codes_at[partition];
        auto const* const codes = dictionary.codes.data() + at;
        auto const count = run.num_rows();
        at += static_cast<std::size_t>(count);
        with_code_type(width, [&]<typename T>(T) {
            for (std::int64_t k = 0; k < count; ++k) {
                store(to.values, to.row + k, static_cast<T>(codes[k]));
            }
        });
        return;
    }
    if (dictionary.renumbering.empty() || dictionary.renumbering[source_].empty()) {
        append_fixed_width(to, column, run, width, stores_);
        return;
    }
    with_code_type(width, [&]<typename T>(T) {
        append_renumbered<T>(to, column, run, dictionary.renumbering[source_]);
    });
}

std::vector<PackedData> PackWriter::finish() && {
    if (stores_ == Stores::streaming) {
        device::finish_streaming();
    }
    auto const beginning = PackedMetadataWriter::beginning(*plan_.schema);
    std::vector<PackedData> packed;
    packed.reserve(buffers_.size());
    for (std::size_t p = 0; p < buffers_.size(); ++p) {
        for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
            auto& placed = plan_.layout.slot(n, p);
            auto& written = writers(n)[p];
            placed.nulls = written.nulls;
            if (plan_.nodes[n].field->layout() == Layout::view && written.byte > written.segment_begin) {
                written.segment_ends.push_back(written.byte);
            }
            placed.segment_ends = std::move(written.segment_ends);
        }
        auto metadata = plan_.layout.metadata(p, beginning, plan_.rows[p], buffers_[p]->size());
        packed.emplace_back(std::move(metadata), std::move(buffers_[p]));
    }
    return packed;
}

}  // namespace rapidsmpf::detail
