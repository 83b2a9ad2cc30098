#include "exchange/message_transport.hpp"

#include <algorithm>
#include <utility>

#include <rapidsmpf/core/statistic_names.hpp>

#include "exchange/transfer.hpp"

namespace rapidsmpf::exchange {

namespace {

using Requests = std::vector<std::unique_ptr<Communicator::Request>>;

bool all_done(Requests& requests) {
    std::erase_if(requests, [](auto const& request) { return request->test(); });
    return requests.empty();
}

class MessageReceiveTransfer final : public ReceiveTransfer {
  public:
    MessageReceiveTransfer(
        Communicator& comm, Transport::PeerRoute const& route, AnnouncedFrame announced,
        MemoryReservation memory)
        : announced_{std::move(announced)}, br_{route.br}, memory_{std::move(memory)} {
        auto& pieces = announced_.pieces;
        auto const small = std::count_if(
            pieces.begin(), pieces.end(), [&](auto const& piece) { return announced_.is_small(piece); });
        std::size_t gathered = 0;
        direct_.resize(pieces.size());
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            std::size_t const size = pieces[i].header.data_size;
            if (announced_.is_small(pieces[i]) && small > 1) {
                gathered += size;
            } else if (size > 0) {
                direct_[i] = std::make_shared<PackedData>(
                    std::move(pieces[i].metadata), allocate_for_transport(*br_, size, memory_));
            }
        }
        auto const receive = [&](std::shared_ptr<Buffer> const& buffer) {
            for_each_part(buffer->size(), announced_.split_bytes, [&](std::size_t offset, std::size_t size) {
                requests_.push_back(comm.recv(buffer, offset, size, route.peer, route.tag));
                ++messages_;
            });
        };
        // In the order in which the peer sends them (MessageSendTransfer): the small ones, then each large one.
        if (gathered > 0) {
            gathered_ = allocate_for_transport(*br_, gathered, memory_);
            receive(gathered_);
        }
        for (bool const small_ones : {true, false}) {
            for (std::size_t i = 0; i < pieces.size(); ++i) {
                if (direct_[i] && announced_.is_small(pieces[i]) == small_ones) {
                    receive({direct_[i], direct_[i]->data.get()});
                }
            }
        }
    }

    [[nodiscard]] std::uint64_t messages() const noexcept override { return messages_; }
    [[nodiscard]] bool poll() override { return all_done(requests_); }

    void deliver(Received const& received) override {
        std::size_t offset = 0;
        for (std::size_t i = 0; i < announced_.pieces.size(); ++i) {
            auto& piece = announced_.pieces[i];
            if (direct_[i]) {
                received(piece.header, std::move(*direct_[i]));
                continue;
            }
            std::size_t const size = piece.header.data_size;
            auto buffer = br_->allocate(size, memory_);
            if (size > 0) {
                buffer->write([&](std::byte* to, Stream stream) {
                    br_->device().copy(to, gathered_->data() + offset, size, stream);
                });
                offset += size;
            }
            received(piece.header, PackedData{std::move(piece.metadata), std::move(buffer)});
        }
    }

  private:
    AnnouncedFrame announced_;
    std::shared_ptr<BufferResource> br_;
    std::shared_ptr<Buffer> gathered_;                 // of the small pieces, if more than one has data
    std::vector<std::shared_ptr<PackedData>> direct_;  // by piece; null: in gathered_, or no data
    MemoryReservation memory_;                         // for what is copied out of gathered_
    Requests requests_;
    std::uint64_t messages_{0};
};

class MessageSendTransfer final : public SendTransfer {
  public:
    MessageSendTransfer(
        Communicator& comm, Transport::PeerRoute const& route, Pieces pieces, Settings const& settings)
        : comm_{comm},
          peer_{route.peer},
          tag_{route.tag},
          statistics_{route.br->statistics()},
          pieces_{std::move(pieces)},
          gather_limit_{settings.gather_limit},
          split_bytes_{settings.split_bytes} {
        std::size_t total = 0;
        std::size_t gathered = 0;
        auto near = Near::host;
        for (auto const& piece : pieces_) {
            if (is_gathered(*piece) && piece->size() > 0) {
                total += piece->size();
                ++gathered;
                near = piece->is_host_accessible() ? near : Near::device;
            }
        }
        if (gathered < 2) {
            return;
        }
        gathered_ = allocate_anywhere(*route.br, total, near);
        gathered_->write([&](std::byte* bytes, Stream stream) {
            for (auto const& piece : pieces_) {
                auto const size = piece->size();
                if (is_gathered(*piece) && size > 0) {
                    route.br->device().copy(bytes, piece->data(), size, stream);
                    bytes += size;
                }
            }
        });
    }

    [[nodiscard]] bool start() override {
        if (gathered_ && !gathered_->is_ready()) {
            return false;
        }
        if (gathered_) {
            send(gathered_);
        }
        // Without a gathered buffer there is at most one small piece, and it goes first.
        for (bool const small_ones : {true, false}) {
            for (auto const& piece : pieces_) {
                bool const is_small = is_gathered(*piece);
                if (is_small == small_ones && !(is_small && gathered_)) {
                    send(piece);
                }
            }
        }
        return true;
    }
    [[nodiscard]] bool poll() override { return all_done(requests_); }
    [[nodiscard]] std::uint64_t messages() const noexcept override { return messages_; }

  private:
    [[nodiscard]] bool is_gathered(Buffer const& piece) const noexcept {
        return piece.size() <= gather_limit_;
    }
    void send(std::shared_ptr<Buffer const> const& buffer) {
        for_each_part(buffer->size(), split_bytes_, [&](std::size_t offset, std::size_t size) {
            requests_.push_back(comm_.send(buffer, offset, size, peer_, tag_));
            ++messages_;
        });
        statistics_->add(statistic::id("exchange-message-bytes"), static_cast<double>(buffer->size()));
    }

    Communicator& comm_;
    Rank peer_;
    Tag tag_;
    std::shared_ptr<Statistics> statistics_;
    Pieces pieces_;
    std::size_t gather_limit_;
    std::size_t split_bytes_;
    std::shared_ptr<Buffer> gathered_;
    Requests requests_;
    std::uint64_t messages_{0};
};

}  // namespace

std::unique_ptr<ReceiveTransfer> MessageTransport::grant(
    PeerRoute const& route, AnnouncedFrame& frame, MemoryReservation& memory) {
    return std::make_unique<MessageReceiveTransfer>(comm_, route, std::move(frame), std::move(memory));
}

std::unique_ptr<SendTransfer> MessageTransport::write(
    PeerRoute const& route, SendTransfer::Pieces pieces, std::vector<RemoteAddress> /*addresses*/,
    Settings const& settings) {
    return std::make_unique<MessageSendTransfer>(comm_, route, std::move(pieces), settings);
}

}  // namespace rapidsmpf::exchange
