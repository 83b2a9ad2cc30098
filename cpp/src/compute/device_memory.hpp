// Where all operators take device memory, libcudf's own allocations among them: counts it, and holds it to a limit. When
// there is none left, rows that are held and not in use are moved away; then the thread that allocates waits for
// others to end the chunks that they are at; then it is out of memory.
//
// So that many threads do not run out of memory together, a thread that begins with a chunk says what it expects to take, and
// waits while the chunks under way may need what is left.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/memory_resource.hpp>

namespace rapidsmpf::compute {

class DeviceMemory;

// What the thread that makes it allocates until it goes, which it does in the same thread: the memory of one chunk.
class ChunkMemory {
  public:
    // Waits until there is room for `expected` bytes beside those of other chunks, or no other chunk is under way.
    ChunkMemory(DeviceMemory& memory, std::int64_t expected);
    ~ChunkMemory();
    ChunkMemory(ChunkMemory const&) = delete;
    ChunkMemory& operator=(ChunkMemory const&) = delete;

    // The most bytes at a time.
    [[nodiscard]] std::int64_t peak() const noexcept { return peak_; }

  private:
    friend class DeviceMemory;
    void add(std::int64_t bytes) noexcept;

    DeviceMemory& memory_;
    std::int64_t const expected_;
    std::atomic<std::int64_t> bytes_{0};  // others read it
    std::int64_t peak_{0};
};

class DeviceMemory final : public MemoryResource {
  public:
    // Moves rows away from the device until so many bytes are freed, if it can; returns how many it freed. Called in a thread
    // that allocates, never twice at a time; must not wait for other threads that allocate.
    using MakeRoom = std::function<std::size_t(std::size_t bytes)>;

    // Bytes that each block has behind those that are asked for, which are not counted. To copy a slice that does not begin at
    // a whole byte, cudf::from_arrow() allocates a bitmap of the slice's bits and copies all bytes that hold them: one more.
    static constexpr std::size_t spare_bytes{8};

    // limit: bytes in use at most.
    DeviceMemory(std::shared_ptr<MemoryResource> upstream, std::int64_t limit);

    [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override;
    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override;
    [[nodiscard]] bool is_host_accessible() const noexcept override { return false; }
    [[nodiscard]] bool is_device_accessible() const noexcept override { return true; }

    [[nodiscard]] std::int64_t in_use() const noexcept { return in_use_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::int64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::int64_t limit() const noexcept { return limit_; }
    // Threads that wait for others to free memory.
    [[nodiscard]] std::size_t waiting_for_testing() const noexcept { return waiting_.load(); }

    // Asked in the order in which they were added.
    std::uint64_t add_holder(MakeRoom make_room);
    // Waits for a call to end.
    void remove_holder(std::uint64_t id);

    // Moves rows away from the device until so many bytes are freed, if it can.
    std::size_t make_room(std::size_t bytes);

  private:
    friend class ChunkMemory;

    [[nodiscard]] bool take(std::size_t bytes) noexcept;
    void give_back(std::size_t bytes) noexcept;
    // Whether something was freed by others in the meantime.
    [[nodiscard]] bool wait_for_others();
    void begin(ChunkMemory& chunk);
    void end(ChunkMemory& chunk) noexcept;
    // Bytes that are missing for the chunk beside the others.
    [[nodiscard]] std::int64_t shortage(ChunkMemory const& chunk) const noexcept
        RAPIDSMPF_REQUIRES(chunks_mutex_);

    std::shared_ptr<MemoryResource> const upstream_;
    std::int64_t const limit_;
    std::atomic<std::int64_t> in_use_{0};
    std::atomic<std::int64_t> peak_{0};

    Mutex mutex_;  // held while a thread makes room
    std::map<std::uint64_t, MakeRoom> holders_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t next_holder_ RAPIDSMPF_GUARDED_BY(mutex_){0};

    Mutex chunks_mutex_;
    ConditionVariable chunk_ended_;
    std::vector<ChunkMemory*> chunks_ RAPIDSMPF_GUARDED_BY(chunks_mutex_);  // under way
    ConditionVariable freed_;
    std::atomic<std::size_t> waiting_{0};                         // for others to free memory
    std::uint64_t frees_ RAPIDSMPF_GUARDED_BY(chunks_mutex_){0};  // while a thread waited
};

}  // namespace rapidsmpf::compute
