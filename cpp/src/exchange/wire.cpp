#include "exchange/wire.hpp"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <limits>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {

namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

constexpr std::uint32_t magic = 0x31585252;  // "RRX1"
constexpr std::size_t header_size = 8;
// Stands for a bundle where a piece's partition is. No partition has this number: it is the largest that a number of
// partitions may be.
constexpr PartitionId bundle_partition = std::numeric_limits<PartitionId>::max();

enum class Section : std::uint8_t {
    grants = 1,
    credit,
    counts,
    eager,
    frame,
    final,
    abandon,
    addresses,
    written,
    offer,
    answer,
    region,
};

template <typename T>
void put(std::vector<std::uint8_t>& out, T value) {
    std::size_t const at = out.size();
    out.resize(at + sizeof(T));
    std::memcpy(out.data() + at, &value, sizeof(T));
}

class Reader {
  public:
    explicit Reader(std::span<std::uint8_t const> bytes) : bytes_{bytes} {}

    template <typename T>
    T get() {
        T value;
        std::memcpy(&value, view(sizeof(T)).data(), sizeof(T));
        return value;
    }

    std::span<std::uint8_t const> view(std::uint64_t size) {
        RAPIDSMPF_EXPECTS(size <= bytes_.size(), "the message ends too early", FormatError);
        auto const out = bytes_.first(static_cast<std::size_t>(size));
        bytes_ = bytes_.subspan(static_cast<std::size_t>(size));
        return out;
    }

    // A count of things that take `each` bytes of what is left, so that no count makes us allocate much.
    std::uint32_t count(std::size_t each) {
        auto const n = get<std::uint32_t>();
        RAPIDSMPF_EXPECTS(n <= bytes_.size() / each, "a count is larger than the message", FormatError);
        return n;
    }

    [[nodiscard]] bool at_end() const noexcept { return bytes_.empty(); }

  private:
    std::span<std::uint8_t const> bytes_;
};

std::uint64_t checked_sum(std::uint64_t a, std::uint64_t b) {
    constexpr std::uint64_t largest = std::uint64_t{1} << 62U;
    RAPIDSMPF_EXPECTS(b <= largest && a <= largest - b, "the sizes of the pieces overflow", FormatError);
    return a + b;
}

enum class WithData : bool { no = false, yes = true };

void read_pieces(Reader& reader, PieceList& list, WithData with_data) {
    auto const n = reader.count(PieceHeader::wire_size);
    RAPIDSMPF_EXPECTS(n > 0, "a list without pieces", FormatError);
    list.pieces.reserve(n);
    std::uint64_t metadata = 0;
    std::uint64_t data = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
        auto const partition = reader.get<std::uint32_t>();
        auto const sequence = reader.get<std::uint64_t>();
        auto const metadata_size = reader.get<std::uint64_t>();
        auto const data_size = reader.get<std::uint64_t>();
        RAPIDSMPF_EXPECTS(
            metadata_size > 0 || data_size == 0, "a piece has data and no metadata", FormatError);
        auto const id =
            partition == bundle_partition ? PieceId::bundle_of(sequence) : PieceId{partition, sequence};
        list.pieces.emplace_back(id, metadata_size, data_size);
        metadata = checked_sum(metadata, metadata_size);
        data = checked_sum(data, data_size);
    }
    list.metadata = reader.view(metadata);
    if (with_data == WithData::yes) {
        list.data = reader.view(data);
    }
}

std::string read_text(Reader& reader) {
    auto const text = reader.view(reader.count(1));
    return {text.begin(), text.end()};
}

TransportKind read_kind(Reader& reader) {
    auto const kind = reader.get<std::uint8_t>();
    RAPIDSMPF_EXPECTS(
        kind <= static_cast<std::uint8_t>(TransportKind::device_peer_memory), "an unknown kind of transport",
        FormatError);
    return static_cast<TransportKind>(kind);
}

Final read_final(Reader& reader) {
    Final final;
    auto const kind = reader.get<std::uint8_t>();
    RAPIDSMPF_EXPECTS(
        kind <= static_cast<std::uint8_t>(FinalKind::failed), "an unknown kind of last message", FormatError);
    final.kind = static_cast<FinalKind>(kind);
    final.payload_messages = reader.get<std::uint64_t>();
    final.origin = reader.get<Rank>();
    final.reason = read_text(reader);
    return final;
}

AbandonedRange read_range(Reader& reader) {
    auto const first = reader.get<OpId>();
    auto const last = reader.get<OpId>();
    RAPIDSMPF_EXPECTS(
        0 <= first && first <= last && last < Tag::max_op_id, "a range of operations that cannot be",
        FormatError);
    auto const origin = reader.get<Rank>();
    return AbandonedRange{first, last, origin, read_text(reader)};
}

std::vector<std::uint8_t> read_bytes(Reader& reader) {
    auto const bytes = reader.view(reader.count(1));
    return {bytes.begin(), bytes.end()};
}

ControlMessage read_control_section(Reader& reader) {
    switch (static_cast<Section>(reader.get<std::uint8_t>())) {
        case Section::abandon:
            return read_range(reader);
        case Section::offer: {
            auto const kind = read_kind(reader);
            return Offer{kind, read_bytes(reader)};
        }
        case Section::answer: {
            auto const kind = read_kind(reader);
            return Answer{kind, read_text(reader)};
        }
        case Section::region: {
            auto const id = reader.get<std::uint32_t>();
            auto const size = reader.get<std::uint64_t>();
            return device::ExportedRegion{id, size, read_bytes(reader)};
        }
        default:
            throw FormatError{"an unknown section"};
    }
}

}  // namespace

MessageWriter::MessageWriter(OpId op) {
    put(bytes_, magic);
    put(bytes_, op);
}

bool MessageWriter::has_sections() const noexcept {
    return bytes_.size() > header_size;
}

void MessageWriter::grants(std::uint32_t frames) {
    put(bytes_, Section::grants);
    put(bytes_, frames);
}

void MessageWriter::addresses(std::span<RemoteAddress const> addresses) {
    put(bytes_, Section::addresses);
    put(bytes_, static_cast<std::uint32_t>(addresses.size()));
    for (auto const& address : addresses) {
        put(bytes_, address.region);
        put(bytes_, address.offset);
    }
}

void MessageWriter::written(std::uint32_t frames) {
    put(bytes_, Section::written);
    put(bytes_, frames);
}

void MessageWriter::offer(Offer const& offer) {
    put(bytes_, Section::offer);
    put(bytes_, offer.kind);
    put(bytes_, static_cast<std::uint32_t>(offer.memory.size()));
    append(offer.memory);
}

void MessageWriter::answer(Answer const& answer) {
    put(bytes_, Section::answer);
    put(bytes_, answer.kind);
    text(answer.reason);
}

void MessageWriter::region(device::ExportedRegion const& region) {
    put(bytes_, Section::region);
    put(bytes_, region.id);
    put(bytes_, region.size);
    put(bytes_, static_cast<std::uint32_t>(region.handle.size()));
    append(region.handle);
}

void MessageWriter::credit(std::uint64_t bytes) {
    put(bytes_, Section::credit);
    put(bytes_, bytes);
}

void MessageWriter::counts(std::span<PartitionCount const> counts) {
    put(bytes_, Section::counts);
    put(bytes_, static_cast<std::uint32_t>(counts.size()));
    for (auto const& count : counts) {
        put(bytes_, count.partition);
        put(bytes_, count.chunks);
    }
}

void MessageWriter::pieces(std::span<PieceHeader const> pieces) {
    put(bytes_, static_cast<std::uint32_t>(pieces.size()));
    for (auto const& piece : pieces) {
        auto const& id = piece.id;
        put(bytes_, id.is_bundle() ? bundle_partition : id.partition());
        put(bytes_, id.is_bundle() ? id.chunks() : id.sequence());
        put(bytes_, piece.metadata_size);
        put(bytes_, piece.data_size);
    }
}

void MessageWriter::eager(std::span<PieceHeader const> list) {
    put(bytes_, Section::eager);
    pieces(list);
}

void MessageWriter::frame(
    std::span<PieceHeader const> list, std::uint64_t gather_limit, std::uint64_t split_bytes) {
    // Once, for the metadata that follows, too.
    std::size_t size = 0;
    for (auto const& piece : list) {
        size += piece.listing_bytes();
    }
    bytes_.reserve(bytes_.size() + 1 + 2 * sizeof(std::uint64_t) + sizeof(std::uint32_t) + size);
    put(bytes_, Section::frame);
    put(bytes_, gather_limit);
    put(bytes_, split_bytes);
    pieces(list);
}

void MessageWriter::append(std::span<std::uint8_t const> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void MessageWriter::text(std::string const& text) {
    put(bytes_, static_cast<std::uint32_t>(text.size()));
    append({reinterpret_cast<std::uint8_t const*>(text.data()), text.size()});
}

void MessageWriter::final(Final const& final) {
    put(bytes_, Section::final);
    put(bytes_, final.kind);
    put(bytes_, final.payload_messages);
    put(bytes_, final.origin);
    text(final.reason);
}

void MessageWriter::abandon(AbandonedRange const& range) {
    put(bytes_, Section::abandon);
    put(bytes_, range.first);
    put(bytes_, range.last);
    put(bytes_, range.origin);
    text(range.reason);
}

std::uint64_t OperationMessage::granted() const noexcept {
    std::uint64_t frames = 0;
    for (auto const& grant : grants) {
        frames += grant.frames;
    }
    return frames;
}

OpId read_op(std::span<std::uint8_t const> bytes) {
    Reader reader{bytes};
    RAPIDSMPF_EXPECTS(
        reader.get<std::uint32_t>() == magic, "not a message of this protocol version", FormatError);
    auto const op = reader.get<OpId>();
    RAPIDSMPF_EXPECTS(op >= 0 && op <= Tag::max_op_id, "an operation id out of range", FormatError);
    return op;
}

OperationMessage read_operation_message(std::span<std::uint8_t const> bytes) {
    (void)read_op(bytes);
    Reader reader{bytes.subspan(header_size)};
    OperationMessage message;
    while (!reader.at_end()) {
        RAPIDSMPF_EXPECTS(!message.final, "something follows the last section", FormatError);
        switch (static_cast<Section>(reader.get<std::uint8_t>())) {
            case Section::grants: {
                auto const frames = reader.get<std::uint32_t>();
                message.grants.push_back(Grant{frames, {}});
                break;
            }
            case Section::addresses: {
                auto const n = reader.count(RemoteAddress::wire_size);
                RAPIDSMPF_EXPECTS(n > 0, "a grant without addresses", FormatError);
                Grant grant{1, {}};
                grant.addresses.reserve(n);
                for (std::uint32_t i = 0; i < n; ++i) {
                    auto const region = reader.get<std::uint32_t>();
                    grant.addresses.push_back(RemoteAddress{region, reader.get<std::uint64_t>()});
                }
                message.grants.push_back(std::move(grant));
                break;
            }
            case Section::written: {
                auto const frames = reader.get<std::uint32_t>();
                RAPIDSMPF_EXPECTS(
                    frames <= std::numeric_limits<std::uint32_t>::max() - message.written,
                    "too many frames written", FormatError);
                message.written += frames;
                break;
            }
            case Section::credit:
                message.credit = checked_sum(message.credit, reader.get<std::uint64_t>());
                break;
            case Section::counts: {
                auto const n = reader.count(12);
                if (message.counts
                        .empty()) {  // else each of many sections would move all that came before it
                    message.counts.reserve(n);
                }
                for (std::uint32_t i = 0; i < n; ++i) {
                    auto const partition = reader.get<std::uint32_t>();
                    message.counts.emplace_back(partition, reader.get<std::uint64_t>());
                }
                break;
            }
            case Section::eager:
                read_pieces(reader, message.eager.emplace_back(), WithData::yes);
                break;
            case Section::frame: {
                auto& frame = message.frames.emplace_back();
                frame.gather_limit = reader.get<std::uint64_t>();
                frame.split_bytes = reader.get<std::uint64_t>();
                RAPIDSMPF_EXPECTS(frame.split_bytes > 0, "payloads split into nothing", FormatError);
                read_pieces(reader, frame, WithData::no);
                break;
            }
            case Section::final:
                message.final = read_final(reader);
                break;
            default:
                throw FormatError{"an unknown section"};
        }
    }
    return message;
}

ControlMessage read_control_message(std::span<std::uint8_t const> bytes) {
    (void)read_op(bytes);
    Reader reader{bytes.subspan(header_size)};
    if (reader.at_end()) {
        return Goodbye{};
    }
    auto message = read_control_section(reader);
    RAPIDSMPF_EXPECTS(reader.at_end(), "something follows the last section", FormatError);
    return message;
}

}  // namespace rapidsmpf::exchange
