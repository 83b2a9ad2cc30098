// The control messages of the exchange protocol, the lists of bundles, and offers of shared memory: what any rank may send.
#include <algorithm>
#include <cstring>
#include <variant>

#include "exchange/announced_frame.hpp"
#include "exchange/bundle_listing.hpp"
#include "exchange/peer_offer.hpp"
#include "exchange/wire.hpp"
#include "fuzzer.hpp"

namespace rapidsmpf::fuzz {

namespace {

using namespace exchange;

enum class Kind : std::uint8_t { message, bundle, offer };
constexpr std::uint8_t kinds = 3;

// What a list of pieces says has to be there.
void check(PieceList const& list) {
    std::uint64_t metadata = 0;
    std::uint64_t data = 0;
    for (auto const& piece : list.pieces) {
        metadata += piece.metadata_size;
        data += piece.data_size;
    }
    require(!list.pieces.empty() && metadata == list.metadata.size(), "the metadata is there");
    require(list.split_bytes > 0 || data == list.data.size(), "the data of eager pieces is there");
    static_cast<void>(copied(list.metadata));
    static_cast<void>(copied(list.data));
}

// As the receiving rank does.
void announce(PieceList const& list, ReceiveBudget& budget) {
    static_cast<void>(takes([&] {
        AnnouncedFrame frame{list, budget};
        static_cast<void>(frame.memory_needed());
        static_cast<void>(frame.ticket.try_grant(std::size_t{1} << 30));
    }));
}

void put_list(MessageWriter& writer, PieceList const& list) {
    writer.append(list.metadata);
    writer.append(list.data);
}

// The same sections, in the order in which a Message has them.
Bytes written_again(OpId op, OperationMessage const& message) {
    MessageWriter writer{op};
    for (auto const& grant : message.grants) {
        if (grant.addresses.empty()) {
            writer.grants(grant.frames);
        } else {
            writer.addresses(grant.addresses);
        }
    }
    writer.written(message.written);
    writer.credit(message.credit);
    writer.counts(message.counts);
    for (auto const& list : message.eager) {
        writer.eager(list.pieces);
        put_list(writer, list);
    }
    for (auto const& list : message.frames) {
        writer.frame(list.pieces, list.gather_limit, list.split_bytes);
        put_list(writer, list);
    }
    if (message.final) {
        writer.final(*message.final);
    }
    return std::move(writer).take();
}

// The same again, of a message about all operations.
Bytes written_again(ControlMessage const& message) {
    MessageWriter writer{Tag::max_op_id};
    if (auto const* const range = std::get_if<AbandonedRange>(&message)) {
        writer.abandon(*range);
    } else if (auto const* const offer = std::get_if<Offer>(&message)) {
        writer.offer(*offer);
    } else if (auto const* const answer = std::get_if<Answer>(&message)) {
        writer.answer(*answer);
    } else if (auto const* const region = std::get_if<device::ExportedRegion>(&message)) {
        writer.region(*region);
    }
    return std::move(writer).take();
}

void read_about_all(std::span<std::uint8_t const> input) {
    auto const bytes = copied(input);
    ControlMessage message;
    if (!takes([&] { message = read_control_message(bytes); })) {
        return;
    }
    auto const again = written_again(message);
    constexpr std::size_t header_size = 8;  // with the operation id, which may be another
    require(
        again.size() == bytes.size()
            && std::equal(again.begin() + header_size, again.end(), bytes.begin() + header_size),
        "a message about all operations says the same again");
}

void read_message(std::span<std::uint8_t const> input) {
    read_about_all(input);
    auto const bytes = copied(input);
    OperationMessage message;
    if (!takes([&] { message = read_operation_message(bytes); })) {
        return;
    }
    ReceiveBudget budget;
    for (auto const& list : message.eager) {
        check(list);
    }
    for (auto const& list : message.frames) {
        check(list);
        announce(list, budget);
    }
    auto const copy = written_again(read_op(bytes), message);
    auto const again = read_operation_message(copy);
    require(
        again.granted() == message.granted() && again.written == message.written
            && again.credit == message.credit && again.counts.size() == message.counts.size()
            && again.eager.size() == message.eager.size() && again.frames.size() == message.frames.size()
            && again.final.has_value() == message.final.has_value(),
        "a message says the same again");
}

void read_listing(Input& input) {
    std::uint64_t const count = input.byte();
    std::uint64_t data_size = 0;
    auto const size = input.take(sizeof(std::uint64_t));
    std::memcpy(&data_size, size.data(), size.size());
    auto const metadata = copied(input.rest());
    std::vector<BundledChunk> chunks;
    if (!takes([&] { chunks = read_bundle(count, metadata, data_size); })) {
        return;
    }
    for (auto const& chunk : chunks) {
        require(
            chunk.metadata + chunk.metadata_size <= metadata.size()
                && chunk.data.offset + chunk.data.size <= data_size,
            "a chunk lies in its bundle");
    }
}

}  // namespace

void read_input(std::span<std::uint8_t const> bytes) {
    Input input{bytes};
    switch (static_cast<Kind>(input.byte() % kinds)) {
        case Kind::message:
            return read_message(input.rest());
        case Kind::bundle:
            return read_listing(input);
        case Kind::offer: {
            auto const offered = copied(input.rest());
            exchange::detail::PeerOffer offer;
            if (takes([&] { offer = exchange::detail::read_offer(offered); })) {
                require(exchange::detail::write_offer(offer) == offered, "an offer says the same again");
            }
        }
    }
}

std::vector<Bytes> seeds() {
    constexpr OpId op = 7;
    Bytes const metadata(48, 0x11);
    Bytes const data(64, 0x22);
    std::vector<PieceHeader> const pieces{{{3, 0}, 40, 64}, {{4, 1}, 8, 0}};
    std::vector<Bytes> all;
    auto const add = [&](OpId of, auto const& write) {
        MessageWriter writer{of};
        write(writer);
        all.push_back(with_kind(static_cast<std::uint8_t>(Kind::message), std::move(writer).take()));
    };
    add(op, [](MessageWriter& out) { out.grants(3); });
    add(op, [](MessageWriter& out) { out.addresses(std::vector<RemoteAddress>{{0, 64}, {1, 4096}}); });
    add(op, [](MessageWriter& out) {
        out.written(2);
        out.credit(65536);
    });
    add(op, [](MessageWriter& out) { out.counts(std::vector<PartitionCount>{{0, 5}, {3, 17}}); });
    add(op, [&](MessageWriter& out) {
        out.eager(pieces);
        out.append(metadata);
        out.append(data);
    });
    add(op, [&](MessageWriter& out) {
        out.frame(pieces, 16384, std::uint64_t{1} << 30);
        out.append(metadata);
        out.counts(std::vector<PartitionCount>{{3, 1}});
        out.final(Final{FinalKind::finished, 12, 1, ""});
    });
    add(op, [](MessageWriter& out) { out.final(Final{FinalKind::abandoned, 0, 2, "out of memory"}); });
    add(Tag::max_op_id, [](MessageWriter&) {});
    add(Tag::max_op_id,
        [](MessageWriter& out) { out.abandon(AbandonedRange{16, 31, 1, "it was interrupted"}); });
    exchange::detail::PeerOffer offer;
    offer.ticket.host = "node7.cluster";
    offer.ticket.pid = 4711;
    offer.ticket.size = std::uint64_t{1} << 40;
    offer.flag = 64;
    offer.value = 1;
    offer.device = {1, 2, 3};
    auto const memory = exchange::detail::write_offer(offer);
    add(Tag::max_op_id, [&](MessageWriter& out) { out.offer(Offer{TransportKind::peer_memory, memory}); });
    add(Tag::max_op_id,
        [](MessageWriter& out) { out.answer(Answer{TransportKind::messages, "another host"}); });
    add(Tag::max_op_id,
        [](MessageWriter& out) { out.region(device::ExportedRegion{1, 4096, Bytes(64, 9)}); });
    all.push_back(with_kind(static_cast<std::uint8_t>(Kind::offer), memory));

    // Two chunks as bundle.cpp lists them: with 10 and 6 bytes of metadata, 100 and 20 of data.
    Bytes listing{2, 148, 0, 0, 0, 0, 0, 0, 0};
    for (std::uint8_t const chunk : {0, 1}) {
        Bytes const row{
            3,
            0,
            0,
            0,
            chunk,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            static_cast<std::uint8_t>(chunk == 0 ? 10 : 6),
            0,
            0,
            0,
            static_cast<std::uint8_t>(chunk == 0 ? 100 : 20),
            0,
            0,
            0};
        listing.insert(listing.end(), row.begin(), row.end());
    }
    listing.insert(listing.end(), 16, 0x33);
    all.push_back(with_kind(static_cast<std::uint8_t>(Kind::bundle), listing));
    return all;
}

}  // namespace rapidsmpf::fuzz
