#include <utility>

#include <rapidsmpf/streaming/partition.hpp>

namespace rapidsmpf::streaming {

namespace {

using OneChunk = PayloadTraits<PackedData>;

// Sums the descriptions of chunks.
class Total {
  public:
    void add(PackedData const& chunk) noexcept {
        auto const each = OneChunk::describe(chunk);
        for (auto const type : memory_types) {
            bytes_[static_cast<std::size_t>(type)] += each.bytes(type);
        }
        rows_ += each.rows();
        can_spill_ = can_spill_ || each.spillable();
    }
    [[nodiscard]] ContentDescription get() const noexcept {
        ContentDescription description{
            MemoryType::DEVICE, 0, can_spill_ ? Spillable::yes : Spillable::no, rows_};
        for (auto const type : memory_types) {
            description.set_bytes(type, bytes_[static_cast<std::size_t>(type)]);
        }
        return description;
    }

  private:
    std::array<std::size_t, memory_types.size()> bytes_{};
    std::uint64_t rows_{0};
    bool can_spill_{false};
};

// The chunk of an entry, and the entry with a copy of it: of a map, or of a vector.
template <typename Entry>
auto& chunk_of(Entry& entry) noexcept {
    if constexpr (requires { entry.second; }) {
        return entry.second;
    } else {
        return entry;
    }
}

std::pair<coll::PartitionId const, PackedData> copied(
    std::pair<coll::PartitionId const, PackedData> const& entry, MemoryReservation& reservation) {
    return {entry.first, OneChunk::copy(entry.second, reservation)};
}

PackedData copied(PackedData const& entry, MemoryReservation& reservation) {
    return OneChunk::copy(entry, reservation);
}

}  // namespace

namespace detail {

template <typename Payload>
ContentDescription ChunksTraits<Payload>::describe(Payload const& payload) noexcept {
    Total total;
    for (auto const& entry : payload.chunks) {
        total.add(chunk_of(entry));
    }
    return total.get();
}

template <typename Payload>
std::size_t ChunksTraits<Payload>::spill(Payload& payload) {
    std::size_t freed = 0;
    for (auto& entry : payload.chunks) {
        freed += OneChunk::spill(chunk_of(entry));
    }
    return freed;
}

template <typename Payload>
std::size_t ChunksTraits<Payload>::copy_cost(Payload const& payload) noexcept {
    return describe(payload).total_bytes();
}

template <typename Payload>
Payload ChunksTraits<Payload>::copy(Payload const& payload, MemoryReservation& reservation) {
    typename Payload::Chunks copies;
    for (auto const& entry : payload.chunks) {
        copies.insert(copies.end(), copied(entry, reservation));
    }
    return Payload{std::move(copies)};
}

template struct ChunksTraits<PartitionMapChunk>;
template struct ChunksTraits<PartitionVectorChunk>;

}  // namespace detail

}  // namespace rapidsmpf::streaming
