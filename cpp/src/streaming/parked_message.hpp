// The payload of a message that waits, as bytes that the arbiter may move to lower tiers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>
#include <rapidsmpf/streaming/message.hpp>

namespace rapidsmpf::streaming {

// Not thread-safe: who owns it locks.
class ParkedMessage {
  public:
    using NextUse = SpillableBuffer::NextUse;

    // Takes the payload out of the message if its bytes are a Buffer's, and none has to be copied; null if not. The message
    // keeps its number and type.
    [[nodiscard]] static std::unique_ptr<ParkedMessage> park(
        Message& message, NextUse next_use, std::weak_ptr<MoveListener> listener);
    // The same for payloads that have to be packed first: they go to the best lower tier with room, and the memory that they
    // had is free. Null, and the message as it was, if there is no room below, or it cannot be packed.
    [[nodiscard]] static std::unique_ptr<ParkedMessage> pack_below(
        Message& message, BufferResource& resource, NextUse next_use, std::weak_ptr<MoveListener> listener);

    ParkedMessage(PackedData packed, NextUse next_use, std::weak_ptr<MoveListener> listener);

    // Gives the message its payload back if the bytes are in memory. If not, has them fetched, and the listener hears when to
    // try again. Throws SpillError when they cannot be read.
    [[nodiscard]] bool try_restore(Message& message);
    // Has the bytes fetched if there is memory for them now.
    void prefetch();
    [[nodiscard]] std::size_t size() const noexcept { return data_->size(); }
    [[nodiscard]] MemoryType mem_type() const { return data_->mem_type(); }

  private:
    std::vector<std::uint8_t> metadata_;
    std::weak_ptr<MoveListener> listener_;
    std::optional<SpillableBuffer> data_;
};

}  // namespace rapidsmpf::streaming
