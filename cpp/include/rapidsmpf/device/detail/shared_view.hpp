// The shared memory of another process (shared_memory.hpp), mapped into this one to write to.
//
// A view stays valid when its owner dies: the pages live as long as anyone has them mapped. All communicators of this
// process share one view per owner. The pages count as the owner's memory, not as this process's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rapidsmpf/device/detail/shared_memory.hpp>

namespace rapidsmpf::device {

namespace detail {
[[nodiscard]] inline std::atomic_ref<std::uint64_t> word_at(std::byte* address) noexcept {
    return std::atomic_ref<std::uint64_t>{*reinterpret_cast<std::uint64_t*>(address)};
}
}  // namespace detail

class SharedView {
  public:
    // Null, with the reason, when the memory cannot be had. A ticket of this process gives its own memory.
    [[nodiscard]] static std::shared_ptr<SharedView> open(
        SharedMemoryTicket const& ticket, std::string& reason);

    SharedView(std::byte* base, std::uint64_t size, int process) noexcept
        : base_{base}, size_{size}, process_{process} {}
    SharedView(SharedView const&) = delete;
    SharedView& operator=(SharedView const&) = delete;
    ~SharedView();

    // Whether a block may lie there.
    [[nodiscard]] bool contains(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        return offset >= SharedMemory::first_offset && offset <= size_ && bytes <= size_ - offset;
    }
    [[nodiscard]] std::byte* at(std::uint64_t offset) const noexcept { return base_ + offset; }
    // Whether a flag may lie there, and whether one that had a value still has it.
    [[nodiscard]] static bool contains_flag(std::uint64_t offset) noexcept {
        return offset >= SharedMemory::first_flag && offset < SharedMemory::first_offset && offset % 8 == 0;
    }
    [[nodiscard]] bool has_flag(std::uint64_t offset, std::uint64_t value) const noexcept {
        return detail::word_at(at(offset)).load(std::memory_order_acquire) == value;
    }
    // Whether the owner's process is still running.
    [[nodiscard]] bool owner_is_alive() const noexcept;

  private:
    std::byte* base_;
    std::uint64_t size_;
    int process_;  // a pidfd; negative: this process
};

namespace detail {
// The first page of shared memory says whose it is.
[[nodiscard]] bool has_secret(std::byte const* first_page, SharedMemoryTicket const& ticket) noexcept;
void write_secret(std::byte* first_page, SharedMemoryTicket const& ticket) noexcept;
void note_shared_memory_is_used() noexcept;
}  // namespace detail

}  // namespace rapidsmpf::device
