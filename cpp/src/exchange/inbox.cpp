#include <rapidsmpf/exchange/inbox.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/exchange/transfer.hpp>

namespace rapidsmpf::exchange {

namespace {

// A frame cut into more messages than this is nonsense.
constexpr std::uint64_t most_messages = std::uint64_t{1} << 20U;

std::uint64_t data_bytes(PieceList const& list) {
    std::uint64_t bytes = 0;
    for (auto const& piece : list.pieces) {
        bytes += piece.data_size;
    }
    RAPIDSMPF_EXPECTS(
        bytes / list.split_bytes < most_messages,
        "a frame of " + std::to_string(bytes) + " bytes in messages of " + std::to_string(list.split_bytes)
            + " bytes",
        FormatError);
    return bytes;
}

}  // namespace

AnnouncedFrame::AnnouncedFrame(PieceList const& list, ReceiveBudget& budget)
    : gather_limit{list.gather_limit},
      split_bytes{static_cast<std::size_t>(
          std::min<std::uint64_t>(list.split_bytes, std::numeric_limits<std::size_t>::max()))},
      ticket{budget.draw(data_bytes(list))} {
    pieces.reserve(list.pieces.size());
    auto metadata = list.metadata;
    for (auto const& header : list.pieces) {
        auto const own = metadata.first(header.metadata_size);
        metadata = metadata.subspan(header.metadata_size);
        pieces.emplace_back(header, std::vector<std::uint8_t>(own.begin(), own.end()));
    }
}

std::size_t AnnouncedFrame::memory_needed() const {
    std::size_t all = 0;
    std::size_t small = 0;
    std::size_t count = 0;
    for (auto const& piece : pieces) {
        all += piece.header.data_size;
        if (is_small(piece)) {
            small += piece.header.data_size;
            ++count;
        }
    }
    return count > 1 ? all + small : all;
}

void Inbox::take_eager(PieceList const& list, BufferResource& br, Received const& received) {
    auto metadata = list.metadata;
    auto data = list.data;
    for (auto const& header : list.pieces) {
        auto const own = metadata.first(header.metadata_size);
        auto const bytes = data.first(header.data_size);
        metadata = metadata.subspan(header.metadata_size);
        data = data.subspan(header.data_size);
        auto buffer = allocate_anywhere(br, header.data_size);
        if (!bytes.empty()) {
            buffer->write([&](std::byte* to, Stream stream) {
                br.device().copy(to, bytes.data(), bytes.size(), stream);
            });
        }
        received(header, PackedData{std::vector<std::uint8_t>(own.begin(), own.end()), std::move(buffer)});
        credit_ += header.listing_bytes() + header.data_size;
    }
}

void Inbox::grant(
    AnnouncedFrame announced, Communicator& comm, Tag tag, BufferResource& br, MemoryReservation memory) {
    Frame frame{std::move(announced), std::move(memory)};
    frame.first_message = payload_messages_;
    auto const& pieces = frame.announced.pieces;
    auto const is_small = [&](AnnouncedFrame::Piece const& piece) { return frame.announced.is_small(piece); };
    auto const small = std::count_if(pieces.begin(), pieces.end(), is_small);
    std::size_t gathered = 0;
    frame.direct.resize(pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        std::size_t const size = pieces[i].header.data_size;
        if (is_small(pieces[i]) && small > 1) {
            gathered += size;
        } else if (size > 0) {
            frame.direct[i] = std::make_shared<PackedData>(
                std::move(frame.announced.pieces[i].metadata),
                allocate_for_transport(br, size, frame.memory));
        }
    }
    auto const receive = [&](std::shared_ptr<Buffer> const& buffer) {
        for_each_part(buffer->size(), frame.announced.split_bytes, [&](std::size_t offset, std::size_t size) {
            frame.requests.push_back(comm.recv(buffer, offset, size, peer_, tag));
            ++payload_messages_;
        });
    };
    // In the order in which the peer sends them (Outbox::post): the small ones, then each large one.
    if (gathered > 0) {
        frame.gathered = allocate_for_transport(br, gathered, frame.memory);
        receive(frame.gathered);
    }
    for (bool const small_ones : {true, false}) {
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            if (frame.direct[i] && is_small(pieces[i]) == small_ones) {
                receive({frame.direct[i], frame.direct[i]->data.get()});
            }
        }
    }
    frame.messages = payload_messages_ - frame.first_message;
    receiving_.push_back(std::move(frame));
    ++grants_;
}

void Inbox::deliver(Frame& frame, BufferResource& br, Received const& received) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < frame.announced.pieces.size(); ++i) {
        auto& piece = frame.announced.pieces[i];
        if (frame.direct[i]) {
            received(piece.header, std::move(*frame.direct[i]));
            continue;
        }
        std::size_t const size = piece.header.data_size;
        auto buffer = br.allocate(size, frame.memory);
        if (size > 0) {
            buffer->write([&](std::byte* to, Stream stream) {
                br.device().copy(to, frame.gathered->data() + offset, size, stream);
            });
            offset += size;
        }
        received(piece.header, PackedData{std::move(piece.metadata), std::move(buffer)});
    }
}

bool Inbox::poll(BufferResource& br, Received const& received) {
    bool any = false;
    for (auto frame = receiving_.begin(); frame != receiving_.end();) {
        std::erase_if(frame->requests, [](auto const& request) { return request->test(); });
        if (!frame->requests.empty()) {
            ++frame;
            continue;
        }
        if (!discard_) {
            deliver(*frame, br, received);
        }
        frame = receiving_.erase(frame);
        any = true;
    }
    return any;
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
    final_ = final;
    cancel_unmatched();
}

void Inbox::discard() {
    discard_ = true;
    grants_ = 0;
    credit_ = 0;
    cancel_unmatched();
}

void Inbox::cancel_unmatched() {
    if (!final_) {
        return;
    }
    // Frames are granted and sent in one order, so what was never sent is at the end.
    while (!receiving_.empty()
           && receiving_.back().first_message + receiving_.back().messages > final_->payload_messages) {
        receiving_.pop_back();
    }
}

}  // namespace rapidsmpf::exchange
