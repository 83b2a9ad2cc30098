// Peer memory in regions, as GPUs have it, over memory of the host: what is granted where, regions that are made later, and
// what becomes of a block that was granted and not written.
#include "exchange/device_peer_memory.hpp"

#include <cstring>
#include <deque>
#include <map>

#include <gtest/gtest.h>

#include <rapidsmpf/communicator/loopback.hpp>
#include <rapidsmpf/core/error.hpp>

#include "about_the_cpu.hpp"

namespace rapidsmpf::exchange {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t KiB = 1024;
constexpr std::size_t region_size = 256 * KiB;

// A device's memory, without the device: regions are plain memory, their handles the addresses.
class Regions final : public device::ExportedMemory {
  public:
    explicit Regions(std::uint8_t name, std::size_t most_regions = 100) : name_{name}, most_{most_regions} {
        add(region_size);
    }
    ~Regions() override { EXPECT_EQ(used_, 0U); }

    [[nodiscard]] Bytes identity() const override { return {name_}; }
    [[nodiscard]] std::uint32_t num_regions() const noexcept override {
        return static_cast<std::uint32_t>(regions_.size());
    }
    [[nodiscard]] device::ExportedRegion region(std::uint32_t id) const override {
        auto const address = reinterpret_cast<std::uintptr_t>(regions_.at(id).data());
        Bytes handle(sizeof(address));
        std::memcpy(handle.data(), &address, sizeof(address));
        return {id, regions_[id].size(), std::move(handle)};
    }
    [[nodiscard]] std::shared_ptr<device::ExportedBlock> allocate(std::size_t bytes, Stream stream) override {
        quarantine_.erase(
            std::remove_if(
                quarantine_.begin(), quarantine_.end(), [](auto const& one) { return one.second(); }),
            quarantine_.end());
        if (next_ + bytes > regions_.back().size()) {
            if (regions_.size() == most_) {
                return nullptr;
            }
            add(std::max(bytes, region_size));
        }
        auto const offset = std::exchange(next_, next_ + bytes);
        return std::make_shared<Block>(
            *this, regions_.back().data() + offset, num_regions() - 1, offset, bytes, stream);
    }
    [[nodiscard]] std::shared_ptr<device::ImportedMemory> import(
        std::span<std::uint8_t const> identity, std::string& reason) override {
        if (identity.size() != 1) {
            reason = "another kind";
            return nullptr;
        }
        return std::make_shared<Opened>();
    }
    [[nodiscard]] Stream next_write_stream() override { return Stream{}; }
    void quarantine(std::shared_ptr<device::ExportedBlock> block, std::function<bool()> is_safe) override {
        quarantine_.emplace_back(std::move(block), std::move(is_safe));
    }
    [[nodiscard]] std::size_t used() const noexcept override { return used_; }
    [[nodiscard]] std::size_t capacity() const noexcept override { return regions_.size() * region_size; }

  private:
    class Block final : public device::ExportedBlock {
      public:
        Block(
            Regions& regions, std::byte* data, std::uint32_t region, std::uint64_t offset, std::size_t size,
            Stream stream)
            : ExportedBlock{data, region, offset, size, stream}, regions_{regions} {
            regions_.used_ += size;
        }
        Block(Block const&) = delete;
        Block& operator=(Block const&) = delete;
        ~Block() override { regions_.used_ -= size(); }

      private:
        Regions& regions_;
    };
    class Opened final : public device::ImportedMemory {
      public:
        [[nodiscard]] std::string open(device::ExportedRegion const& region) override {
            if (region.handle.size() != sizeof(std::uintptr_t)) {
                return "no handle of this kind";
            }
            std::uintptr_t address{0};
            std::memcpy(&address, region.handle.data(), sizeof(address));
            open_.emplace(region.id, std::pair{reinterpret_cast<std::byte*>(address), region.size});
            return {};
        }
        [[nodiscard]] std::byte* at(
            std::uint32_t region, std::uint64_t offset, std::uint64_t bytes) const override {
            auto const found = open_.find(region);
            bool const fits = found != open_.end() && offset <= found->second.second
                              && bytes <= found->second.second - offset;
            return fits ? found->second.first + offset : nullptr;
        }

      private:
        std::map<std::uint32_t, std::pair<std::byte*, std::uint64_t>> open_;
    };

    void add(std::size_t size) {
        regions_.emplace_back(size);
        next_ = 0;
    }

    std::uint8_t name_;
    std::size_t most_;
    std::deque<std::vector<std::byte>> regions_;
    std::size_t next_{0};
    std::size_t used_{0};
    std::vector<std::pair<std::shared_ptr<device::ExportedBlock>, std::function<bool()>>> quarantine_;
};

// Two ranks, each with the half of the transport that is at work.
class DevicePeers : public testing::Test {
  protected:
    void SetUp() override { RAPIDSMPF_ABOUT_THE_CPU(); }

    [[nodiscard]] std::unique_ptr<DevicePeerMemory> make(Rank rank, Regions& regions) {
        std::string reason;
        auto made = DevicePeerMemory::make(*cluster[rank], Device::current(), regions, reason);
        EXPECT_NE(made, nullptr) << reason;
        return made;
    }
    void agree() const {
        EXPECT_EQ(receiver->accept(0, sender->offer()), "");
        EXPECT_EQ(sender->accept(1, receiver->offer()), "");
    }
    void tell_regions() const {
        for (auto const& region : receiver->take_regions(0)) {
            sender->add_region(1, region);
        }
    }
    // What rank 0 announces to rank 1.
    [[nodiscard]] AnnouncedFrame frame_of(std::vector<std::uint64_t> const& sizes) {
        PieceList list;
        for (auto const size : sizes) {
            list.pieces.emplace_back(PieceId{0, list.pieces.size()}, 1, size);
        }
        metadata_.assign(sizes.size(), 9);
        list.metadata = metadata_;
        list.gather_limit = 16 * KiB;
        list.split_bytes = 1 << 20;
        return AnnouncedFrame{list, budget};
    }
    [[nodiscard]] std::unique_ptr<ReceiveTransfer> grant(std::vector<std::uint64_t> const& sizes) {
        auto frame = frame_of(sizes);
        auto memory = br->reserve(MemoryType::DEVICE, frame.memory_needed(), AllowOverbooking::yes).first;
        return receiver->grant({0, Tag{7, 1}, br}, frame, memory);
    }
    // Pieces of these sizes; every byte of piece i is i + 1.
    [[nodiscard]] SendTransfer::Pieces pieces_of(std::vector<std::uint64_t> const& sizes) const {
        SendTransfer::Pieces pieces;
        for (auto const size : sizes) {
            auto buffer = br->allocate(MemoryType::DEVICE, size);
            if (size > 0) {
                std::memset(buffer->mutable_host_bytes().data(), static_cast<int>(pieces.size() + 1), size);
            }
            pieces.push_back(std::move(buffer));
        }
        return pieces;
    }
    [[nodiscard]] std::unique_ptr<SendTransfer> send(
        std::vector<std::uint64_t> const& sizes, std::span<RemoteAddress const> addresses) const {
        return sender->write(
            {1, Tag{7, 1}, br}, pieces_of(sizes), {addresses.begin(), addresses.end()}, Settings());
    }

    LoopbackCluster cluster{2};
    std::shared_ptr<BufferResource> br = BufferResource::make();
    ReceiveBudget budget;
    Regions of_sender{1};
    Regions of_receiver{2};
    std::unique_ptr<DevicePeerMemory> sender = make(0, of_sender);
    std::unique_ptr<DevicePeerMemory> receiver = make(1, of_receiver);

  private:
    Bytes metadata_;
};

TEST_F(DevicePeers, PiecesOfAnySizeLandWhereTheyWereGranted) {
    agree();
    std::vector<std::uint64_t> const sizes{1, 0, 300, 100 * KiB, 7 * KiB};
    auto receive_transfer = grant(sizes);
    ASSERT_NE(receive_transfer, nullptr);
    EXPECT_EQ(receive_transfer->addresses().size(), 4U);  // where there is data
    for (auto const& address : receive_transfer->addresses()) {
        EXPECT_EQ(address.offset % Device::alignment, 0U);
    }
    auto const send_transfer = send(sizes, receive_transfer->addresses());
    EXPECT_TRUE(send_transfer->needs_notice());
    EXPECT_FALSE(send_transfer->poll());  // not started
    EXPECT_TRUE(send_transfer->start());
    EXPECT_TRUE(send_transfer->poll());
    EXPECT_FALSE(receive_transfer->poll());
    receive_transfer->set_written();
    EXPECT_TRUE(receive_transfer->poll());
    std::size_t piece = 0;
    receive_transfer->deliver([&](PieceHeader const& header, PackedData data) {
        EXPECT_EQ(header.id.sequence(), piece);
        ASSERT_EQ(data.data->size(), sizes[piece]);
        for (auto const byte : data.data->host_bytes()) {
            ASSERT_EQ(byte, static_cast<std::byte>(piece + 1));
        }
        ++piece;
    });
    EXPECT_EQ(piece, sizes.size());
    receive_transfer.reset();
    EXPECT_EQ(of_receiver.used(), 0U);
}

// Three ranks: to several peers frames go by kernels, few at a time to each, so that all links are in use.
TEST_F(DevicePeers, OfSeveralPeersNoneHasManyFramesOnTheirWay) {
    LoopbackCluster three{3};
    std::string reason;
    auto const first = DevicePeerMemory::make(*three[0], Device::current(), of_sender, reason);
    receiver = DevicePeerMemory::make(*three[1], Device::current(), of_receiver, reason);
    Regions of_third{3};
    auto const third = DevicePeerMemory::make(*three[2], Device::current(), of_third, reason);
    ASSERT_EQ(first->accept(1, receiver->offer()), "");
    ASSERT_EQ(receiver->accept(0, first->offer()), "");

    Settings settings;
    settings.frame_bytes = 1000;
    std::vector<std::unique_ptr<ReceiveTransfer>> receive_transfers;
    auto const to_second = [&](std::uint64_t size) {
        receive_transfers.push_back(grant({size}));
        auto const addresses = receive_transfers.back()->addresses();
        return first->write(
            {1, Tag{7, 1}, br}, pieces_of({size}), {addresses.begin(), addresses.end()}, settings);
    };
    // As long as there is one peer, all may go.
    std::vector<std::unique_ptr<SendTransfer>> send_transfers;
    for (int i = 0; i < 5; ++i) {
        send_transfers.push_back(to_second(1000));
        EXPECT_TRUE(send_transfers.back()->start());
    }
    ASSERT_EQ(first->accept(2, third->offer()), "");
    auto next = to_second(1000);
    EXPECT_FALSE(next->start());
    // What is done makes room, and so does what is given up.
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(send_transfers.back()->poll());
        send_transfers.pop_back();
    }
    EXPECT_FALSE(next->start());
    send_transfers.pop_back();
    EXPECT_TRUE(next->start());
    EXPECT_FALSE(to_second(1)->start());
    // However large a frame is, it may go alone.
    EXPECT_TRUE(next->poll());
    auto large = to_second(5000);
    EXPECT_FALSE(large->start());
    send_transfers.clear();
    EXPECT_TRUE(large->start());
    for (auto const& receive_transfer : receive_transfers) {
        receive_transfer->set_abandoned();
    }
}

TEST_F(DevicePeers, RegionsThatAreMadeLaterAreTold) {
    agree();
    EXPECT_TRUE(receiver->take_regions(0).empty());  // the first is in the offer
    auto const receive_transfer = grant({2 * region_size});
    EXPECT_EQ(receive_transfer->addresses()[0].region, 1U);
    EXPECT_THROW((void)send({2 * region_size}, receive_transfer->addresses()), FormatError);  // not yet known
    tell_regions();
    EXPECT_TRUE(receiver->take_regions(0).empty());
    EXPECT_TRUE(send({2 * region_size}, receive_transfer->addresses())->start());
    receive_transfer->set_abandoned();
}

TEST_F(DevicePeers, WithoutMemoryThereIsNoGrant) {
    Regions small{3, 1};
    receiver = make(1, small);
    agree();
    auto const receive_transfer = grant({region_size});
    ASSERT_NE(receive_transfer, nullptr);
    EXPECT_EQ(grant({1}), nullptr);  // then it comes as a message
    receive_transfer->set_abandoned();
}

TEST_F(DevicePeers, ABlockIsOutOfUseUntilThePeerWritesNoMore) {
    agree();
    auto receive_transfer = grant({100, 80 * KiB});
    receive_transfer.reset();  // neither written nor abandoned
    EXPECT_GT(of_receiver.used(), 80 * KiB);
    EXPECT_NE(of_receiver.allocate(1, Stream{}), nullptr);
    EXPECT_GT(of_receiver.used(), 80 * KiB);
    sender->close();
    EXPECT_NE(of_receiver.allocate(1, Stream{}), nullptr);
    EXPECT_EQ(of_receiver.used(), 0U);
}

TEST_F(DevicePeers, WhoIsClosedWritesNothing) {
    agree();
    auto const receive_transfer = grant({10});
    auto const early = send({10}, receive_transfer->addresses());
    sender->close();
    EXPECT_TRUE(early->start());
    EXPECT_TRUE(send({10}, receive_transfer->addresses())->start());
    EXPECT_TRUE(early->poll());
    std::size_t delivered = 0;
    receive_transfer->set_written();
    receive_transfer->deliver([&](PieceHeader const&, PackedData data) {
        ++delivered;
        EXPECT_NE(data.data->host_bytes()[0], std::byte{1});
    });
    EXPECT_EQ(delivered, 1U);
}

TEST_F(DevicePeers, AddressesThatAreNotThePeersAreRefused) {
    agree();
    EXPECT_THROW((void)send({10}, std::vector{RemoteAddress{1, 0}}), FormatError);
    EXPECT_THROW((void)send({10}, std::vector{RemoteAddress{0, region_size - 9}}), FormatError);
    EXPECT_THROW((void)send({10}, std::vector{RemoteAddress{0, ~std::uint64_t{0}}}), FormatError);
    EXPECT_THROW((void)send({10, 10}, std::vector{RemoteAddress{0, 0}}), FormatError);
    EXPECT_TRUE(send({10}, std::vector{RemoteAddress{0, region_size - 10}})->start());
}

TEST_F(DevicePeers, OffersThatCannotBe) {
    auto const good = sender->offer();
    for (std::size_t size = 0; size < good.size(); ++size) {
        EXPECT_THROW(
            (void)receiver->accept(0, Bytes(good.begin(), good.begin() + static_cast<long>(size))),
            FormatError);
    }
    EXPECT_FALSE(receiver->is_open(0));
    EXPECT_THROW((void)sender->write({1, Tag{7, 1}, br}, {}, {}, Settings()), FormatError);
}

}  // namespace
}  // namespace rapidsmpf::exchange
