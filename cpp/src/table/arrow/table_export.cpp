// Handing tables out as Arrow arrays that share the table's memory.
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/table.hpp>
#include <rapidsmpf/table/table_stream.hpp>

#include "table/gpu/device_table.hpp"
#include "table/host/bits.hpp"

namespace rapidsmpf {

namespace {

// Where buffers without bytes point to: many consumers do not take a null pointer.
alignas(64) constexpr std::byte nothing[64] = {};

// What an exported ArrowArray owns. Each node has its own share of the table, so that a consumer may move
// children out.
struct ExportedArray {
    std::shared_ptr<void const> owner;
    std::shared_ptr<Column const> dictionary_owner;
    std::vector<void const*> buffers;
    std::vector<std::int64_t> variadic_sizes;
    std::vector<std::uint64_t> validity;  // when the bits had to be moved
    std::vector<std::unique_ptr<ArrowArray>> children;
    std::vector<ArrowArray*> child_pointers;
    std::unique_ptr<ArrowArray> dictionary;
};

void release_exported_array(ArrowArray* array) {
    std::unique_ptr<ExportedArray> const owned{static_cast<ExportedArray*>(array->private_data)};
    for (auto const& child : owned->children) {
        if (child->release != nullptr) {
            child->release(child.get());
        }
    }
    if (owned->dictionary && owned->dictionary->release != nullptr) {
        owned->dictionary->release(owned->dictionary.get());
    }
    array->release = nullptr;
    array->private_data = nullptr;
}

void export_node(
    Field const* field, Column const& column, std::vector<Field> const& child_fields,
    std::shared_ptr<void const> const& owner, TablePlace place, ArrowArray* out);

void export_column(
    Field const& field, Column const& column, std::shared_ptr<void const> const& owner, TablePlace place,
    ArrowArray* out) {
    export_node(&field, column, field.children(), owner, place, out);
}

void push_buffers(
    Layout layout, Column const& column, TablePlace place, ArrowArray* out, ExportedArray& owned) {
    auto const* const stand_in = place == TablePlace::host ? nothing : nullptr;
    auto const push = [&owned, stand_in](void const* pointer) {
        owned.buffers.push_back(pointer == nullptr ? stand_in : pointer);
    };
    // A column without rows may have no offsets, but consumers read the one that is always there.
    void const* const offsets = column.length == 0 ? stand_in : column.offsets;
    if (layout == Layout::null) {
        return;
    }
    owned.buffers.push_back(column.validity);  // may be null
    switch (layout) {
        case Layout::bits:
        case Layout::fixed:
            push(column.values);
            break;
        case Layout::offsets32:
        case Layout::offsets64:
            push(offsets);
            push(column.data.data());
            break;
        case Layout::view:
            push(column.values);
            for (auto const& buffer : column.variadic) {
                push(buffer.data());
                owned.variadic_sizes.push_back(static_cast<std::int64_t>(buffer.size()));
            }
            push(owned.variadic_sizes.data());
            break;
        case Layout::list32:
        case Layout::list64:
            push(offsets);
            break;
        case Layout::fixed_list:
        case Layout::structure:
            if (column.validity != nullptr && column.offset != 0) {
                RAPIDSMPF_EXPECTS(
                    place == TablePlace::host,
                    "a slice of a struct column with nulls cannot be handed out from a GPU: pack it first",
                    std::logic_error);
                // The children have no such offset, and Arrow has one for all: bring the bits to the start.
                owned.validity.resize(static_cast<std::size_t>((column.length + 63) / 64));
                detail::copy_bits(
                    reinterpret_cast<std::byte*>(owned.validity.data()), 0, column.validity, column.offset,
                    column.length);
                owned.buffers[0] = owned.validity.data();
            }
            out->offset = 0;
            break;
        case Layout::null:
            break;
    }
}

void export_node(
    Field const* field, Column const& column, std::vector<Field> const& child_fields,
    std::shared_ptr<void const> const& owner, TablePlace place, ArrowArray* out) {
    auto owning = std::make_unique<ExportedArray>();
    owning->owner = owner;
    *out = ArrowArray{};
    out->length = column.length;
    out->null_count = column.null_count;
    out->offset = column.length == 0 ? 0 : column.offset;
    out->release = release_exported_array;
    out->private_data = owning.get();
    auto& owned = *owning.release();
    try {
        push_buffers(field == nullptr ? Layout::structure : field->layout(), column, place, out, owned);
        for (std::size_t i = 0; i < column.children.size(); ++i) {
            owned.children.push_back(std::make_unique<ArrowArray>(ArrowArray{}));
            export_column(child_fields[i], column.children[i], owner, place, owned.children.back().get());
            owned.child_pointers.push_back(owned.children.back().get());
        }
        if (column.dictionary) {
            owned.dictionary_owner = column.dictionary;
            owned.dictionary = std::make_unique<ArrowArray>(ArrowArray{});
            export_column(*field->dictionary(), *column.dictionary, owner, place, owned.dictionary.get());
        }
    } catch (...) {
        release_exported_array(out);
        throw;
    }
    out->n_buffers = static_cast<std::int64_t>(owned.buffers.size());
    out->buffers = owned.buffers.data();
    out->n_children = static_cast<std::int64_t>(owned.child_pointers.size());
    out->children = owned.child_pointers.data();
    out->dictionary = owned.dictionary.get();
}

}  // namespace

void Table::export_array(ArrowArray* out) const {
    Column root;
    root.length = num_rows_;
    root.children = columns_;
    export_node(nullptr, root, schema_->fields(), owner_, place_, out);
}

void Table::export_device_array(ArrowDeviceArray* out) const {
    *out = ArrowDeviceArray{};
    if (place_ == TablePlace::gpu) {
        // The event lives as long as the table's memory, which the array shares.
        auto [event, ordinal] = detail::mark_for_consumer(stream_);
        auto const* const native = event.get();
        Table const marked{
            schema_,
            columns_,
            num_rows_,
            std::make_shared<std::pair<std::shared_ptr<void const>, std::shared_ptr<void>>>(owner_, event),
            place_,
            stream_};
        marked.export_array(&out->array);
        out->sync_event = const_cast<void*>(native);
        out->device_id = ordinal;
        out->device_type = ARROW_DEVICE_CUDA;
        return;
    }
    export_array(&out->array);
    out->device_id = -1;
    out->device_type = ARROW_DEVICE_CPU;
}

void Table::export_stream(ArrowArrayStream* out) const {
    RAPIDSMPF_EXPECTS(
        place_ == TablePlace::host,
        "a table on a GPU cannot be read as a stream of host memory: use the device interface",
        std::logic_error);
    auto next = [table = std::optional<Table>{*this}]() mutable {
        return std::exchange(table, std::nullopt);
    };
    export_table_stream(schema_, std::move(next), out);
}

}  // namespace rapidsmpf
