#include <rapidsmpf/bootstrap/detail/protocol.hpp>

#include <rapidsmpf/core/detail/byte_codec.hpp>

#include "bootstrap/frame_writer.hpp"

namespace rapidsmpf::bootstrap {

namespace {

constexpr std::size_t size_bytes = sizeof(std::uint32_t);

using Reader = ByteReader;

using Writer = FrameWriter;

}  // namespace

Bytes Hello::encode() const {
    return Writer{MessageType::hello}
        .integer(protocol_magic)
        .integer(protocol_version)
        .raw(token.bytes())
        .integer(static_cast<std::uint8_t>(role))
        .integer(rank)
        .integer(nranks)
        .integer(pid)
        .text(host, max_host_size)
        .done();
}

Hello Hello::decode(std::span<std::uint8_t const> payload) {
    Reader reader{payload};
    RAPIDSMPF_EXPECTS(
        reader.integer<std::uint32_t>() == protocol_magic, "not a greeting of a rank", FormatError);
    auto const version = reader.integer<std::uint16_t>();
    RAPIDSMPF_EXPECTS(
        version == protocol_version,
        "protocol version " + std::to_string(version) + " instead of " + std::to_string(protocol_version)
            + ": the ranks use another version of riverrun than rrun",
        FormatError);
    auto const token = Token::from_bytes(reader.raw(Token::size));
    auto const role = reader.integer<std::uint8_t>();
    RAPIDSMPF_EXPECTS(role <= static_cast<std::uint8_t>(Role::node), "unknown role", FormatError);
    auto const rank = reader.integer<std::int32_t>();
    auto const nranks = reader.integer<std::int32_t>();
    auto const pid = reader.integer<std::int64_t>();
    Hello hello{token, static_cast<Role>(role), rank, nranks, pid, reader.text(max_host_size)};
    reader.end();
    return hello;
}

Bytes Welcome::encode() const {
    return Writer{MessageType::welcome}.integer(session).integer(ping_ms).done();
}

Welcome Welcome::decode(std::span<std::uint8_t const> payload) {
    Reader reader{payload};
    auto const session = reader.integer<std::uint32_t>();
    Welcome const welcome{session, reader.integer<std::uint32_t>()};
    reader.end();
    return welcome;
}

Bytes Rejected::encode() const {
    return Writer{MessageType::rejected}.text(reason, max_reason_size).done();
}

Rejected Rejected::decode(std::span<std::uint8_t const> payload) {
    Reader reader{payload};
    Rejected rejected{reader.text(max_reason_size)};
    reader.end();
    return rejected;
}

Bytes Put::encode() const {
    return Writer{MessageType::put}.text(key, max_key_size).blob(value).done();
}

Put Put::decode(std::span<std::uint8_t const> payload) {
    Reader reader{payload};
    auto key = reader.text(max_key_size);
    auto value = reader.blob(max_value_size);
    reader.end();
    return Put{std::move(key), std::move(value)};
}

Bytes Get::encode() const {
    return Writer{MessageType::get}.integer(request).text(key, max_key_size).integer(timeout_ms).done();
}

Get Get::decode(std::span<std::uint8_t const> payload) {
    Reader reader{payload};
    auto const request = reader.integer<std::uint64_t>();
    auto key = reader.text(max_key_size);
    auto const timeout_ms = reader.integer<std::uint32_t>();
    reader.end();
    return Get{request, std::move(key), timeout_ms};
}

Bytes Gather::encode() const {
    return Writer{MessageType::gather}.integer(request).blob(value).integer(timeout_ms).done();
}

Gather Gather::decode(std::span<std::uint8_t const> payload) {
    Reader reader{payload};
    auto const request = reader.integer<std::uint64_t>();
    auto value = reader.blob(max_value_size);
    auto const timeout_ms = reader.integer<std::uint32_t>();
    reader.end();
    return Gather{request, std::move(value), timeout_ms};
}

Bytes Reply::encode() const {
    Writer writer{MessageType::reply};
    writer.integer(request).integer(static_cast<std::uint8_t>(status)).text(error, max_reason_size);
    writer.integer(static_cast<std::uint32_t>(values.size()));
    for (auto const& value : values) {
        writer.blob(value);
    }
    return writer.done();
}

Reply Reply::decode(std::span<std::uint8_t const> payload) {
    Reader reader{payload};
    auto const request = reader.integer<std::uint64_t>();
    auto const status = reader.integer<std::uint8_t>();
    RAPIDSMPF_EXPECTS(status <= static_cast<std::uint8_t>(Status::impossible), "unknown status", FormatError);
    auto error = reader.text(max_reason_size);
    auto const count = reader.integer<std::uint32_t>();
    std::vector<Bytes> values;
    for (std::uint32_t i = 0; i < count; ++i) {
        values.push_back(reader.blob(max_value_size));
    }
    reader.end();
    if (static_cast<Status>(status) == Status::ok) {
        return Reply{request, std::move(values)};
    }
    return Reply{request, static_cast<Status>(status), std::move(error)};
}

Bytes Bye::encode() {
    return Writer{MessageType::bye}.done();
}

void Bye::decode(std::span<std::uint8_t const> payload) {
    Reader{payload}.end();
}

Bytes Ping::encode() {
    return Writer{MessageType::ping}.done();
}

void Ping::decode(std::span<std::uint8_t const> payload) {
    Reader{payload}.end();
}

Bytes Pong::encode() {
    return Writer{MessageType::pong}.done();
}

void Pong::decode(std::span<std::uint8_t const> payload) {
    Reader{payload}.end();
}

Bytes Abort::encode() const {
    return Writer{MessageType::abort}.integer(culprit).text(reason, max_reason_size).done();
}

Abort Abort::decode(std::span<std::uint8_t const> payload) {
    Reader reader{payload};
    auto const culprit = reader.integer<std::int32_t>();
    Abort abort{reader.text(max_reason_size), culprit};
    reader.end();
    return abort;
}

Bytes Failure::encode() const {
    return Writer{MessageType::failure}
        .integer(rank)
        .text(host, max_host_size)
        .integer(pid)
        .text(reason, max_reason_size)
        .done();
}

Failure Failure::decode(std::span<std::uint8_t const> payload) {
    Reader reader{payload};
    auto const rank = reader.integer<std::int32_t>();
    auto host = reader.text(max_host_size);
    auto const pid = reader.integer<std::int64_t>();
    auto reason = reader.text(max_reason_size);
    reader.end();
    return Failure{rank, std::move(host), pid, std::move(reason)};
}

Bytes Left::encode() const {
    return Writer{MessageType::left}.integer(rank).done();
}

Left Left::decode(std::span<std::uint8_t const> payload) {
    Reader reader{payload};
    Left const left{reader.integer<std::int32_t>()};
    reader.end();
    return left;
}

void FrameBuffer::append(std::span<std::uint8_t const> bytes) {
    // What was taken out is dropped in one move, not per frame.
    if (consumed_ > 0 && consumed_ >= bytes_.size() / 2) {
        bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(consumed_));
        consumed_ = 0;
    }
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::optional<Frame> FrameBuffer::next() {
    auto const waiting = std::span{bytes_}.subspan(consumed_);
    if (waiting.size() < size_bytes) {
        return std::nullopt;
    }
    std::size_t const size = Reader{waiting}.integer<std::uint32_t>();
    RAPIDSMPF_EXPECTS(size > 0, "coordinator frame without a type", FormatError);
    RAPIDSMPF_EXPECTS(
        size <= max_size_, "coordinator frame of " + std::to_string(size) + " bytes is too large",
        FormatError);
    if (waiting.size() < size_bytes + size) {
        return std::nullopt;
    }
    auto const body = waiting.subspan(size_bytes, size);
    consumed_ += size_bytes + size;
    return Frame{static_cast<MessageType>(body[0]), Bytes(body.begin() + 1, body.end())};
}

std::string list_ranks(std::vector<std::int32_t> const& ranks) {
    constexpr std::size_t most = 10;
    std::string text{ranks.size() == 1 ? "rank " : "ranks "};
    auto const shown = ranks.size() > most ? most : ranks.size();
    for (std::size_t i = 0; i < shown; ++i) {
        if (i > 0) {
            text += i + 1 == ranks.size() ? " and " : ", ";
        }
        text += std::to_string(ranks[i]);
    }
    if (ranks.size() > most) {
        text += " and " + std::to_string(ranks.size() - most) + " more";
    }
    return text;
}

}  // namespace rapidsmpf::bootstrap
