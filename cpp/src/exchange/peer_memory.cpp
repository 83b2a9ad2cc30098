#include "exchange/peer_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/statistic_names.hpp>
#include <rapidsmpf/device/detail/stream_copy.hpp>

#include "exchange/peer_writers.hpp"
#include "exchange/transfer.hpp"

namespace rapidsmpf::exchange {

namespace {
// What is copied at a time: long enough that a look at the transport in between costs nothing, short enough that
// what arrives meanwhile hardly waits.
constexpr std::size_t slice_bytes = std::size_t{1} << 20U;
}  // namespace

namespace detail {

// The pieces of one frame, on their way into a peer's memory.
class PeerWrite {
  public:
    PeerWrite(
        std::shared_ptr<device::SharedView> view, std::shared_ptr<Statistics> statistics,
        SendTransfer::Pieces pieces, std::vector<RemoteAddress> const& addresses)
        : view_{std::move(view)}, statistics_{std::move(statistics)}, pieces_{std::move(pieces)} {
        match_addresses(pieces_, addresses);
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            RAPIDSMPF_EXPECTS(
                addresses[i].region == 0 && view_->contains(addresses[i].offset, pieces_[i]->size()),
                "it gave an address outside of its memory", FormatError);
            to_.push_back(view_->at(addresses[i].offset));
        }
    }

    // Copies at most `budget` bytes; returns how many.
    std::size_t copy(std::size_t budget) {
        ScopedTimer const timer{*statistics_, statistic::id("exchange-peer-memory-time")};
        std::size_t copied = 0;
        while (piece_ < pieces_.size() && copied < budget) {
            auto const size = std::min(budget - copied, pieces_[piece_]->size() - offset_);
            device::stream_copy(to_[piece_] + offset_, pieces_[piece_]->data() + offset_, size);
            copied += size;
            offset_ += size;
            if (offset_ == pieces_[piece_]->size()) {
                ++piece_;
                offset_ = 0;
            }
        }
        if (piece_ == pieces_.size()) {
            // Before the message that says so.
#if !defined(__SANITIZE_THREAD__)  // knows no fences, and sees one process only
            std::atomic_thread_fence(std::memory_order_release);
#endif
            ended_ = true;
        }
        statistics_->add(statistic::id("exchange-peer-memory-bytes"), static_cast<double>(copied));
        return copied;
    }

    void stop() noexcept { ended_ = true; }
    [[nodiscard]] bool has_ended() const noexcept { return ended_; }

  private:
    std::shared_ptr<device::SharedView> view_;
    std::shared_ptr<Statistics> statistics_;
    SendTransfer::Pieces pieces_;
    std::vector<std::byte*> to_;
    std::size_t piece_{0};
    std::size_t offset_{0};
    std::atomic<bool> ended_{false};  // written, or stopped
};

}  // namespace detail

namespace {

using Blocks = std::vector<std::shared_ptr<device::SharedBlock>>;

// Where the pieces of a frame go; none when there is no address space left.
struct FrameBlocks {
    FrameBlocks(AnnouncedFrame const& frame, device::SharedMemory& memory) {
        std::size_t small_pieces = 0;
        for (auto const& piece : frame.pieces) {
            if (is_small(frame, piece)) {
                small_data += piece.header.data_size;
                small_bytes += padded(piece.header.data_size);
                ++small_pieces;
            }
        }
        bool const together = small_pieces > 1;
        std::uint64_t small_offset = 0;
        if (together) {
            small = memory.allocate(small_bytes);
            complete = small != nullptr;
            small_offset = small ? small->offset() : 0;
        }
        blocks.resize(frame.pieces.size());
        for (std::size_t i = 0; i < frame.pieces.size() && complete; ++i) {
            auto const size = static_cast<std::size_t>(frame.pieces[i].header.data_size);
            if (together && is_small(frame, frame.pieces[i])) {
                addresses.push_back(RemoteAddress{0, small_offset});
                small_offset += padded(size);
            } else if (size > 0) {
                blocks[i] = memory.allocate(size);
                complete = blocks[i] != nullptr;
                addresses.push_back(RemoteAddress{0, complete ? blocks[i]->offset() : 0});
            }
        }
    }

    // So that each of the pieces that land together can be read where it is.
    static std::size_t padded(std::size_t size) noexcept {
        constexpr std::size_t line = 64;
        return round_up(size, line);
    }
    static bool is_small(AnnouncedFrame const& frame, AnnouncedPiece const& piece) {
        return frame.is_small(piece) && piece.header.data_size < PeerMemory::small_piece;
    }

    bool complete{true};
    std::vector<RemoteAddress> addresses;
    std::size_t small_data{0};
    std::size_t small_bytes{0};                  // with padding
    std::shared_ptr<device::SharedBlock> small;  // of the small pieces, if there are several
    Blocks blocks;                               // by piece; null: in `small`, or no data
};

class PeerReceiveTransfer final : public detail::WrittenReceiveTransfer {
  public:
    PeerReceiveTransfer(
        device::SharedMemory& shared, std::shared_ptr<detail::Writer const> writer,
        std::shared_ptr<BufferResource> br, FrameBlocks frame_blocks, AnnouncedFrame frame,
        MemoryReservation memory)
        : WrittenReceiveTransfer{std::move(writer)},
          shared_{shared},
          br_{std::move(br)},
          frame_blocks_{std::move(frame_blocks)},
          frame_{std::move(frame)},
          memory_{std::move(memory)} {
        buffers_.resize(frame_blocks_.blocks.size());
        for (std::size_t i = 0; i < buffers_.size(); ++i) {
            if (frame_blocks_.blocks[i]) {
                buffers_[i] = take(frame_blocks_.blocks[i], frame_.pieces[i].header.data_size);
            }
        }
        if (frame_blocks_.small) {
            small_ = take(frame_blocks_.small, frame_blocks_.small_data);
        }
    }

    ~PeerReceiveTransfer() override {
        // A block that is out of use counts in no budget.
        buffers_.clear();
        small_.reset();
        for (auto& block : frame_blocks_.blocks) {
            release_or_quarantine(shared_, std::move(block));
        }
        release_or_quarantine(shared_, std::move(frame_blocks_.small));
    }

    [[nodiscard]] std::span<RemoteAddress const> addresses() const noexcept override {
        return frame_blocks_.addresses;
    }

    void deliver(Received const& received) override {
        std::size_t offset = 0;
        bool const stays = small_ && has_plenty();
        small_.reset();
        for (std::size_t i = 0; i < frame_.pieces.size(); ++i) {
            auto& piece = frame_.pieces[i];
            auto buffer = std::move(buffers_[i]);
            frame_blocks_.blocks[i].reset();
            if (!buffer) {
                std::size_t const size = piece.header.data_size;
                buffer = stays && size > 0 ? take(frame_blocks_.small, size, offset) : copy_out(size, offset);
                offset += FrameBlocks::padded(size);
            }
            received(piece.header, PackedData{std::move(piece.metadata), std::move(buffer)});
        }
        frame_blocks_.small.reset();
    }

  private:
    // Small pieces that stay where they have landed share their block until the last of them is gone: spilling one of them
    // frees nothing. So they do that while more than half of the memory is free, and are copied out else.
    [[nodiscard]] bool has_plenty() const {
        auto const type = memory_.mem_type();
        return br_->memory_available(type) >= br_->memory_limit(type) / 2;
    }

    [[nodiscard]] std::unique_ptr<Buffer> copy_out(std::size_t size, std::size_t offset) {
        auto buffer = br_->allocate(size, memory_);
        if (size > 0) {
            std::memcpy(buffer->mutable_host_bytes().data(), frame_blocks_.small->data() + offset, size);
        }
        return buffer;
    }

    // A buffer out of the reservation that lies in a block.
    [[nodiscard]] std::unique_ptr<Buffer> take(
        std::shared_ptr<device::SharedBlock> const& block, std::size_t size, std::size_t offset = 0) {
        auto buffer = br_->adopt(memory_.mem_type(), block->data() + offset, size, block);
        br_->release(memory_, size);
        return buffer;
    }

    device::SharedMemory& shared_;
    std::shared_ptr<BufferResource> br_;
    FrameBlocks frame_blocks_;
    AnnouncedFrame frame_;
    MemoryReservation memory_;                      // for the small pieces once they are told apart
    std::vector<std::unique_ptr<Buffer>> buffers_;  // by piece
    std::unique_ptr<Buffer> small_;
};

class PeerSendTransfer final : public SendTransfer {
  public:
    explicit PeerSendTransfer(std::shared_ptr<detail::PeerWrite> write) : write_{std::move(write)} {}
    ~PeerSendTransfer() override { write_->stop(); }
    [[nodiscard]] bool start() override { return true; }
    [[nodiscard]] bool poll() override { return write_->has_ended(); }
    [[nodiscard]] bool needs_notice() const noexcept override { return true; }

  private:
    std::shared_ptr<detail::PeerWrite> write_;
};

}  // namespace

std::unique_ptr<PeerMemory> PeerMemory::make(Communicator const& comm, std::string& reason) {
    auto* const memory = device::SharedMemory::current(reason);
    if (memory == nullptr) {
        return nullptr;
    }
    return std::make_unique<PeerMemory>(comm, *memory);
}

PeerMemory::PeerMemory(Communicator const& comm, device::SharedMemory& memory)
    : memory_{memory},
      writing_{std::make_unique<detail::WriterLivenessFlag>(memory)},
      peers_(static_cast<std::size_t>(comm.nranks())) {}

PeerMemory::~PeerMemory() {
    close();
}

std::vector<std::uint8_t> PeerMemory::offer() const {
    return writing_->offer();
}

std::string PeerMemory::accept(Rank from, std::vector<std::uint8_t> const& offered) {
    auto const offer = detail::read_offer(offered);
    if (closed_) {
        return "this rank closes its communicator";
    }
    std::string reason;
    peer(from).writer = detail::Writer::open(offer, reason);
    return reason;
}

bool PeerMemory::is_open(Rank rank) const noexcept {
    return peers_[static_cast<std::size_t>(rank)].writer != nullptr && !closed_;
}

std::vector<device::ExportedRegion> PeerMemory::take_regions(Rank /*peer*/) {
    return {};
}

void PeerMemory::add_region(Rank /*peer*/, device::ExportedRegion const& /*region*/) {
    throw FormatError{"it told of a region of host memory, which has but one"};
}

bool PeerMemory::progress() {
    std::size_t copied = 0;
    bool any = false;
    for (std::size_t idle = 0; idle < peers_.size() && copied < slice_bytes;) {
        auto& queue = peers_[next_].queue;
        next_ = (next_ + 1) % peers_.size();
        while (!queue.empty() && queue.front()->has_ended()) {
            queue.pop_front();
        }
        if (queue.empty()) {
            ++idle;
            continue;
        }
        idle = 0;
        any = true;
        copied += queue.front()->copy(slice_bytes - copied);
    }
    return any;
}

void PeerMemory::close() noexcept {
    if (std::exchange(closed_, true)) {
        return;
    }
    for (auto& entry : peers_) {
        for (auto const& write : entry.queue) {
            write->stop();
        }
        entry.queue.clear();
    }
    writing_->clear();
}

std::unique_ptr<ReceiveTransfer> PeerMemory::grant(
    PeerRoute const& route, AnnouncedFrame& frame, MemoryReservation& memory) {
    auto& entry = peer(route.peer);
    if (closed_ || !entry.writer || route.br->device().kind() != DeviceKind::cpu) {
        return nullptr;
    }
    FrameBlocks frame_blocks{frame, memory_};
    if (!frame_blocks.complete || frame_blocks.addresses.empty()) {
        return nullptr;
    }
    return std::make_unique<PeerReceiveTransfer>(
        memory_, entry.writer, route.br, std::move(frame_blocks), std::move(frame), std::move(memory));
}

std::unique_ptr<SendTransfer> PeerMemory::write(
    PeerRoute const& route, SendTransfer::Pieces pieces, std::vector<RemoteAddress> addresses,
    Settings const& /*settings*/) {
    auto& entry = peer(route.peer);
    RAPIDSMPF_EXPECTS(
        entry.writer != nullptr, "it gave addresses in memory that it has not offered", FormatError);
    auto write = std::make_shared<detail::PeerWrite>(
        entry.writer->view(), route.br->statistics(), std::move(pieces), addresses);
    if (!closed_) {
        entry.queue.push_back(write);
    }
    return std::make_unique<PeerSendTransfer>(std::move(write));
}

}  // namespace rapidsmpf::exchange
