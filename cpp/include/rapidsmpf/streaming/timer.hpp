// Letting time pass without keeping a thread.
//
//     co_await sleep_for(executor, std::chrono::seconds{1});
//
// One thread of the executor, made when it is first needed, watches the clock for all who sleep; they go on on its coroutine
// threads.
#pragma once

#include <chrono>
#include <memory>

#include <rapidsmpf/streaming/cancellation.hpp>
#include <rapidsmpf/streaming/executor.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::streaming {

// co_await: until the time has passed, never less. Throws what the token was cancelled with, as soon as that happens.
[[nodiscard]] Task<void> sleep_until(
    std::shared_ptr<Executor> executor, std::chrono::steady_clock::time_point time,
    CancellationToken cancellation = CancellationToken());
[[nodiscard]] Task<void> sleep_for(
    std::shared_ptr<Executor> executor, std::chrono::steady_clock::duration time,
    CancellationToken cancellation = CancellationToken());

}  // namespace rapidsmpf::streaming
