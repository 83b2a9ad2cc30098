// A memory resource that counts, and has a second one to fall back on.
//
// Counts everything that goes through it, and, while a thread has a scope open, what that thread allocates.
// When the upstream resource is out of memory, the fallback (managed memory, say) is used. Measurements
// come from here: for LimitAvailableMemory, Statistics, the user.
//
// Counting is cheap: totals are in counters per thread, and only the bytes in use are one number, because
// their peak has to be exact. A block is remembered only if a scope or the fallback needs its deallocation.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/memory_resource.hpp>
#include <rapidsmpf/memory/scoped_memory_record.hpp>

namespace rapidsmpf {

// What was measured while a scope was open.
struct ScopeMeasurement {
    // What the scope's thread allocated, and how much of that was in use.
    ScopedMemoryRecord record;
    // The most that all threads together had in use during the scope.
    std::int64_t global_peak{0};
};

class RmmResourceAdaptor final : public MemoryResource {
  public:
    // Throws std::invalid_argument when there is no upstream.
    explicit RmmResourceAdaptor(
        std::shared_ptr<MemoryResource> upstream, std::shared_ptr<MemoryResource> fallback = nullptr);
    ~RmmResourceAdaptor() override;

    [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override;
    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override;
    [[nodiscard]] bool is_host_accessible() const noexcept override;
    [[nodiscard]] bool is_device_accessible() const noexcept override;

    [[nodiscard]] std::shared_ptr<MemoryResource> const& upstream() const noexcept { return upstream_; }
    // Null when there is none.
    [[nodiscard]] std::shared_ptr<MemoryResource> const& fallback() const noexcept { return fallback_; }

    // Bytes in use, of both resources.
    [[nodiscard]] std::int64_t current_allocated() const noexcept;
    // Everything since the adaptor was made.
    [[nodiscard]] ScopedMemoryRecord get_main_record() const noexcept;

    // Scopes belong to the thread that opens them, and nest. A block counts in all scopes that its thread had
    // open when it was allocated, and is subtracted from those that are still open when it is deallocated, on
    // any thread.
    void begin_scoped_memory_record();
    // Closes this thread's innermost scope. Throws std::logic_error when there is none.
    ScopedMemoryRecord end_scoped_memory_record() { return end_scope().record; }
    ScopeMeasurement end_scope();

  private:
    // Bytes in use and their peak. The peak is kept as that of the present window and that of all before, so
    // that a scope can begin a window of its own without synchronising with threads that allocate.
    class Level {
      public:
        void add(std::int64_t bytes) noexcept;
        void subtract(std::int64_t bytes) noexcept { current_.fetch_sub(bytes, std::memory_order_relaxed); }
        [[nodiscard]] std::int64_t current() const noexcept {
            return current_.load(std::memory_order_relaxed);
        }
        [[nodiscard]] std::int64_t peak() const noexcept;
        // Ends the window; returns its peak.
        std::int64_t begin_window() noexcept;

      private:
        alignas(64) std::atomic<std::int64_t> current_{0};
        std::atomic<std::int64_t> window_peak_{0};
        std::atomic<std::int64_t> past_peak_{0};
    };

    struct alignas(64) Totals {
        struct {
            std::atomic<std::int64_t> allocations{0};
            std::atomic<std::int64_t> deallocations{0};
            std::atomic<std::int64_t> bytes{0};
        } of[2];
    };

    // An open scope; closed ones live on in the blocks that were allocated in them.
    struct Scope {
        std::shared_ptr<Scope> const parent;  // of the same thread
        Mutex mutex;
        bool open RAPIDSMPF_GUARDED_BY(mutex){true};
        ScopedMemoryRecord record RAPIDSMPF_GUARDED_BY(mutex);
        std::int64_t global_peak{0};  // guarded by windows_mutex_
        explicit Scope(std::shared_ptr<Scope> outer) : parent{std::move(outer)} {}
    };

    struct alignas(64) ThreadScopes {
        Mutex mutex;
        std::unordered_map<std::thread::id, std::shared_ptr<Scope>> innermost RAPIDSMPF_GUARDED_BY(mutex);
        std::atomic<std::size_t> open{0};  // scopes in the map and above them
    };

    struct Block {
        AllocType type;
        std::shared_ptr<Scope> scope;  // null: allocated by a thread without one
    };
    struct alignas(64) Blocks {
        Mutex mutex;
        std::unordered_map<void*, Block> by_address RAPIDSMPF_GUARDED_BY(mutex);
    };

    static constexpr std::size_t shards = 16;

    void record(void* pointer, std::size_t bytes, AllocType type);
    [[nodiscard]] std::shared_ptr<Scope> innermost_scope(std::size_t shard);
    // The block's entry, taken out; PRIMARY and no scope if it has none.
    [[nodiscard]] Block forget(void* pointer) noexcept;
    void begin_window_locked() noexcept RAPIDSMPF_REQUIRES(windows_mutex_);
    [[nodiscard]] static std::size_t shard_of_thread() noexcept;
    [[nodiscard]] Blocks& blocks_of(void const* pointer) noexcept;

    std::shared_ptr<MemoryResource> const upstream_;
    std::shared_ptr<MemoryResource> const fallback_;

    Level all_;
    std::array<Level, 2> levels_;  // PRIMARY and FALLBACK; unused when there is no fallback
    std::array<Totals, shards> totals_;

    std::array<ThreadScopes, shards> scopes_;
    Mutex windows_mutex_;
    std::vector<Scope*> open_scopes_ RAPIDSMPF_GUARDED_BY(windows_mutex_);

    std::atomic<std::size_t> remembered_{0};  // entries in blocks_
    std::array<Blocks, shards> blocks_;
};

}  // namespace rapidsmpf
