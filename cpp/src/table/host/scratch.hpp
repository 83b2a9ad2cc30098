// Memory for the time of a call, which the thread keeps for its next ones.
//
// A small table is partitioned in microseconds. To take its tens of KiB of row numbers from the heap each time costs some of
// them: when blocks of that size are freed, malloc coalesces all its small ones.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <rapidsmpf/device/detail/host_memory.hpp>

namespace rapidsmpf::detail {

class ScratchBlocks {
  public:
    using Block = std::unique_ptr<std::byte[]>;
    static constexpr std::size_t block_size = std::size_t{64} << 10U;

    [[nodiscard]] static Block take() {
        auto& kept = of_this_thread();
        return kept.count_ > 0 ? std::move(kept.blocks_.at(--kept.count_))
                               : std::make_unique_for_overwrite<std::byte[]>(block_size);
    }
    static void put(Block block) noexcept {
        auto& kept = of_this_thread();
        if (kept.count_ < kept.blocks_.size()) {
            kept.blocks_.at(kept.count_++) = std::move(block);
        }
    }

  private:
    [[nodiscard]] static ScratchBlocks& of_this_thread() {
        thread_local ScratchBlocks kept;
        return kept;
    }

    std::array<Block, 4> blocks_;
    std::size_t count_{0};
};

// `size` values that are not written yet. To be destroyed by the thread that made it.
template <typename T>
class Scratch {
  public:
    static_assert(std::is_trivially_default_constructible_v<T> && std::is_trivially_destructible_v<T>);

    explicit Scratch(std::size_t size)
        : is_kept_{size * sizeof(T) <= ScratchBlocks::block_size},
          size_{size},
          block_{
              is_kept_ ? ScratchBlocks::take().release()
                       : static_cast<std::byte*>(device::allocate_host(size * sizeof(T)))} {}
    ~Scratch() {
        if (is_kept_) {
            ScratchBlocks::put(ScratchBlocks::Block{block_});
        } else {
            device::deallocate_host(block_, size_ * sizeof(T));
        }
    }
    Scratch(Scratch const&) = delete;
    Scratch& operator=(Scratch const&) = delete;

    [[nodiscard]] T* data() const noexcept { return reinterpret_cast<T*>(block_); }
    [[nodiscard]] std::span<T> span() const noexcept { return {data(), size_}; }

  private:
    bool is_kept_;
    std::size_t size_;
    std::byte* block_;
};

}  // namespace rapidsmpf::detail
