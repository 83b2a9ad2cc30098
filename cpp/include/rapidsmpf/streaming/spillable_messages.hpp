// Messages that are kept for later, under the arbiter of memory.
//
//     SpillableMessages waiting{context};
//     auto const id = waiting.insert(std::move(message));
//     ...
//     auto message = co_await waiting.extract(id);
//
// What they hold counts, tier by tier, where it is. Packed data and Buffers may be moved down as soon as they are in here, to
// DISK in the end, what is needed last first; tables when there is no other memory to be had, packed. Who extracts a message
// gets its bytes in memory, and keeps no thread while they are read back. Channels keep what waits in them the same way.
//
// Owns the messages. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rapidsmpf/memory/spillable_buffer.hpp>
#include <rapidsmpf/streaming/cancellation.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/message.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

class SpillableMessages {
  public:
    using Id = std::uint64_t;
    using NextUse = SpillableBuffer::NextUse;

    explicit SpillableMessages(Context const& context);
    ~SpillableMessages();
    SpillableMessages(SpillableMessages const&) = delete;
    SpillableMessages& operator=(SpillableMessages const&) = delete;

    // `next_use`: what is smaller is needed sooner; see SpillableBuffer. Throws std::invalid_argument for an empty message.
    [[nodiscard]] Id insert(Message message, NextUse next_use = SpillableBuffer::soon);
    // co_await: the message, its bytes in memory. Throws std::out_of_range when there is none of that id, SpillError when it
    // cannot be read back, and what the token was cancelled with: then the message is gone.
    [[nodiscard]] Task<Message> extract(Id id, CancellationToken cancellation = CancellationToken());
    // Where its bytes are now. Throws std::out_of_range.
    [[nodiscard]] ContentDescription description(Id id) const;
    [[nodiscard]] std::size_t size() const;
    // Packs tables and moves them down until `amount` bytes are freed; returns how many were. The arbiter does so by itself.
    std::size_t spill(std::size_t amount);

  private:
    class Item;
    struct State;
    std::shared_ptr<State> state_;
    SpillManager::SpillFunctionId spill_function_;
};

}  // namespace rapidsmpf::streaming
