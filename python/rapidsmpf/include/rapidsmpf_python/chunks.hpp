// What Python puts into messages and takes out of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/gil.hpp>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/memory_reservation.hpp>
#include <rapidsmpf/streaming/message.hpp>
#include <rapidsmpf/streaming/partition.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>
#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/partition.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::python {

using streaming::Message;

// A message that holds a Python object. The caller holds the GIL.
[[nodiscard]] inline Message object_message(std::uint64_t sequence, PyObject* object) {
    Py_INCREF(object);
    auto const release = [](void* held) {
        if (WithGil const gil; gil) {
            Py_DECREF(static_cast<PyObject*>(held));
        }
    };
    auto const retain = [](void* held) {
        if (WithGil const gil; gil) {
            Py_INCREF(static_cast<PyObject*>(held));
        }
    };
    return Message{sequence, streaming::ForeignPayload{object, release, retain}};
}
// A new reference. Throws std::invalid_argument when the message holds something else.
[[nodiscard]] inline PyObject* release_object(Message& message) {
    return static_cast<PyObject*>(message.release<streaming::ForeignPayload>().take());
}

[[nodiscard]] inline Message packed_message(std::uint64_t sequence, std::unique_ptr<PackedData> packed) {
    return Message{sequence, std::move(*packed)};
}
[[nodiscard]] inline std::unique_ptr<PackedData> release_packed(Message& message) {
    return std::make_unique<PackedData>(message.release<PackedData>());
}

[[nodiscard]] inline Message table_message(
    std::uint64_t sequence, std::shared_ptr<Table const> const& table) {
    return Message{sequence, Table{*table}};
}

// Rows, as they are in the message: a table, or packed (spilled, perhaps).
struct Rows {
    std::shared_ptr<Table const> table;
    std::unique_ptr<PackedData> packed;
};
[[nodiscard]] inline Rows release_rows(Message& message, BufferResource& resource) {
    Rows rows;
    if (message.holds<PackedData>()) {
        rows.packed = release_packed(message);
    } else if (message.holds<streaming::TableBatch>()) {
        rows.table =
            std::make_shared<Table const>(message.release<streaming::TableBatch>().combine(resource));
    } else {
        rows.table = std::make_shared<Table const>(message.release<Table>());
    }
    return rows;
}
[[nodiscard]] inline bool holds_rows(Message const& message) {
    return message.holds<Table>() || message.holds<streaming::TableBatch>() || message.holds<PackedData>();
}
[[nodiscard]] inline std::shared_ptr<Table const> unpack_rows(
    std::unique_ptr<PackedData> packed, BufferResource& resource) {
    std::vector<PackedData> one;
    one.push_back(std::move(*packed));
    return std::make_shared<Table const>(unpack_and_concat(std::move(one), resource));
}

// Whether they can be read where they are: on a GPU, in its memory, else anywhere but on DISK.
[[nodiscard]] inline bool is_readable(PackedData const& packed, BufferResource const& resource) {
    auto const type = packed.data->mem_type();
    return type == MemoryType::DEVICE
           || (type != MemoryType::DISK && resource.device().kind() == DeviceKind::cpu);
}
// The rows, brought into the memory of the reservation if they cannot be read. On an error nothing is taken.
[[nodiscard]] inline std::shared_ptr<Table const> unpack_rows_within(
    std::unique_ptr<PackedData>& packed, MemoryReservation& reservation, BufferResource& resource) {
    if (!is_readable(*packed, resource)) {
        if (reservation.size() < packed->data->size()) {
            throw ReservationError{
                "making rows of " + config::format_bytes(packed->data->size())
                + " available takes a reservation of as much, not of "
                + config::format_bytes(reservation.size())};
        }
        packed->data = resource.move(std::move(packed->data), reservation);
    }
    return unpack_rows(std::move(packed), resource);
}

// Chunks of partitions. `partitions` and `chunks` are of one length.
[[nodiscard]] inline Message partition_map_message(
    std::uint64_t sequence, std::vector<std::uint32_t> const& partitions,
    std::vector<std::unique_ptr<PackedData>> chunks) {
    streaming::PartitionMapChunk::Chunks map;
    for (std::size_t i = 0; i < partitions.size(); ++i) {
        map.emplace(partitions[i], std::move(*chunks[i]));
    }
    return Message{sequence, streaming::PartitionMapChunk{std::move(map)}};
}
struct PartitionMap {
    std::vector<std::uint32_t> partitions;
    std::vector<std::unique_ptr<PackedData>> chunks;
};
[[nodiscard]] inline PartitionMap release_partition_map(Message& message) {
    auto released = message.release<streaming::PartitionMapChunk>();
    PartitionMap map;
    for (auto& [partition, chunk] : released.chunks) {
        map.partitions.push_back(partition);
        map.chunks.push_back(std::make_unique<PackedData>(std::move(chunk)));
    }
    return map;
}
[[nodiscard]] inline Message partition_vector_message(
    std::uint64_t sequence, std::vector<std::unique_ptr<PackedData>> chunks) {
    std::vector<PackedData> owned;
    owned.reserve(chunks.size());
    for (auto& chunk : chunks) {
        owned.push_back(std::move(*chunk));
    }
    return Message{sequence, streaming::PartitionVectorChunk{std::move(owned)}};
}
[[nodiscard]] inline std::vector<std::unique_ptr<PackedData>> release_partition_vector(Message& message) {
    auto released = message.release<streaming::PartitionVectorChunk>();
    std::vector<std::unique_ptr<PackedData>> chunks;
    for (auto& chunk : released.chunks) {
        chunks.push_back(std::make_unique<PackedData>(std::move(chunk)));
    }
    return chunks;
}

[[nodiscard]] inline Message copy_message(Message const& message, MemoryReservation& reservation) {
    return message.copy(reservation);
}
[[nodiscard]] inline std::size_t bytes_in(Message const& message, int type) {
    return message.description().bytes(static_cast<MemoryType>(type));
}

}  // namespace rapidsmpf::python
