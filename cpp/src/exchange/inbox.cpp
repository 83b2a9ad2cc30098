#include "exchange/inbox.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <rapidsmpf/core/error.hpp>

#include "exchange/transfer.hpp"

namespace rapidsmpf::exchange {

void Inbox::take_eager(PieceList const& list, BufferResource& br, Received const& received) {
    auto metadata = list.metadata;
    auto data = list.data;
    for (auto const& header : list.pieces) {
        auto const own = metadata.first(header.metadata_size);
        auto const bytes = data.first(header.data_size);
        metadata = metadata.subspan(header.metadata_size);
        data = data.subspan(header.data_size);
        // It came in a message of the host's, and mostly goes back there: a number that is summed up, a few rows.
        auto buffer = allocate_anywhere(br, header.data_size, Near::host);
        if (bytes.empty()) {
            // Nothing to copy.
        } else if (buffer->is_host_accessible()) {
            std::memcpy(buffer->mutable_host_bytes().data(), bytes.data(), bytes.size());
        } else {
            buffer->write([&](std::byte* to, Stream stream) {
                br.device().copy(to, bytes.data(), bytes.size(), stream);
            });
        }
        received(header, PackedData{std::vector<std::uint8_t>(own.begin(), own.end()), std::move(buffer)});
        credit_ += header.listing_bytes() + header.data_size;
    }
}

void Inbox::grant(
    AnnouncedFrame announced, TransportSelector& transports, Transport::PeerRoute const& route,
    MemoryReservation memory) {
    auto receive_transfer = transports.incoming(peer_)->grant(route, announced, memory);
    if (!receive_transfer) {
        receive_transfer = transports.messages().grant(route, announced, memory);
    }
    auto const addresses = receive_transfer->addresses();
    if (!addresses.empty()) {
        grants_.push_back(Grant{1, {addresses.begin(), addresses.end()}});
    } else if (!grants_.empty() && grants_.back().addresses.empty()) {
        ++grants_.back().frames;
    } else {
        grants_.push_back(Grant{1, {}});
    }
    receiving_.emplace_back(std::move(receive_transfer), payload_messages_);
    payload_messages_ += receiving_.back().receive_transfer->messages();
}

void Inbox::on_written(std::uint32_t frames) {
    for (auto& frame : receiving_) {
        if (frames > 0 && frame.is_unwritten()) {
            frame.receive_transfer->set_written();
            frame.written = true;
            --frames;
        }
    }
    RAPIDSMPF_EXPECTS(frames == 0, "it wrote more frames than it was given addresses for", FormatError);
}

bool Inbox::poll(Received const& received) {
    bool any = false;
    for (auto frame = receiving_.begin(); frame != receiving_.end();) {
        if (!frame->receive_transfer->poll()) {
            ++frame;
            continue;
        }
        if (!discard_) {
            frame->receive_transfer->deliver(received);
        }
        frame = receiving_.erase(frame);
        any = true;
    }
    return any;
}

bool Inbox::has_to_look() const noexcept {
    return std::any_of(
        receiving_.begin(), receiving_.end(), [](Frame const& frame) { return !frame.is_unwritten(); });
}

void Inbox::drop_unwritten() {
    std::erase_if(receiving_, [](Frame const& frame) { return frame.is_unwritten(); });
}

void Inbox::on_final(Final const& final) {
    RAPIDSMPF_EXPECTS(!final_, "two last messages in one operation", FormatError);
    bool const fits = final.kind == FinalKind::finished ? final.payload_messages == payload_messages_
                                                        : final.payload_messages <= payload_messages_;
    RAPIDSMPF_EXPECTS(
        fits,
        "it says that it sent " + std::to_string(final.payload_messages) + " payload messages where "
            + std::to_string(payload_messages_) + " were granted",
        FormatError);
    for (auto& frame : receiving_) {
        if (frame.is_unwritten()) {
            RAPIDSMPF_EXPECTS(
                final.kind != FinalKind::finished,
                "it did not write all frames that it was given addresses for", FormatError);
            frame.receive_transfer->set_abandoned();
        }
    }
    drop_unwritten();
    final_ = final;
    cancel_unmatched();
}

void Inbox::discard() {
    discard_ = true;
    grants_.clear();
    credit_ = 0;
    cancel_unmatched();
}

void Inbox::cancel_unmatched() {
    if (!final_) {
        return;
    }
    // Frames are granted and sent in one order, so what was never sent is at the end.
    while (!receiving_.empty()
           && receiving_.back().first_message + receiving_.back().receive_transfer->messages()
                  > final_->payload_messages) {
        receiving_.pop_back();
    }
}

}  // namespace rapidsmpf::exchange
