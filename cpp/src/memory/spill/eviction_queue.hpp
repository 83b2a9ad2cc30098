// The order in which what can be spilled of one tier is moved down: what is needed last first, then the largest, then
// what has its bytes on a lower tier already.
//
// There may be very many small entries (a table of many partitions), which come and go all the time. So these are kept in lists by
// the power of two of their size and by whether they have a copy, the last to come first, and only larger ones are sorted.
// Links are in the entries; owns nothing. Not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

namespace rapidsmpf::detail {

// Where an entry is in the order; a part of each entry. Not changed while it is in one.
template <typename Entry>
struct VictimHook {
    Entry* previous{nullptr};
    Entry* next{nullptr};
};

// `Entry` has next_use, size, lower (null or not) and `hook`.
template <typename Entry>
class EvictionQueue {
  public:
    [[nodiscard]] bool empty() const noexcept { return uses_.empty(); }

    void insert(Entry& entry) {
        auto& use = uses_[~entry.next_use];
        ++use.count;
        if (is_small(entry)) {
            auto*& head = use.small[size_class(entry)];
            entry.hook = {nullptr, head};
            if (head != nullptr) {
                head->hook.previous = &entry;
            }
            head = &entry;
        } else {
            use.large.insert(Key{&entry});
        }
    }

    // One that is in it.
    void erase(Entry& entry) {
        auto const found = uses_.find(~entry.next_use);
        auto& use = found->second;
        if (is_small(entry)) {
            auto const [previous, next] = entry.hook;
            (previous != nullptr ? previous->hook.next : use.small[size_class(entry)]) = next;
            if (next != nullptr) {
                next->hook.previous = previous;
            }
            entry.hook = {};
        } else {
            use.large.erase(Key{&entry});
        }
        if (--use.count == 0) {
            uses_.erase(found);
        }
    }

    // The one to be moved next. There must be one.
    [[nodiscard]] Entry& first() const {
        auto const& use = uses_.begin()->second;
        if (!use.large.empty()) {
            return *use.large.begin()->entry;
        }
        auto at = use.small.size();
        while (use.small[--at] == nullptr) {
        }
        return *use.small[at];
    }

  private:
    static constexpr std::size_t small_size = std::size_t{256} << 10U;

    // Holds what it is compared by: to look at other entries would cost more than all the rest.
    struct Key {
        explicit Key(Entry* of) : size{~of->size}, is_without_copy{of->lower == nullptr}, entry{of} {}
        bool operator<(Key const& other) const noexcept {
            return std::tie(size, is_without_copy, entry)
                   < std::tie(other.size, other.is_without_copy, other.entry);
        }
        std::size_t size;
        bool is_without_copy;
        Entry* entry;
    };
    // Entries that are needed at the same time.
    struct Use {
        std::size_t count{0};
        std::set<Key> large;
        std::array<Entry*, 2 * static_cast<std::size_t>(std::bit_width(small_size))> small{};
    };

    static bool is_small(Entry const& entry) noexcept { return entry.size < small_size; }
    static std::size_t size_class(Entry const& entry) noexcept {
        return 2 * static_cast<std::size_t>(std::bit_width(entry.size)) + (entry.lower != nullptr ? 1 : 0);
    }

    std::map<std::uint64_t, Use> uses_;
};

}  // namespace rapidsmpf::detail
