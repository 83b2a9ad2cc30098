// Waiting for memory without keeping a thread.
//
//     auto reservation = co_await reserve_memory(context, bytes);
//
// A request stands in the line of the BufferResource's arbiter, as reserve_or_wait() does: first come first served, and
// what it needs counts as pressure that others are spilled for. When nothing has been freed for as long as
// memory_reserve_timeout says, it overbooks the tier or throws, by allow_overbooking_by_default unless the caller says.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/memory_reservation.hpp>
#include <rapidsmpf/memory/memory_type.hpp>
#include <rapidsmpf/streaming/cancellation.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

// How a reservation waits. What is not set comes from the context's options and its resource.
struct MemoryWait {
    MemoryWait() {}  // user-written: travels through coroutines, not an aggregate
    std::optional<AllowOverbooking> allow;
    std::optional<BufferResource::Duration> timeout;
    CancellationToken cancellation;
};

// co_await: `size` bytes of a tier. Throws ReservationError when there are none and overbooking is not allowed, SpillError
// when making room failed, and what the token was cancelled with. The context may go meanwhile.
[[nodiscard]] Task<MemoryReservation> reserve_memory(
    Context const& context, std::size_t size, MemoryType type = MemoryType::DEVICE,
    MemoryWait wait = MemoryWait());

}  // namespace rapidsmpf::streaming
