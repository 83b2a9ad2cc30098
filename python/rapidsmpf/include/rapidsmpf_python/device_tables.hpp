// Tables in the memory of the compute device for Python: in and out through the Arrow C device interface, packed parts
// moved between device and host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/arrow.hpp>
#include <rapidsmpf_python/gil.hpp>
#include <rapidsmpf_python/tables.hpp>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/partition.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::python {

[[nodiscard]] inline bool device_is_gpu() {
    return Device::current().kind() == DeviceKind::cuda;
}

[[nodiscard]] inline bool is_on_gpu(Table const& table) {
    return table.place() == TablePlace::gpu;
}

namespace detail {

// An array whose release needs the GIL: some producers let a Python object go in it.
inline void release_with_gil(ArrowArray* self) {
    std::unique_ptr<ArrowArray> const inner{static_cast<ArrowArray*>(self->private_data)};
    self->private_data = nullptr;
    self->release = nullptr;
    WithGil const gil;
    if (gil && inner->release != nullptr) {
        inner->release(inner.get());
    }
}

}  // namespace detail

// Takes the content of a capsule "arrow_device_array" and hands it to `import`, which leaves it released. The caller
// holds the GIL. Throws PythonError when it is no such capsule, std::invalid_argument when it is empty.
[[nodiscard]] inline TablePointer import_device_table(
    PyObject* schema_object, PyObject* array_object, Stream stream) {
    auto schema_owner = open_schema(schema_object);
    auto const schema = Schema::from_arrow(*schema_owner.get());
    auto* const source =
        static_cast<ArrowDeviceArray*>(PyCapsule_GetPointer(array_object, "arrow_device_array"));
    if (source == nullptr) {
        throw PythonError::fetch();
    }
    RAPIDSMPF_EXPECTS(
        source->array.release != nullptr, "this arrow_device_array has been read already",
        std::invalid_argument);
    auto inner = std::make_unique<ArrowArray>(source->array);
    source->array.release = nullptr;
    ArrowDeviceArray wrapped = *source;
    wrapped.array = *inner;
    wrapped.array.private_data = inner.release();
    wrapped.array.release = &detail::release_with_gil;
    return std::make_shared<Table const>(Table::import_device_array(schema, &wrapped, stream));
}

// A new reference to a capsule "arrow_device_array" that shares the table's memory. The caller holds the GIL.
[[nodiscard]] inline PyObject* device_array_capsule(Table const& table) {
    auto value = std::make_unique<ArrowDeviceArray>();
    table.export_device_array(value.get());
    auto const destroy = [](PyObject* capsule) {
        std::unique_ptr<ArrowDeviceArray> const owned{
            static_cast<ArrowDeviceArray*>(PyCapsule_GetPointer(capsule, "arrow_device_array"))};
        if (owned != nullptr && owned->array.release != nullptr) {
            WithoutGil unlocked;
            owned->array.release(&owned->array);
        }
    };
    PyObject* const capsule = PyCapsule_New(value.get(), "arrow_device_array", destroy);
    if (capsule == nullptr) {
        value->array.release(&value->array);
        throw PythonError::fetch();
    }
    (void)value.release();
    return capsule;
}

[[nodiscard]] inline PackedList partition_table(
    Table const& table, std::vector<ColumnReference> const& columns, int num_partitions, BufferResource& br,
    std::uint64_t seed) {
    return to_pointers(
        partition_and_pack(table, resolve(columns, *table.schema()), num_partitions, br, seed));
}

[[nodiscard]] inline TablePointer concat_on_device(PackedList parts, BufferResource& br, Stream stream) {
    return std::make_shared<Table const>(
        unpack_and_concat_on_device(to_values(std::move(parts)), br, stream));
}

// Whether it has been packed by this library; otherwise its metadata is another's.
[[nodiscard]] inline bool is_packed_table(PackedData const& packed) {
    return rapidsmpf::is_packed_table(packed.metadata);
}

// Memory of the device that the bytes are moved to, which may have to spill. Throws ReservationError.
[[nodiscard]] inline PackedList to_device(PackedList parts, BufferResource& br, bool allow_overbooking) {
    std::size_t size{0};
    for (auto const& part : parts) {
        size += part->data->mem_type() == MemoryType::DEVICE ? 0 : part->data->size();
    }
    auto reservation = br.reserve_device_memory_and_spill(
        size, allow_overbooking ? AllowOverbooking::yes : AllowOverbooking::no);
    for (auto& part : parts) {
        part->data = br.move(std::move(part->data), reservation);
    }
    return parts;
}

// Each part to the best of the host's tiers that has room for it. Throws ReservationError.
[[nodiscard]] inline PackedList to_host(PackedList parts, BufferResource& br) {
    constexpr std::array tiers{MemoryType::PINNED_HOST, MemoryType::HOST};
    for (auto& part : parts) {
        if (part->data->mem_type() != MemoryType::DEVICE) {
            continue;
        }
        auto const size = part->data->size();
        auto reservation = br.try_reserve_best(size, tiers);
        RAPIDSMPF_EXPECTS(
            reservation.has_value(),
            "cannot spill a partition of " + std::to_string(size)
                + " bytes: there is not so much host memory available (see the memory limits of the buffer resource)",
            ReservationError);
        part->data = br.move(std::move(part->data), *reservation);
    }
    return parts;
}

[[nodiscard]] inline TablePointer copy_to_host(Table const& table) {
    return std::make_shared<Table const>(rapidsmpf::copy_to_host(table));
}

// Makes `stream` wait for what has been written to the data.
inline void wait_for_data(PackedData const& packed, Stream stream) {
    auto const written_on = packed.data->stream();
    if (written_on != stream) {
        auto const mark = Device::current().make_event();
        mark->record(written_on);
        mark->wait(stream);
    }
}

[[nodiscard]] inline std::uintptr_t address_of(PackedData const& packed) {
    return reinterpret_cast<std::uintptr_t>(packed.data->data());
}

}  // namespace rapidsmpf::python
