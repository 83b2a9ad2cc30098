#include <rapidsmpf/bootstrap/detail/node_protocol.hpp>

#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/error.hpp>

#include "bootstrap/frame_writer.hpp"

namespace rapidsmpf::bootstrap {

namespace {

// Decodes one field by `read` and lets nothing follow it.
template <typename Read>
auto whole(std::span<std::uint8_t const> payload, Read const& read) {
    ByteReader reader{payload};
    auto message = read(reader);
    reader.end();
    return message;
}

}  // namespace

Bytes Begin::encode() const {
    return FrameWriter{MessageType::begin}.integer(first_rank).integer(nranks).done();
}

Begin Begin::decode(std::span<std::uint8_t const> payload) {
    return whole(payload, [](ByteReader& reader) {
        auto const first = reader.integer<std::int32_t>();
        auto const nranks = reader.integer<std::int32_t>();
        RAPIDSMPF_EXPECTS(first >= 0 && nranks > first, "no such ranks", FormatError);
        return Begin{first, nranks};
    });
}

Bytes PassSignal::encode() const {
    return FrameWriter{MessageType::pass_signal}.integer(signal).done();
}

PassSignal PassSignal::decode(std::span<std::uint8_t const> payload) {
    return whole(payload, [](ByteReader& reader) { return PassSignal{reader.integer<std::int32_t>()}; });
}

Bytes Stop::encode() const {
    return FrameWriter{MessageType::stop}.integer(static_cast<std::uint32_t>(grace.count())).done();
}

Stop Stop::decode(std::span<std::uint8_t const> payload) {
    return whole(payload, [](ByteReader& reader) {
        return Stop{std::chrono::milliseconds{reader.integer<std::uint32_t>()}};
    });
}

Bytes Finish::encode() const {
    return FrameWriter{MessageType::finish}.integer(exit_code).done();
}

Finish Finish::decode(std::span<std::uint8_t const> payload) {
    return whole(payload, [](ByteReader& reader) { return Finish{reader.integer<std::int32_t>()}; });
}

Bytes RankEnded::encode() const {
    return FrameWriter{MessageType::rank_ended}
        .integer(rank)
        .integer(pid)
        .text(host, max_host_size)
        .integer(exit_code)
        .text(how, max_reason_size)
        .done();
}

RankEnded RankEnded::decode(std::span<std::uint8_t const> payload) {
    return whole(payload, [](ByteReader& reader) {
        auto const rank = reader.integer<std::int32_t>();
        auto const pid = reader.integer<std::int64_t>();
        auto host = reader.text(max_host_size);
        auto const exit_code = reader.integer<std::int32_t>();
        auto how = reader.text(max_reason_size);
        return RankEnded{rank, pid, std::move(host), exit_code, std::move(how)};
    });
}

Bytes NodeFailed::encode() const {
    return FrameWriter{MessageType::node_failed}.integer(exit_code).text(reason, max_reason_size).done();
}

NodeFailed NodeFailed::decode(std::span<std::uint8_t const> payload) {
    return whole(payload, [](ByteReader& reader) {
        auto const exit_code = reader.integer<std::int32_t>();
        return NodeFailed{exit_code, reader.text(max_reason_size)};
    });
}

}  // namespace rapidsmpf::bootstrap
