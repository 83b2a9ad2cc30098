#include <algorithm>
#include <utility>

#include <rapidsmpf/device/detail/gather_copy.hpp>

#include "table/gpu/cuda_partitioner.hpp"
#include "table/packed/packed_format.hpp"

namespace rapidsmpf::detail {

PackedLayout GpuPartitioner::counted_layout() {
    PackedLayout layout{flat_.fields, num_partitions_};
    for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
        auto const& space = space_of(n);
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            // A dictionary goes to each partition that has codes.
            auto const is_there =
                space.codes < 0 || layout.slot(static_cast<std::size_t>(space.codes), p).rows > 0;
            auto const at = space.codes < 0 ? p : 0;
            if (!is_there) {
                continue;
            }
            auto const number = [&](std::size_t index) {
                return static_cast<std::int64_t>(known_[index + at]);
            };
            auto& slot = layout.slot(n, p);
            slot.rows = number(space.counted_at);
            if (states_[n].lengths_at && is_text(flat_.nodes[n].layout)) {
                slot.bytes = number(*states_[n].lengths_at);
            }
            slot.nulls = states_[n].nulls_at ? number(*states_[n].nulls_at) : 0;
        }
    }
    return layout;
}

std::size_t GpuPartitioner::first_with(PackedLayout const& layout, Space const& space) const {
    auto const codes = static_cast<std::size_t>(space.codes);
    std::size_t p{0};
    while (p < num_partitions_ && layout.slot(codes, p).rows == 0) {
        ++p;
    }
    return p;
}

std::vector<PackedData> GpuPartitioner::write(std::span<std::uint32_t const> placement) {
    auto layout = counted_layout();
    auto const sizes = layout.place();
    auto buffers = allocate_device_parts(sizes, placement, br_, AllowOverbooking::yes, stream_);
    if (table_.num_rows() > 0 && !flat_.nodes.empty()) {
        auto const slots = device_slots(layout, buffers);
        Buffer::write_together(buffers, [&](Stream) {
            describe_columns(&layout);
            upload_columns(slots);
            enqueue_writes();
            copy_dictionaries(layout, slots);
        });
    }
    return with_metadata(layout, sizes, std::move(buffers));
}

std::vector<PackedData> GpuPartitioner::split(DeviceSlab slab, std::span<std::uint32_t const> placement) {
    auto layout = counted_layout();
    auto const sizes = layout.place();
    auto buffers = split_slab(std::move(slab), sizes, placement, br_, stream_);
    Buffer::write_together(buffers, [](Stream) {});  // marks the end of what is enqueued
    return with_metadata(layout, sizes, std::move(buffers));
}

std::vector<PackedData> GpuPartitioner::with_metadata(
    PackedLayout const& layout, std::span<std::size_t const> sizes,
    std::vector<std::unique_ptr<Buffer>> buffers) const {
    auto const beginning = PackedMetadataWriter::beginning(*table_.schema());
    std::vector<PackedData> packed;
    packed.reserve(num_partitions_);
    for (std::size_t p = 0; p < num_partitions_; ++p) {
        auto const rows = static_cast<std::int64_t>(known_[spaces_.front().counted_at + p]);
        packed.emplace_back(layout.metadata(p, beginning, rows, sizes[p]), std::move(buffers[p]));
    }
    return packed;
}

std::vector<DeviceSlot> GpuPartitioner::device_slots(
    PackedLayout const& layout, std::vector<std::unique_ptr<Buffer>> const& buffers) const {
    std::vector<DeviceSlot> slots(layout.num_nodes() * num_partitions_);
    for (std::size_t n = 0; n < layout.num_nodes(); ++n) {
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            auto const& placed = layout.slot(n, p);
            // The GPU writes there, and the buffers are ours.
            auto* const base = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(buffers[p]->data()));
            auto const address = [base](std::uint64_t offset) {
                return offset == ColumnSlot::nowhere ? nullptr : base + offset;
            };
            auto& slot = slots[n * num_partitions_ + p];
            slot.validity = address(placed.validity);
            slot.values = address(placed.values);
            slot.data = address(placed.data);
            slot.validity_bytes = slot.validity == nullptr ? 0 : padded_size((placed.rows + 7) / 8);
            slot.values_bytes = padded_size(values_bytes(layout.field(n), placed.rows));
            slot.data_bytes = padded_size(placed.bytes);
        }
    }
    return slots;
}

void GpuPartitioner::describe_columns(PackedLayout const* layout) {
    columns_.assign(spaces_.size(), {});
    slots_of_.assign(flat_.nodes.size(), nullptr);
    for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
        auto const& space = space_of(n);
        auto const& node = flat_.nodes[n];
        auto const first = space.codes < 0 ? 0 : first_with(*layout, space);
        if (space.rows.rows == 0 || first == num_partitions_) {
            continue;
        }
        slots_of_[n] = slots_ + n * num_partitions_ + first;
        auto& columns = columns_[static_cast<std::size_t>(states_[n].space)];
        if (node.layout == Layout::fixed && node.width > 0) {
            columns.fixed.push_back({node.values, slots_of_[n], node.width});
        } else if (node.layout == Layout::bits) {
            columns.bits.push_back(
                {static_cast<std::uint8_t const*>(node.values), node.bit_offset, slots_of_[n], false});
        }
        if (states_[n].nulls_at && (layout == nullptr || has_nulls(n))) {
            columns.bits.push_back({node.validity, node.bit_offset, slots_of_[n], true});
        }
    }
}

void GpuPartitioner::enqueue_writes() {
    clear_slots(
        slots_, device_nodes_, static_cast<std::uint32_t>(flat_.nodes.size()), num_partitions_, stream_);
    auto const* fixed = fixed_;
    auto const* bits = bits_;
    for (std::size_t s = 0; s < spaces_.size(); ++s) {
        auto const num_fixed = static_cast<std::int32_t>(columns_[s].fixed.size());
        auto const num_bits = static_cast<std::int32_t>(columns_[s].bits.size());
        if (num_fixed > 0) {
            write_fixed(spaces_[s].rows, fixed, num_fixed, stream_);
        }
        if (num_bits > 0) {
            write_bits(spaces_[s].rows, bits, num_bits, stream_);
        }
        fixed += num_fixed;
        bits += num_bits;
    }
    for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
        if (has_offsets(flat_.nodes[n].layout) && slots_of_[n] != nullptr) {
            write_lengths(space_of(n).rows, flat_.nodes[n], states_[n].sums, slots_of_[n], stream_);
        }
    }
}

bool GpuPartitioner::has_nulls(std::size_t node) {
    if (!states_[node].nulls_at) {
        return false;
    }
    auto const* const first = known_.data() + *states_[node].nulls_at;
    return std::any_of(
        first, first + space_of(node).rows.num_partitions, [](auto nulls) { return nulls > 0; });
}

void GpuPartitioner::upload_columns(std::vector<DeviceSlot> const& slots) {
    std::vector<FixedColumn> fixed;
    std::vector<BitColumn> bits;
    for (auto const& columns : columns_) {
        fixed.insert(fixed.end(), columns.fixed.begin(), columns.fixed.end());
        bits.insert(bits.end(), columns.bits.begin(), columns.bits.end());
    }
    auto& device = br_.device();
    device.copy(slots_, slots.data(), slots.size() * sizeof(DeviceSlot), stream_);
    device.copy(fixed_, fixed.data(), fixed.size() * sizeof(FixedColumn), stream_);
    device.copy(bits_, bits.data(), bits.size() * sizeof(BitColumn), stream_);
}

void GpuPartitioner::copy_dictionaries(PackedLayout const& layout, std::vector<DeviceSlot> const& slots) {
    std::vector<CopyPiece> copies;
    for (std::size_t n = 0; n < flat_.nodes.size(); ++n) {
        auto const& space = space_of(n);
        if (space.codes < 0) {
            continue;
        }
        auto const first = first_with(layout, space);
        for (auto p = first + 1; p < num_partitions_; ++p) {
            auto const& from = slots[n * num_partitions_ + first];
            auto const& to = slots[n * num_partitions_ + p];
            if (to.validity != nullptr) {
                copies.push_back({from.validity, to.validity, to.validity_bytes});
            }
            if (to.values != nullptr) {
                copies.push_back({from.values, to.values, to.values_bytes});
            }
            if (to.data != nullptr) {
                copies.push_back({from.data, to.data, to.data_bytes});
            }
        }
    }
    gather_copy_cuda(copies, stream_);
}

}  // namespace rapidsmpf::detail
