#include "exchange/outbox.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <rapidsmpf/core/error.hpp>

#include "exchange/ended_frames.hpp"

namespace rapidsmpf::exchange {

namespace {

PieceHeader header_of(OutgoingPiece const& piece) {
    return PieceHeader{piece.id, piece.payload->metadata.size(), piece.payload->size};
}

}  // namespace

Outbox::Outbox(Settings const& settings) : settings_{settings}, credit_{settings.eager_bytes} {}

bool Outbox::compose(MessageWriter& writer, Sent const& sent) {
    if (!counts_.empty()) {
        writer.counts(counts_);
        counts_.clear();
    }
    compose_eager(writer, sent);
    return compose_frames(writer);
}

OutgoingPiece Outbox::pop_waiting() {
    auto piece = std::move(waiting_.front());
    waiting_.pop_front();
    return piece;
}

void Outbox::compose_eager(MessageWriter& writer, Sent const& sent) {
    std::vector<PieceHeader> headers;
    std::vector<OutgoingPiece> pieces;
    std::vector<std::shared_ptr<Buffer const>> pins;
    while (!waiting_.empty()) {
        auto const& piece = waiting_.front();
        auto const header = header_of(piece);
        auto const cost = header.listing_bytes() + header.data_size;
        if (!is_gathered(piece) || cost > credit_) {
            break;
        }
        auto data = piece.payload->data.try_pin();
        if (!data || !data->is_host_accessible() || !data->is_ready()) {
            break;
        }
        credit_ -= cost;
        headers.push_back(header);
        pins.push_back(std::move(data));
        pieces.push_back(pop_waiting());
    }
    if (pieces.empty()) {
        return;
    }
    writer.eager(headers);
    for (auto const& piece : pieces) {
        writer.append(piece.payload->metadata);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        auto const bytes = pins[i]->host_bytes();
        writer.append({reinterpret_cast<std::uint8_t const*>(bytes.data()), bytes.size()});
        pins[i].reset();
        discount(pieces[i]);
        sent(pieces[i].payload);
    }
}

bool Outbox::compose_frames(MessageWriter& writer) {
    // The bytes of a piece are read only once it is granted, so it does not matter where they are now; but a
    // piece whose first write is not done would stop all frames behind it.
    auto const is_written = [](OutgoingPiece const& piece) {
        auto& first = piece.payload->first_write;
        if (first && first->is_done()) {
            first.reset();
        }
        return first == nullptr;
    };
    while (!waiting_.empty()
           && (announced_.empty() || announced_bytes_ + settings_.frame_bytes <= settings_.announce_bytes)) {
        Frame frame;
        std::vector<PieceHeader> headers;
        while (!waiting_.empty() && frame.bytes < settings_.frame_bytes) {
            auto const& piece = waiting_.front();
            auto const header = header_of(piece);
            auto const cost = header.listing_bytes() + header.data_size;
            bool const fits = frame.pieces.empty() || frame.bytes + cost <= settings_.frame_bytes;
            if (!fits || !is_written(piece)) {
                break;
            }
            frame.bytes += cost;
            headers.push_back(header);
            frame.pieces.push_back(pop_waiting());
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

void Outbox::on_grant(Grant const& grant) {
    RAPIDSMPF_EXPECTS(
        grant.frames <= announced_.size(), "it granted more frames than were announced", FormatError);
    std::vector<SpillableBuffer*> wanted;
    for (std::uint32_t i = 0; i < grant.frames; ++i) {
        announced_bytes_ -= announced_.front().bytes;
        for (auto const& piece : announced_.front().pieces) {
            wanted.push_back(&piece.payload->data);
        }
        announced_.front().addresses = grant.addresses;
        granted_.push_back(std::move(announced_.front()));
        announced_.pop_front();
    }
    SpillableBuffer::fetch_all(wanted);  // what lies on disk will be needed in this order
}

bool Outbox::prepare(Frame& frame) {
    // Pins what is in memory and has the rest read back; the operation hears when that is done.
    frame.pins.resize(frame.pieces.size());
    std::vector<SpillableBuffer*> missing;
    for (std::size_t i = 0; i < frame.pieces.size(); ++i) {
        if (!frame.pins[i]) {
            auto& data = frame.pieces[i].payload->data;
            frame.pins[i] = data.try_pin();
            if (!frame.pins[i]) {
                missing.push_back(&data);
            }
        }
    }
    SpillableBuffer::fetch_all(missing);
    return missing.empty() && std::all_of(frame.pins.begin(), frame.pins.end(), [](auto const& data) {
               return data->is_ready();
           });
}

bool Outbox::start(TransportSelector& transports, Transport::PeerRoute const& route) {
    bool started = false;
    // In the order of the grants: the peer has posted its receives in that order.
    while (!granted_.empty()) {
        auto& frame = granted_.front();
        if (!frame.send_transfer) {
            if (!prepare(frame)) {
                break;
            }
            frame.send_transfer =
                transports.outgoing(frame.addresses)
                    .write(route, std::move(frame.pins), std::move(frame.addresses), settings_);
        }
        if (!frame.send_transfer->start()) {
            break;
        }
        payload_messages_ += frame.send_transfer->messages();
        in_transfer_.push_back(std::move(frame));
        granted_.pop_front();
        started = true;
    }
    return started;
}

bool Outbox::poll(Sent const& sent) {
    return detail::take_ended(in_transfer_, [&](Frame& frame) {
        written_ += frame.send_transfer->needs_notice() ? 1 : 0;
        for (auto const& piece : frame.pieces) {
            discount(piece);
            sent(piece.payload);
        }
        // Before they are unpinned: the spill list does not take a buffer again that has no other owner.
        frame.pieces.clear();
        frame.send_transfer.reset();
    });
}

void Outbox::stop_writing() {
    std::erase_if(in_transfer_, [](Frame const& frame) { return frame.send_transfer->needs_notice(); });
    recount();
}

void Outbox::discount(OutgoingPiece const& piece) {
    backlog_ -= piece.id.chunks();
}

void Outbox::recount() {
    backlog_ = 0;
    for (auto const& frame : in_transfer_) {
        for (auto const& piece : frame.pieces) {
            backlog_ += piece.id.chunks();
        }
    }
}

void Outbox::clear() {
    waiting_.clear();
    counts_.clear();
    announced_.clear();
    granted_.clear();
    announced_bytes_ = 0;
    recount();
}

void Outbox::drop(Sent const& sent) {
    auto const waiting = std::exchange(waiting_, {});
    auto const announced = std::exchange(announced_, {});
    auto const granted = std::exchange(granted_, {});
    clear();
    for (auto const& piece : waiting) {
        sent(piece.payload);
    }
    for (auto const* frames : {&announced, &granted}) {
        for (auto const& frame : *frames) {
            for (auto const& piece : frame.pieces) {
                sent(piece.payload);
            }
        }
    }
}

}  // namespace rapidsmpf::exchange
