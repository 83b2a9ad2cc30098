#include "exchange/device_peer_memory.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/statistic_names.hpp>

#include "exchange/peer_writers.hpp"

namespace rapidsmpf::exchange {

namespace {

// To one peer, from this size on a piece goes by the copy engine: that leaves the multiprocessors to the kernels that partition the
// next chunk meanwhile, which is worth more than what a kernel gains on pieces of a few MiB. Smaller pieces would pay for each
// what a kernel pays for all of them.
constexpr std::size_t engine_piece = std::size_t{2} << 20U;
// To several peers everything goes by kernels. The engine copies one piece after the other, and two GPUs whose engines come to
// the same peer have half its link each while the links of others lie idle: between four that took 220 of 390 GB/s
// (benchmarks/gpu/links.cu). Kernels write to all peers at a time.
// So many multiprocessors fill a GPU's links; they are shared out among the peers.
constexpr std::uint32_t most_processors = 16;
constexpr std::uint32_t least_processors = 2;
// More than these frames on their way to a peer would take from others what they need to fill their links.
constexpr std::size_t frames_on_the_way = 2;
// Identities and handles are small.
constexpr std::size_t longest_field = 4096;

std::vector<std::uint8_t> write_device(device::ExportedMemory const& memory) {
    auto const region = memory.region(0);
    return ByteWriter{}.blob(memory.identity()).integer(region.size).blob(region.handle).take();
}

}  // namespace

namespace detail {

// How the frames of one peer are written, and how much of them is.
class DeviceRoute {
  public:
    // `stream`: where kernels write one frame after the other, so that what goes to one peer never waits for another's.
    explicit DeviceRoute(Stream stream) : stream_{stream} {}
    [[nodiscard]] Stream stream() const noexcept { return stream_; }

    // `processors`: how many multiprocessors copy the pieces, large ones too; 0: copy engines do those.
    void set_processors(std::uint32_t processors) noexcept { processors_ = processors; }
    [[nodiscard]] std::uint32_t processors() const noexcept { return processors_; }

    // Whether there is room for a frame. Any may go alone.
    [[nodiscard]] bool has_room(std::size_t bytes, std::size_t limit) const noexcept {
        auto const on_the_way = bytes_.load(std::memory_order_relaxed);
        return processors_ == 0 || on_the_way == 0 || on_the_way + bytes <= limit;
    }
    void add(std::size_t bytes) noexcept { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
    // From any thread.
    void remove(std::size_t bytes) noexcept { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  private:
    Stream stream_;
    std::uint32_t processors_{0};
    std::atomic<std::size_t> bytes_{0};
};

// The pieces of one frame, on their way into a peer's memory.
class DeviceWrite {
  public:
    // `limit`: bytes on their way to the peer.
    DeviceWrite(
        Device& device, Stream stream, std::shared_ptr<device::ImportedMemory> memory,
        std::shared_ptr<DeviceRoute> route, std::size_t limit, std::shared_ptr<Statistics> statistics,
        SendTransfer::Pieces pieces, std::vector<RemoteAddress> const& addresses)
        : device_{device},
          stream_{stream},
          memory_{std::move(memory)},
          route_{std::move(route)},
          limit_{limit},
          statistics_{std::move(statistics)},
          pieces_{std::move(pieces)} {
        match_addresses(pieces_, addresses);
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            auto* const to = memory_->at(addresses[i].region, addresses[i].offset, pieces_[i]->size());
            RAPIDSMPF_EXPECTS(to != nullptr, "it gave an address outside of its memory", FormatError);
            to_.push_back(to);
            bytes_ += pieces_[i]->size();
        }
    }
    DeviceWrite(DeviceWrite const&) = delete;
    DeviceWrite& operator=(DeviceWrite const&) = delete;
    ~DeviceWrite() { finish(); }

    // Returns whether it has: not while others are on their way to the peer.
    [[nodiscard]] bool start() {
        if (stopped_) {
            return true;
        }
        if (!route_->has_room(bytes_, limit_)) {
            return false;
        }
        started_at_ = std::chrono::steady_clock::now();
        // Whatever happens from here on, the event says when nothing is read or written any more.
        done_ = device_.make_event();
        route_->add(bytes_);
        auto const processors = route_->processors();
        std::vector<CopyPiece> by_kernel;
        std::vector<CopyPiece> by_engine;
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            auto const& piece = *pieces_[i];
            bool const addressable =
                piece.mem_type() == MemoryType::DEVICE || piece.mem_type() == MemoryType::PINNED_HOST;
            bool const is_large = processors == 0 && piece.size() >= engine_piece;
            auto& copies = !addressable || is_large ? by_engine : by_kernel;
            copies.push_back({piece.data(), to_[i], piece.size()});
        }
        device_.copy_pieces(by_engine, stream_);
        if (!by_kernel.empty()) {
            device_.gather_copy(by_kernel, stream_, processors > 0 ? processors : most_processors);
        }
        done_->record(stream_);
        statistics_->add(statistic::id("exchange-peer-memory-bytes"), static_cast<double>(bytes_));
        return true;
    }

    [[nodiscard]] bool has_ended() {
        if (stopped_) {
            return true;
        }
        if (!done_ || !done_->is_done()) {
            return false;
        }
        statistics_->add(
            statistic::id("exchange-peer-memory-time"),
            std::chrono::duration<double>(std::chrono::steady_clock::now() - started_at_).count());
        stopped_ = true;
        route_->remove(bytes_);
        return true;
    }

    // Starts nothing, and waits for what has been started.
    void finish() noexcept {
        if (std::exchange(stopped_, true) || !done_) {
            return;
        }
        try {
            device_.synchronize(stream_);
        } catch (std::exception const&) {  // NOLINT(bugprone-empty-catch)
            // The GPU is lost: it writes nothing.
        }
        route_->remove(bytes_);
    }

  private:
    Device& device_;
    Stream stream_;
    std::shared_ptr<device::ImportedMemory> memory_;
    std::shared_ptr<DeviceRoute> route_;
    std::size_t limit_;
    std::shared_ptr<Statistics> statistics_;
    SendTransfer::Pieces pieces_;
    std::vector<std::byte*> to_;
    std::size_t bytes_{0};
    std::unique_ptr<Event> done_;  // null: not started
    std::chrono::steady_clock::time_point started_at_;
    bool stopped_{false};
};

}  // namespace detail

namespace {

// Where the pieces of a frame go; not complete when there is no memory left.
struct FrameBlocks {
    FrameBlocks(AnnouncedFrame const& frame, Device& device, device::ExportedMemory& memory)
        : blocks(frame.pieces.size()) {
        auto const is_small = [](std::size_t size) { return size < DevicePeerMemory::small_piece; };
        auto const stream = device.next_stream();
        std::size_t small_bytes = 0;
        for (auto const& piece : frame.pieces) {
            if (is_small(piece.header.data_size)) {
                small_bytes += aligned(piece.header.data_size);
            }
        }
        std::shared_ptr<device::ExportedBlock> small;
        if (small_bytes > 0) {
            small = memory.allocate(small_bytes, stream);
            complete = small != nullptr;
        }
        std::size_t offset = 0;
        for (std::size_t i = 0; i < frame.pieces.size() && complete; ++i) {
            auto const size = static_cast<std::size_t>(frame.pieces[i].header.data_size);
            if (size == 0) {
                continue;
            }
            if (is_small(size)) {
                blocks[i] = {small, offset};
                offset += aligned(size);
            } else {
                blocks[i] = {memory.allocate(size, stream), 0};
                complete = blocks[i].block != nullptr;
            }
            if (complete) {
                addresses.push_back(
                    RemoteAddress{blocks[i].block->region(), blocks[i].block->offset() + blocks[i].offset});
            }
        }
    }

    static std::size_t aligned(std::size_t size) { return round_up(size, Device::alignment); }

    struct Part {
        std::shared_ptr<device::ExportedBlock> block;  // null: no data
        std::size_t offset{0};
    };
    bool complete{true};
    std::vector<RemoteAddress> addresses;
    std::vector<Part> blocks;  // by piece
};

class DeviceReceiveTransfer final : public detail::WrittenReceiveTransfer {
  public:
    DeviceReceiveTransfer(
        device::ExportedMemory& exported, std::shared_ptr<detail::Writer const> writer,
        std::shared_ptr<BufferResource> br, FrameBlocks frame_blocks, AnnouncedFrame frame,
        MemoryReservation memory)
        : WrittenReceiveTransfer{std::move(writer)},
          exported_{exported},
          br_{std::move(br)},
          frame_blocks_{std::move(frame_blocks)},
          frame_{std::move(frame)},
          memory_{std::move(memory)} {
        buffers_.resize(frame_blocks_.blocks.size());
        for (std::size_t i = 0; i < buffers_.size(); ++i) {
            auto const& [block, offset] = frame_blocks_.blocks[i];
            auto const size = static_cast<std::size_t>(frame_.pieces[i].header.data_size);
            if (block) {
                buffers_[i] =
                    br_->adopt(memory_.mem_type(), block->data() + offset, size, block, block->stream());
                br_->release(memory_, size);
            }
        }
    }

    ~DeviceReceiveTransfer() override {
        for (auto& part : frame_blocks_.blocks) {
            release_or_quarantine(exported_, std::move(part.block));
        }
    }

    [[nodiscard]] std::span<RemoteAddress const> addresses() const noexcept override {
        return frame_blocks_.addresses;
    }

    void deliver(Received const& received) override {
        for (std::size_t i = 0; i < frame_.pieces.size(); ++i) {
            auto& piece = frame_.pieces[i];
            auto buffer = std::move(buffers_[i]);
            frame_blocks_.blocks[i].block.reset();
            if (!buffer) {
                buffer = br_->allocate(0, memory_);
            }
            received(piece.header, PackedData{std::move(piece.metadata), std::move(buffer)});
        }
    }

  private:
    device::ExportedMemory& exported_;
    std::shared_ptr<BufferResource> br_;
    FrameBlocks frame_blocks_;
    AnnouncedFrame frame_;
    MemoryReservation memory_;
    std::vector<std::unique_ptr<Buffer>> buffers_;  // by piece; null: no data
};

class DeviceSendTransfer final : public SendTransfer {
  public:
    explicit DeviceSendTransfer(std::shared_ptr<detail::DeviceWrite> write) : write_{std::move(write)} {}
    // The pieces go with it.
    ~DeviceSendTransfer() override { write_->finish(); }
    [[nodiscard]] bool start() override { return write_->start(); }
    [[nodiscard]] bool poll() override { return write_->has_ended(); }
    [[nodiscard]] bool needs_notice() const noexcept override { return true; }

  private:
    std::shared_ptr<detail::DeviceWrite> write_;
};

}  // namespace

std::unique_ptr<DevicePeerMemory> DevicePeerMemory::make(
    Communicator const& comm, Device& device, std::string& reason) {
    auto* const memory = device.exported_memory(reason);
    return memory == nullptr ? nullptr : make(comm, device, *memory, reason);
}

std::unique_ptr<DevicePeerMemory> DevicePeerMemory::make(
    Communicator const& comm, Device& device, device::ExportedMemory& memory, std::string& reason) {
    auto* const host = device::SharedMemory::current(reason);
    if (host == nullptr) {
        return nullptr;
    }
    return std::make_unique<DevicePeerMemory>(
        comm, device, memory, std::make_unique<detail::WriterLivenessFlag>(*host));
}

DevicePeerMemory::DevicePeerMemory(
    Communicator const& comm, Device& device, device::ExportedMemory& memory,
    std::unique_ptr<detail::WriterLivenessFlag> writing)
    : device_{device},
      memory_{memory},
      writing_{std::move(writing)},
      peers_(static_cast<std::size_t>(comm.nranks())) {}

DevicePeerMemory::~DevicePeerMemory() {
    close();
}

std::vector<std::uint8_t> DevicePeerMemory::offer() const {
    return writing_->offer(write_device(memory_));
}

std::string DevicePeerMemory::accept(Rank from, std::vector<std::uint8_t> const& offered) {
    auto const offer = detail::read_offer(offered);
    ByteReader reader{offer.device};
    auto const identity = reader.blob(longest_field);
    auto const size = reader.integer<std::uint64_t>();
    device::ExportedRegion const first{0, size, reader.blob(longest_field)};
    reader.end();
    if (closed_) {
        return "this rank closes its communicator";
    }
    std::string reason;
    auto writer = detail::Writer::open(offer, reason);
    auto memory = writer ? memory_.import(identity, reason) : nullptr;
    if (!memory) {
        return reason;
    }
    reason = memory->open(first);
    if (reason.empty()) {
        peer(from).writer = std::move(writer);
        peer(from).memory = std::move(memory);
        peer(from).route = std::make_shared<detail::DeviceRoute>(memory_.next_write_stream());
        share_processors();
    }
    return reason;
}

void DevicePeerMemory::share_processors() {
    auto const count = static_cast<std::uint32_t>(
        std::count_if(peers_.begin(), peers_.end(), [](Peer const& one) { return one.route != nullptr; }));
    for (auto const& one : peers_) {
        if (one.route) {
            one.route->set_processors(count == 1 ? 0 : std::max(least_processors, most_processors / count));
        }
    }
}

bool DevicePeerMemory::is_open(Rank rank) const noexcept {
    return peers_[static_cast<std::size_t>(rank)].writer != nullptr && !closed_;
}

std::vector<device::ExportedRegion> DevicePeerMemory::take_regions(Rank to) {
    auto& told = peer(to).told;
    std::vector<device::ExportedRegion> regions;
    for (auto const count = memory_.num_regions(); told < count; ++told) {
        regions.push_back(memory_.region(told));
    }
    return regions;
}

void DevicePeerMemory::add_region(Rank from, device::ExportedRegion const& region) {
    auto& entry = peer(from);
    if (!entry.memory) {
        return;  // it has not heard yet that its offer was refused
    }
    auto const why_not = entry.memory->open(region);
    RAPIDSMPF_EXPECTS(why_not.empty(), "rank " + std::to_string(from) + ": " + why_not, std::runtime_error);
}

void DevicePeerMemory::close() noexcept {
    if (std::exchange(closed_, true)) {
        return;
    }
    for (auto const& write : writes_) {
        if (auto const running = write.lock()) {
            running->finish();
        }
    }
    writes_.clear();
    writing_->clear();
}

std::unique_ptr<ReceiveTransfer> DevicePeerMemory::grant(
    PeerRoute const& route, AnnouncedFrame& frame, MemoryReservation& memory) {
    auto& entry = peer(route.peer);
    if (closed_ || !entry.writer || memory.mem_type() != MemoryType::DEVICE
        || &route.br->device() != &device_) {
        return nullptr;
    }
    FrameBlocks frame_blocks{frame, device_, memory_};
    if (!frame_blocks.complete || frame_blocks.addresses.empty()) {
        return nullptr;
    }
    return std::make_unique<DeviceReceiveTransfer>(
        memory_, entry.writer, route.br, std::move(frame_blocks), std::move(frame), std::move(memory));
}

std::unique_ptr<SendTransfer> DevicePeerMemory::write(
    PeerRoute const& route, SendTransfer::Pieces pieces, std::vector<RemoteAddress> addresses,
    Settings const& settings) {
    auto& entry = peer(route.peer);
    RAPIDSMPF_EXPECTS(
        entry.memory != nullptr, "it gave addresses in memory that it has not offered", FormatError);
    // Copy engines, of which a GPU has several, serve streams.
    auto const stream = entry.route->processors() > 0 ? entry.route->stream() : memory_.next_write_stream();
    auto write = std::make_shared<detail::DeviceWrite>(
        device_, stream, entry.memory, entry.route, frames_on_the_way * settings.frame_bytes,
        route.br->statistics(), std::move(pieces), addresses);
    std::erase_if(writes_, [](auto const& known) { return known.expired(); });
    writes_.push_back(write);
    if (closed_) {
        write->finish();
    }
    return std::make_unique<DeviceSendTransfer>(std::move(write));
}

}  // namespace rapidsmpf::exchange
