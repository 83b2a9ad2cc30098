#include "communicator/ucxx_control.hpp"

#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {

namespace {

constexpr std::size_t max_address_size = std::size_t{1} << 20;
constexpr std::size_t max_text_size = 4096;
constexpr std::size_t max_invitation_size = 65536;

ByteWriter begin(ControlKind kind) {
    ByteWriter writer;
    writer.integer(static_cast<std::uint8_t>(kind));
    return writer;
}

ByteReader read(std::span<std::uint8_t const> message, ControlKind kind) {
    RAPIDSMPF_EXPECTS(control_kind(message) == kind, "another kind of message", FormatError);
    return ByteReader{message.subspan(1)};
}

}  // namespace

ControlKind control_kind(std::span<std::uint8_t const> message) {
    ByteReader reader{message};
    auto const kind = reader.integer<std::uint8_t>();
    RAPIDSMPF_EXPECTS(
        kind >= static_cast<std::uint8_t>(ControlKind::join)
            && kind <= static_cast<std::uint8_t>(ControlKind::abort),
        "control message of unknown kind " + std::to_string(kind), FormatError);
    return static_cast<ControlKind>(kind);
}

std::vector<std::uint8_t> JoinMessage::encode(Token const& token) const {
    return begin(ControlKind::join).raw(token.bytes()).integer(nranks).blob(address).take();
}

JoinMessage JoinMessage::decode(std::span<std::uint8_t const> message, Token const& token) {
    auto reader = read(message, ControlKind::join);
    RAPIDSMPF_EXPECTS(
        Token::from_bytes(reader.raw(Token::size)).matches(token),
        "a process that does not have the job's token wants to join", FormatError);
    auto const nranks = reader.integer<Rank>();
    auto address = reader.blob(max_address_size);
    reader.end();
    return JoinMessage{nranks, std::move(address)};
}

std::vector<std::uint8_t> AssignMessage::encode() const {
    return begin(ControlKind::assign).integer(rank).blob(invitation).take();
}

AssignMessage AssignMessage::decode(std::span<std::uint8_t const> message) {
    auto reader = read(message, ControlKind::assign);
    auto const rank = reader.integer<Rank>();
    auto invitation = reader.blob(max_invitation_size);
    reader.end();
    return AssignMessage{rank, std::move(invitation)};
}

std::vector<std::uint8_t> RefuseMessage::encode() const {
    return begin(ControlKind::refuse).text(reason, max_text_size).take();
}

RefuseMessage RefuseMessage::decode(std::span<std::uint8_t const> message) {
    auto reader = read(message, ControlKind::refuse);
    RefuseMessage refuse{reader.text(max_text_size)};
    reader.end();
    return refuse;
}

std::vector<std::uint8_t> TableMessage::encode() const {
    auto writer = begin(ControlKind::table);
    writer.integer(static_cast<std::uint32_t>(addresses.size()));
    for (auto const& address : addresses) {
        writer.blob(address);
    }
    return writer.take();
}

TableMessage TableMessage::decode(std::span<std::uint8_t const> message) {
    auto reader = read(message, ControlKind::table);
    auto const count = reader.integer<std::uint32_t>();
    std::vector<std::vector<std::uint8_t>> addresses;
    for (std::uint32_t i = 0; i < count; ++i) {
        addresses.push_back(reader.blob(max_address_size));
    }
    reader.end();
    return TableMessage{std::move(addresses)};
}

std::vector<std::uint8_t> BarrierMessage::encode() const {
    return begin(kind).integer(number).take();
}

BarrierMessage BarrierMessage::decode(std::span<std::uint8_t const> message) {
    auto const kind = control_kind(message);
    RAPIDSMPF_EXPECTS(
        kind == ControlKind::arrive || kind == ControlKind::release, "another kind of message", FormatError);
    ByteReader reader{message.subspan(1)};
    BarrierMessage const barrier{kind, reader.integer<std::uint64_t>()};
    reader.end();
    return barrier;
}

std::vector<std::uint8_t> AbortMessage::encode() const {
    return begin(ControlKind::abort)
        .integer(failure.rank)
        .text(failure.host, max_text_size)
        .integer(failure.pid)
        .text(failure.reason, max_text_size)
        .take();
}

AbortMessage AbortMessage::decode(std::span<std::uint8_t const> message) {
    auto reader = read(message, ControlKind::abort);
    auto const rank = reader.integer<Rank>();
    auto host = reader.text(max_text_size);
    auto const pid = reader.integer<std::int64_t>();
    auto reason = reader.text(max_text_size);
    reader.end();
    return AbortMessage{RankFailure{rank, std::move(host), pid, std::move(reason)}};
}

}  // namespace rapidsmpf::detail
