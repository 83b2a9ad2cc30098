// A buffer of many small parts that are taken one by one, and that may be moved to disk while they are not in use.
//
// To the arbiter it is one SpillableBuffer: a table of many partitions has too many parts to register each. Parts that are taken share
// the block, which is free when the last of them is. What is moved down goes as a whole, for only that frees the block: to
// other memory as one block, to disk as an extent for each part that is still there, so that who takes one reads no others.
//
// Owns the bytes, in whatever tier. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <rapidsmpf/memory/buffer.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

namespace rapidsmpf {
namespace detail {
struct SpillPart;
}  // namespace detail

class SpillableParts {
  public:
    using NextUse = SpillableBuffer::NextUse;

    struct Part {
        std::size_t offset;
        std::size_t size;
    };

    // Parts do not overlap. `next_use`: of the part that is needed first. Throws std::invalid_argument when `buffer` is
    // null or a part is not in it.
    SpillableParts(std::unique_ptr<Buffer> buffer, std::vector<Part> const& parts, NextUse next_use);
    SpillableParts(SpillableParts const&) = delete;
    SpillableParts& operator=(SpillableParts const&) = delete;
    ~SpillableParts();

    // Takes a part out, wherever it is; waits for a move to end. Throws std::logic_error the second time.
    [[nodiscard]] std::unique_ptr<Buffer> take(std::size_t index);

    // Direct pointers to one part and its bookkeeping, for a caller that takes one part of each of many such objects: all of
    // them can be prefetched at once, without following pointers. Valid as long as the object that returned it.
    class PartHandle {
        friend SpillableParts;
        friend detail::SpillRegistry;
        detail::SpillRegistry* registry_{nullptr};
        detail::SpillEntry* entry_{nullptr};
        detail::SpillPart* part_{nullptr};
        Buffer const* buffer_{nullptr};  // may dangle: is prefetched, never read
    };
    // Throws std::out_of_range where there is no such part.
    [[nodiscard]] PartHandle handle(std::size_t index) const;
    // take() for parts of several such objects of one resource, at less cost. Other threads that take or spill do not get far
    // meanwhile, so they should be no more than some dozens.
    [[nodiscard]] static std::vector<std::unique_ptr<Buffer>> take_all(std::span<PartHandle const> wanted);

  private:
    std::shared_ptr<BufferResource> resource_;
    std::shared_ptr<detail::SpillEntry> entry_;
    Buffer const* buffer_;  // may dangle: for PartHandle
};

}  // namespace rapidsmpf
