// Which ranges of a file are free: taken by best fit, joined with their neighbours when they come back.
//
// Pure bookkeeping, not thread-safe; its owner has the lock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace rapidsmpf::detail {

struct FileRange {
    std::int64_t offset{0};
    std::int64_t length{0};
    [[nodiscard]] std::int64_t end() const noexcept { return offset + length; }
    friend bool operator==(FileRange const&, FileRange const&) = default;
};

class FreeExtents {
  public:
    // Adds a range that overlaps none that is free.
    void insert(FileRange range);
    // Takes `length` bytes from the front of the smallest range that holds them.
    [[nodiscard]] std::optional<FileRange> take(std::int64_t length);
    // Takes the largest range, whole.
    [[nodiscard]] std::optional<FileRange> take_largest();
    // Takes the range that ends at `end`, whole.
    [[nodiscard]] std::optional<FileRange> take_ending_at(std::int64_t end);

    [[nodiscard]] std::int64_t total() const noexcept { return total_; }
    [[nodiscard]] std::size_t count() const noexcept { return by_offset_.size(); }

  private:
    using ByOffset = std::map<std::int64_t, std::int64_t>;
    FileRange remove(ByOffset::iterator entry);
    void add(FileRange range);

    ByOffset by_offset_;                                       // offset -> length
    std::set<std::pair<std::int64_t, std::int64_t>> by_size_;  // length, offset
    std::int64_t total_{0};
};

}  // namespace rapidsmpf::detail
