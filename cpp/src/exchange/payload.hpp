// A chunk inside an operation: its metadata and its data, which may be spilled while it is not read.
//
// Shared between the places that refer to it (an outbox for each destination, the store). Once
// inserted it belongs to the progress thread, once stored to the mutex of OperationState; `data` guards itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

namespace rapidsmpf::exchange {

struct Payload {
    Payload(PackedData chunk, SpillableBuffer::NextUse next_use, std::weak_ptr<MoveListener> listener = {})
        : metadata{std::move(chunk.metadata)},
          first_write{chunk.data->write_in_flight()},
          data{std::move(chunk.data), next_use, std::move(listener)},
          size{data.size()} {}

    std::vector<std::uint8_t> metadata;
    std::shared_ptr<Event const> first_write;  // the one before it came here; null: known to be done
    SpillableBuffer data;
    std::size_t size;               // of data
    std::uint32_t destinations{0};  // ranks it has still to be sent to
    // Set for a chunk that this rank wants, too: it is stored under this number once it has been sent.
    std::optional<std::uint64_t> keep_as;

    // Waits for a move of the data to end; it may be on disk.
    [[nodiscard]] PackedData release() { return PackedData{std::move(metadata), data.take()}; }
};

}  // namespace rapidsmpf::exchange
