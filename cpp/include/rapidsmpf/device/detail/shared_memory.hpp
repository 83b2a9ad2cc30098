// Host memory of this process that other processes of this host can write to: blocks in one memfd.
//
// The memfd has no name, so nothing of it is left behind by any death. It is sized once, far larger than what is ever
// in it, and sealed: no process can make it smaller, so no process that has mapped it can be hit by SIGBUS. Pages exist
// where something has been written, and go when a block is returned to the system. First touch of a page is several
// times as expensive as writing to it, so free blocks are kept, in sizes of their own, up to a bound.
//
// Other processes come by the memory through `ticket()`: they open /proc/<pid>/fd/<fd>, which the kernel allows to
// processes of the same user (and pid namespace) only, and find the ticket's random bytes in its first page
// (shared_view.hpp). A process that has mapped it is trusted not to write where it was not asked to.
//
// The process owns the memory and never destroys it: blocks come back while the process ends. A child of fork() has the
// same pages; it takes none, and releases none.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace rapidsmpf::device {

// A range of the memory. Its destructor releases it, after which it may be handed out again.
class SharedBlock {
  public:
    SharedBlock(std::byte* data, std::uint64_t offset, std::size_t size) noexcept
        : data_{data}, offset_{offset}, size_{size} {}
    SharedBlock(SharedBlock const&) = delete;
    SharedBlock& operator=(SharedBlock const&) = delete;
    ~SharedBlock();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    // Where it begins in the memory, for those who have mapped that.
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    // At least what was asked for.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

  private:
    std::byte* data_;
    std::uint64_t offset_;
    std::size_t size_;
};

// A flag in the memory by which its owner shows others that something goes on: it has a value that no other such flag has
// until it is cleared, which its destructor does, too.
class SharedFlag {
  public:
    SharedFlag(std::byte* address, std::uint64_t offset, std::uint64_t value) noexcept;
    SharedFlag(SharedFlag const&) = delete;
    SharedFlag& operator=(SharedFlag const&) = delete;
    ~SharedFlag();

    void clear() noexcept;
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

  private:
    std::byte* address_;
    std::uint64_t offset_;
    std::uint64_t value_;
};

// What another process needs to find the memory.
struct SharedMemoryTicket {
    // Boot id and pid namespace: processes that differ in them cannot find each other.
    std::string host;
    std::int64_t pid{0};
    std::int32_t fd{-1};
    std::uint64_t size{0};
    std::array<std::uint8_t, 16> secret{};
};

class SharedMemory {
  public:
    // That of this process, made on first use; null, with the reason, where the system does not allow it.
    [[nodiscard]] static SharedMemory* current(std::string& reason);

    [[nodiscard]] SharedMemoryTicket const& ticket() const noexcept;
    [[nodiscard]] std::byte* base() const noexcept;
    // Flags lie between the one offset and the other, blocks behind the other.
    static constexpr std::uint64_t first_flag = 4096;
    static constexpr std::uint64_t first_offset = std::uint64_t{2} << 20U;

    // A block aligned to a page, its bytes of any value; null when there is no address space left.
    [[nodiscard]] std::shared_ptr<SharedBlock> allocate(std::size_t bytes);
    // Throws std::runtime_error when there are a quarter of a million of them.
    [[nodiscard]] std::unique_ptr<SharedFlag> make_flag();
    // Holds on to a block until `is_safe` says so: others may still write to it. Asked at once, then whenever a block
    // is asked for.
    void quarantine(std::shared_ptr<SharedBlock> block, std::function<bool()> is_safe);

    // What this process has of it; 0 as long as there is none.
    // Bytes in blocks that are in use, those in quarantine included.
    [[nodiscard]] static std::size_t used() noexcept;
    // Those in quarantine, after a look at which of them may go.
    [[nodiscard]] static std::size_t quarantined_for_testing();
    // Bytes of the pages that the memory has, also of those that other processes wrote.
    [[nodiscard]] static std::size_t resident() noexcept;
    // Bytes in free blocks that are kept.
    [[nodiscard]] static std::size_t cached() noexcept;
    // Returns free blocks to the system until at most `keep` bytes of them are left; returns how many bytes these had.
    static std::size_t trim(std::size_t keep) noexcept;
    // How many bytes of free blocks are kept at most; at first as much as of other host memory.
    [[nodiscard]] static std::size_t cache_limit_for_testing() noexcept;
    static void set_cache_limit_for_testing(std::size_t bytes) noexcept;

  private:
    friend class SharedBlock;
    friend class SharedFlag;
    class Pool;  // the implementation
    explicit SharedMemory(std::unique_ptr<Pool> pool);
    ~SharedMemory();  // never called
    [[nodiscard]] static std::unique_ptr<Pool> make_pool(std::string& reason);
    [[nodiscard]] static Pool* pool() noexcept;
    static std::atomic<SharedMemory*> made_;

    std::unique_ptr<Pool> pool_;
};

// Whether this process has shared memory, or has mapped another's: then what is resident in it is not all its own.
[[nodiscard]] bool uses_shared_memory() noexcept;

}  // namespace rapidsmpf::device
