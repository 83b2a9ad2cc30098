#include <rapidsmpf/exchange/outbox.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/transfer.hpp>

namespace rapidsmpf::exchange {

namespace {

PieceHeader header_of(Outbox::Piece const& piece) {
    return PieceHeader{piece.partition, piece.sequence, piece.payload->metadata.size(), piece.payload->size};
}

}  // namespace

Outbox::Outbox(Rank peer, Settings const& settings)
    : peer_{peer}, settings_{settings}, credit_{settings.eager_bytes} {}

bool Outbox::compose(MessageWriter& writer, Sent const& sent) {
    if (!counts_.empty()) {
        writer.counts(counts_);
        counts_.clear();
    }
    compose_eager(writer, sent);
    return compose_frames(writer);
}

void Outbox::compose_eager(MessageWriter& writer, Sent const& sent) {
    std::vector<PieceHeader> headers;
    std::vector<Piece> pieces;
    while (!waiting_.empty()) {
        auto const& piece = waiting_.front();
        auto const& payload = *piece.payload;
        auto const header = header_of(piece);
        auto const cost = header.listing_bytes() + header.data_size;
        if (!is_gathered(piece) || cost > credit_ || payload.moving || !payload.data->is_host_accessible()
            || !payload.data->is_ready()) {
            break;
        }
        credit_ -= cost;
        headers.push_back(header);
        pieces.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
    }
    if (pieces.empty()) {
        return;
    }
    writer.eager(headers);
    for (auto const& piece : pieces) {
        writer.append(piece.payload->metadata);
    }
    for (auto const& piece : pieces) {
        auto const bytes = piece.payload->data->host_bytes();
        writer.append({reinterpret_cast<std::uint8_t const*>(bytes.data()), bytes.size()});
        sent(piece.payload);
    }
}

bool Outbox::compose_frames(MessageWriter& writer) {
    // The bytes of a piece are read only once it is granted, so `moving` does not matter here; but a piece
    // whose first write is not done would stop all frames behind it.
    while (!waiting_.empty()
           && (announced_.empty() || announced_bytes_ + settings_.frame_bytes <= settings_.announce_bytes)) {
        Frame frame;
        std::vector<PieceHeader> headers;
        while (!waiting_.empty() && frame.bytes < settings_.frame_bytes) {
            auto const& piece = waiting_.front();
            auto const header = header_of(piece);
            auto const cost = header.listing_bytes() + header.data_size;
            bool const fits = frame.pieces.empty() || frame.bytes + cost <= settings_.frame_bytes;
            if (!fits || (!piece.payload->moving && !piece.payload->data->is_ready())) {
                break;
            }
            frame.bytes += cost;
            headers.push_back(header);
            frame.pieces.push_back(std::move(waiting_.front()));
            waiting_.pop_front();
        }
        if (frame.pieces.empty()) {
            return true;
        }
        writer.frame(headers, settings_.gather_limit, settings_.split_bytes);
        for (auto const& piece : frame.pieces) {
            writer.append(piece.payload->metadata);
        }
        announced_bytes_ += frame.bytes;
        announced_.push_back(std::move(frame));
    }
    return false;
}

void Outbox::on_credit(std::uint64_t bytes) {
    RAPIDSMPF_EXPECTS(
        bytes <= settings_.eager_bytes - credit_, "it gave back more credit than it had", FormatError);
    credit_ += bytes;
}

void Outbox::on_grants(std::uint32_t frames) {
    RAPIDSMPF_EXPECTS(frames <= announced_.size(), "it granted more frames than were announced", FormatError);
    for (std::uint32_t i = 0; i < frames; ++i) {
        announced_bytes_ -= announced_.front().bytes;
        granted_.push_back(std::move(announced_.front()));
        announced_.pop_front();
    }
}

bool Outbox::prepare(Frame& frame, BufferResource& br) const {
    if (!frame.prepared) {
        auto const busy = [](Piece const& piece) { return piece.payload->moving; };
        if (std::any_of(frame.pieces.begin(), frame.pieces.end(), busy)) {
            return false;  // a spill is copying one of them; it says when it is done
        }
        std::size_t total = 0;
        std::size_t gathered = 0;
        for (auto const& piece : frame.pieces) {
            ++piece.payload->pins;
            if (is_gathered(piece) && piece.payload->size > 0) {
                total += piece.payload->size;
                ++gathered;
            }
        }
        frame.prepared = true;
        if (gathered > 1) {
            frame.gathered = allocate_anywhere(br, total);
            frame.gathered->write([&](std::byte* bytes, Stream stream) {
                for (auto const& piece : frame.pieces) {
                    auto const size = piece.payload->size;
                    if (is_gathered(piece) && size > 0) {
                        br.device().copy(bytes, piece.payload->data->data(), size, stream);
                        bytes += size;
                    }
                }
            });
        }
    }
    return (!frame.gathered || frame.gathered->is_ready())
           && std::all_of(frame.pieces.begin(), frame.pieces.end(), [](Piece const& piece) {
                  return piece.payload->data->is_ready();
              });
}

void Outbox::post(Frame& frame, Communicator& comm, Tag tag) {
    auto const send = [&](std::shared_ptr<Buffer const> const& buffer) {
        for_each_part(buffer->size(), settings_.split_bytes, [&](std::size_t offset, std::size_t size) {
            frame.requests.push_back(comm.send(buffer, offset, size, peer_, tag));
            ++payload_messages_;
        });
    };
    if (frame.gathered) {
        send(frame.gathered);
    }
    // Without a gathered buffer there is at most one small piece, and it goes first.
    for (auto const& piece : frame.pieces) {
        if (!frame.gathered && is_gathered(piece)) {
            send(shared_data(piece.payload));
        }
    }
    for (auto const& piece : frame.pieces) {
        if (!is_gathered(piece)) {
            send(shared_data(piece.payload));
        }
    }
}

bool Outbox::start(Communicator& comm, Tag tag, BufferResource& br) {
    bool started = false;
    // In the order of the grants: the peer has posted its receives in that order.
    while (!granted_.empty() && prepare(granted_.front(), br)) {
        post(granted_.front(), comm, tag);
        sending_.push_back(std::move(granted_.front()));
        granted_.pop_front();
        started = true;
    }
    return started;
}

bool Outbox::poll(Sent const& sent) {
    bool any = false;
    for (auto frame = sending_.begin(); frame != sending_.end();) {
        std::erase_if(frame->requests, [](auto const& request) { return request->test(); });
        if (!frame->requests.empty()) {
            ++frame;
            continue;
        }
        for (auto const& piece : frame->pieces) {
            --piece.payload->pins;
            sent(piece.payload);
        }
        frame = sending_.erase(frame);
        any = true;
    }
    return any;
}

std::size_t Outbox::backlog() const noexcept {
    std::size_t pieces = waiting_.size();
    for (auto const* frames : {&announced_, &granted_, &sending_}) {
        for (auto const& frame : *frames) {
            pieces += frame.pieces.size();
        }
    }
    return pieces;
}

void Outbox::clear() {
    waiting_.clear();
    counts_.clear();
    announced_.clear();
    granted_.clear();
    announced_bytes_ = 0;
}

void Outbox::for_each_waiting(std::function<void(std::shared_ptr<Payload> const&)> const& visit) const {
    for (auto const& piece : waiting_) {
        visit(piece.payload);
    }
    for (auto const& frame : announced_) {
        for (auto const& piece : frame.pieces) {
            visit(piece.payload);
        }
    }
}

}  // namespace rapidsmpf::exchange
