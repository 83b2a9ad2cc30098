#include "exchange/piece_unpacker.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {

PieceUnpacker::PieceUnpacker(
    std::shared_ptr<BufferResource> br, LocalPartitions local, Statistics::Id received,
    Statistics::Id received_to_host)
    : br_{std::move(br)},
      local_{std::move(local)},
      received_{received},
      received_to_host_{received_to_host} {}

void PieceUnpacker::check_local(PartitionId partition) const {
    RAPIDSMPF_EXPECTS(
        local_.find(partition).has_value(),
        "partition " + std::to_string(partition) + " is not one of this rank's", FormatError);
}

std::vector<BundledChunk> PieceUnpacker::check_bundle(
    std::uint64_t count, std::span<std::uint8_t const> metadata, std::uint64_t data_size) const {
    auto chunks = read_bundle(count, metadata, data_size);
    for (auto const& chunk : chunks) {
        check_local(chunk.partition);
    }
    return chunks;
}

void PieceUnpacker::check(PieceHeader const& header, std::span<std::uint8_t const> metadata) const {
    if (header.id.is_bundle()) {
        (void)check_bundle(header.id.chunks(), metadata, header.data_size);
    } else {
        check_local(header.id.partition());
    }
}

void PieceUnpacker::unpack(Rank source, PieceHeader const& header, PackedData piece, Arrivals& to) const {
    if (piece.data->mem_type() != MemoryType::DEVICE) {
        br_->statistics()->add(received_to_host_, static_cast<double>(piece.data->size()));
    }
    if (header.id.is_bundle()) {
        unpack_bundle(source, header.id.chunks(), std::move(piece), to);
        return;
    }
    auto const partition = header.id.partition();
    check_local(partition);
    auto payload = std::make_shared<Payload>(std::move(piece), next_use(partition));
    keep(source, partition, header.id.sequence(), std::move(payload), to);
}

void PieceUnpacker::keep(
    Rank source, PartitionId partition, std::uint64_t sequence, std::shared_ptr<Payload> payload,
    Arrivals& to) const {
    br_->statistics()->add(received_, static_cast<double>(payload->size));
    to.push_back({source, partition, sequence, std::move(payload), nullptr});
}

void PieceUnpacker::unpack_bundle(Rank source, std::uint64_t count, PackedData packed, Arrivals& to) const {
    auto& data = *packed.data;
    auto chunks = check_bundle(count, packed.metadata, data.size());
    if (keeps_bundles(*br_, data.mem_type())) {
        std::size_t size = 0;
        auto needed_first = chunks.front().partition;
        for (auto const& chunk : chunks) {
            size += chunk.data.size;
            needed_first = std::min(needed_first, chunk.partition);
        }
        br_->statistics()->add(received_, static_cast<double>(size));
        auto bundle = std::make_shared<Bundle>(std::move(packed), std::move(chunks), next_use(needed_first));
        to.push_back({source, 0, 0, nullptr, std::move(bundle)});
        return;
    }
    for (auto const& chunk : chunks) {
        auto const [offset, size] = chunk.data;
        auto own = br_->allocate(data.mem_type(), size, data.stream());
        if (size > 0 && data.is_host_accessible()) {
            std::memcpy(own->mutable_host_bytes().data(), data.host_bytes().data() + offset, size);
        } else if (size > 0) {
            own->write([&, from = offset, bytes = size](std::byte* begin, Stream stream) {
                br_->device().copy(begin, data.data() + from, bytes, stream);
            });
        }
        auto const begin = packed.metadata.begin() + static_cast<std::ptrdiff_t>(chunk.metadata);
        keep(
            source, chunk.partition, chunk.sequence,
            std::make_shared<Payload>(
                PackedData{{begin, begin + chunk.metadata_size}, std::move(own)}, next_use(chunk.partition)),
            to);
    }
}

}  // namespace rapidsmpf::exchange
