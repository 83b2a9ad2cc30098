// A few threads that do blocking I/O, and a block of aligned memory for each.
//
// Reads and writes wait in queues of their own, which are served in turn, so that neither starves. Threads start with
// the first job. A job that is submitted is run: the destructor waits for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <rapidsmpf/core/fork.hpp>

namespace rapidsmpf::detail {

// Memory of one I/O thread, aligned for direct I/O; made on first use.
class IoBlock {
  public:
    static constexpr std::size_t alignment = 4096;
    explicit IoBlock(std::size_t size) noexcept : size_{size} {}
    // Throws std::bad_alloc.
    [[nodiscard]] std::byte* data();
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

  private:
    struct Free {
        void operator()(std::byte* pointer) const noexcept;
    };
    std::size_t size_;
    std::unique_ptr<std::byte, Free> memory_;
};

class IoPool {
  public:
    enum class Queue : std::uint8_t { reads, writes };
    using Job = std::function<void(IoBlock&)>;  // must not throw

    IoPool(std::size_t threads, std::size_t block_size);
    ~IoPool();
    IoPool(IoPool const&) = delete;
    IoPool& operator=(IoPool const&) = delete;

    // Throws std::system_error when no thread could be started.
    void submit(Queue queue, std::vector<Job> jobs);

  private:
    struct State;
    void start_threads_locked();
    static void work(std::shared_ptr<State> const& state);

    std::size_t thread_count_;
    std::shared_ptr<State> state_;  // shared with the threads
    HomeProcess home_;
    std::vector<std::thread> threads_;
};

}  // namespace rapidsmpf::detail
