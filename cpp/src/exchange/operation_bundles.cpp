// How an operation puts small chunks together on their way, and keeps them so.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/detail/operation.hpp>

namespace rapidsmpf::exchange {

bool Operation::keeps_bundles(MemoryType type) const {
    return br_->memory_available(type) >= br_->memory_limit(type) / 2;
}

BundleLimits Operation::bundle_limits() const {
    auto const& settings = plan_.settings;
    // A list of chunks gives each 32 bits.
    constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max();
    auto const whole = std::min({settings.bundle_bytes, settings.frame_bytes, most});
    // Where memory is short here it may be there, too, and each chunk of a bundle would be copied out of it.
    auto const joined = keeps_bundles(MemoryType::DEVICE) ? whole / 2 : 0;
    return {std::min(settings.gather_limit, whole), joined, whole};
}

bool Operation::any_go_together(
    std::span<std::pair<PartitionId, PackedData> const> chunks, BundleLimits const& limits) const {
    std::vector<bool> has_one(static_cast<std::size_t>(comm_.nranks()), false);
    return std::any_of(chunks.begin(), chunks.end(), [&](auto const& one) {
        auto const& [partition, chunk] = one;
        if (partition >= plan_.total || chunk.empty() || !can_be_bundled(chunk, limits)) {
            return false;
        }
        auto const owner = static_cast<std::size_t>(plan_.owner(partition));
        bool const had_one = has_one[owner];
        has_one[owner] = true;
        return had_one;
    });
}

std::vector<Operation::OwnedBundle> Operation::bundle(
    std::vector<std::pair<PartitionId, PackedData>>& chunks, BundleLimits const& limits) const {
    std::vector<std::vector<std::pair<PartitionId, PackedData>>> small(
        static_cast<std::size_t>(comm_.nranks()));
    std::vector<std::pair<PartitionId, PackedData>> rest;
    bool const keeps_own = keeps_bundles(MemoryType::DEVICE);
    for (auto& [partition, chunk] : chunks) {
        auto const owner = plan_.owner(partition);
        bool const fits = !chunk.empty() && can_be_bundled(chunk, limits) && (owner != rank_ || keeps_own);
        (fits ? small[static_cast<std::size_t>(owner)] : rest).emplace_back(partition, std::move(chunk));
    }
    std::vector<OwnedBundle> bundles;
    for (Rank owner = 0; owner < static_cast<Rank>(small.size()); ++owner) {
        auto& left = small[static_cast<std::size_t>(owner)];
        for (auto& bundle : make_bundles(left, *br_, limits)) {
            bundles.push_back({owner, std::move(bundle)});
        }
        std::move(left.begin(), left.end(), std::back_inserter(rest));
    }
    chunks = std::move(rest);
    return bundles;
}

void Operation::insert_locked(OwnedBundle bundle) {
    auto& [owner, content] = bundle;
    auto const& partitions = content.partitions;
    auto const first = counts_[partitions.front()];
    for (std::size_t i = 0; i < partitions.size(); ++i) {
        content.set_sequence(i, counts_[partitions[i]]++);
    }
    auto const size = content.packed.data->size();
    br_->statistics()->add(ids_.payload_send, static_cast<double>(content.data_bytes));
    if (owner == rank_) {
        store_bundle(rank_, partitions.size(), std::move(content.packed));
    } else if (!peer(owner).closed) {
        auto payload = std::make_shared<Payload>(
            std::move(content.packed), next_use_in_outbox(first, size), weak_from_this());
        payload->destinations = 1;
        peer(owner).outbox.push(Outbox::Piece{bundle_partition, partitions.size(), std::move(payload)});
    }
}

std::vector<BundledChunk> Operation::check_bundle(
    std::uint64_t count, std::span<std::uint8_t const> metadata, std::uint64_t data_size) const {
    auto chunks = read_bundle(count, metadata, data_size);
    for (auto const& chunk : chunks) {
        RAPIDSMPF_EXPECTS(
            store_.find(chunk.partition).has_value(),
            "partition " + std::to_string(chunk.partition) + " is not one of this rank's", FormatError);
    }
    return chunks;
}

void Operation::store_bundle(Rank source, std::uint64_t count, PackedData packed) {
    auto& data = *packed.data;
    auto chunks = check_bundle(count, packed.metadata, data.size());
    if (keeps_bundles(data.mem_type())) {
        std::size_t size = 0;
        auto needed_first = chunks.front().partition;
        for (auto const& chunk : chunks) {
            size += chunk.data.size;
            needed_first = std::min(needed_first, chunk.partition);
        }
        br_->statistics()->add(ids_.payload_recv, static_cast<double>(size));
        auto const bundle =
            std::make_shared<Bundle>(std::move(packed), std::move(chunks), next_use_in_store(needed_first));
        for (std::size_t i = 0; i < bundle->chunks().size(); ++i) {
            auto const& chunk = bundle->chunks()[i];
            store_.add(chunk.partition, PartitionStore::Piece{source, chunk.sequence, bundle, i});
        }
        return;
    }
    for (auto const& chunk : chunks) {
        auto const [offset, size] = chunk.data;
        auto own = br_->allocate(data.mem_type(), size, data.stream());
        if (size > 0 && data.is_host_accessible()) {
            std::memcpy(own->mutable_host_bytes().data(), data.host_bytes().data() + offset, size);
        } else if (size > 0) {
            own->write([&, from = offset, bytes = size](std::byte* to, Stream stream) {
                br_->device().copy(to, data.data() + from, bytes, stream);
            });
        }
        auto const begin = packed.metadata.begin() + static_cast<std::ptrdiff_t>(chunk.metadata);
        store_payload(
            source, chunk.partition, chunk.sequence,
            std::make_shared<Payload>(
                PackedData{{begin, begin + chunk.metadata_size}, std::move(own)},
                next_use_in_store(chunk.partition)));
    }
}

}  // namespace rapidsmpf::exchange
