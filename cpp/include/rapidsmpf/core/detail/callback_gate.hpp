// The gate between the library's threads and a language whose interpreter may end before they do.
//
// Who calls into it from a thread of the library passes the gate before, and leaves it after. When the
// interpreter is about to end it closes the gate: no thread passes any more, and those inside have left when
// close() returns. There is one gate in a process.
#pragma once

#include <atomic>
#include <cstdint>

namespace rapidsmpf {

class CallbackGate {
  public:
    [[nodiscard]] static CallbackGate& instance() noexcept;

    // Whether the caller may call; then it must leave().
    [[nodiscard]] bool enter() noexcept;
    void leave() noexcept;
    // Waits for those inside. The caller must not hold what they need.
    void close() noexcept;
    [[nodiscard]] bool is_closed() const noexcept { return closed_.load(); }

  private:
    std::atomic<bool> closed_{false};
    std::atomic<std::int64_t> inside_{0};
};

}  // namespace rapidsmpf
