#include <rapidsmpf/device/detail/shared_memory.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rapidsmpf/device/detail/shared_view.hpp>
#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::device {
namespace {

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

SharedMemory& own_memory() {
    std::string reason;
    auto* const memory = SharedMemory::current(reason);
    if (memory == nullptr) {
        throw std::runtime_error{reason};
    }
    return *memory;
}

// The memory is the process's: each test begins without free blocks, and with a bound of its own.
class SharedMemoryTest : public testing::Test {
  protected:
    SharedMemoryTest() {
        SharedMemory::trim(0);
        before_ = SharedMemory::cache_limit_for_testing();
        SharedMemory::set_cache_limit_for_testing(64 * MiB);
        used_ = SharedMemory::used();
    }
    ~SharedMemoryTest() override {
        EXPECT_EQ(SharedMemory::used(), used_);
        SharedMemory::trim(0);
        SharedMemory::set_cache_limit_for_testing(before_);
    }
    [[nodiscard]] std::size_t used() const { return SharedMemory::used() - used_; }

    std::string reason;
    SharedMemory& memory{own_memory()};

  private:
    std::size_t before_{0};
    std::size_t used_{0};
};

TEST_F(SharedMemoryTest, BlocksOfEverySizeAreWritableAndApart) {
    std::vector<std::shared_ptr<SharedBlock>> blocks;
    for (auto const bytes :
         {std::size_t{1}, 4 * KiB, 4 * KiB + 1, 64 * KiB, 64 * KiB + 1, MiB - 1, MiB, 9 * MiB + 5}) {
        auto const block = memory.allocate(bytes);
        ASSERT_NE(block, nullptr);
        EXPECT_GE(block->size(), bytes);
        EXPECT_LE(block->size(), std::max(bytes + bytes / 8 + 4 * KiB, 4 * KiB));
        EXPECT_EQ(block->offset() % (4 * KiB), 0U);
        EXPECT_GE(block->offset(), SharedMemory::first_offset);
        EXPECT_EQ(block->data(), memory.base() + block->offset());
        std::memset(block->data(), static_cast<int>(blocks.size()), block->size());
        blocks.push_back(block);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        EXPECT_EQ(blocks[i]->data()[0], static_cast<std::byte>(i));
        EXPECT_EQ(blocks[i]->data()[blocks[i]->size() - 1], static_cast<std::byte>(i));
    }
}

TEST_F(SharedMemoryTest, AFreeBlockIsTheNextOneOfItsSize) {
    auto first = memory.allocate(MiB);
    auto const offset = first->offset();
    EXPECT_EQ(used(), MiB);
    first.reset();
    EXPECT_EQ(used(), 0U);
    EXPECT_EQ(SharedMemory::cached(), MiB);
    auto const second = memory.allocate(MiB - 100);
    EXPECT_EQ(second->offset(), offset);
    EXPECT_EQ(SharedMemory::cached(), 0U);
}

TEST_F(SharedMemoryTest, TrimmingGivesThePagesBack) {
    auto block = memory.allocate(16 * MiB);
    std::memset(block->data(), 1, block->size());
    auto const with = SharedMemory::resident();
    EXPECT_GE(with, 16 * MiB);
    block.reset();
    EXPECT_EQ(SharedMemory::resident(), with);  // kept
    EXPECT_EQ(SharedMemory::trim(0), 16 * MiB);
    // Where pages are huge, the two at the ends may be shared with others.
    EXPECT_LE(SharedMemory::resident(), with - 12 * MiB);
    block = memory.allocate(16 * MiB);
    EXPECT_EQ(block->data()[5 * MiB], std::byte{0});
}

TEST_F(SharedMemoryTest, WhatIsKeptIsBounded) {
    SharedMemory::set_cache_limit_for_testing(4 * MiB);
    std::vector<std::shared_ptr<SharedBlock>> blocks;
    for (int i = 0; i < 8; ++i) {
        blocks.push_back(memory.allocate(MiB));
    }
    blocks.push_back(memory.allocate(3 * MiB));  // too much of the bound
    blocks.clear();
    EXPECT_EQ(SharedMemory::cached(), 4 * MiB);
}

TEST_F(SharedMemoryTest, WhatWasKeptLongestGoesFirst) {
    SharedMemory::set_cache_limit_for_testing(8 * MiB);
    std::vector<std::shared_ptr<SharedBlock>> blocks;
    for (int i = 0; i < 64; ++i) {
        blocks.push_back(memory.allocate(64 * KiB));
    }
    blocks.clear();
    for (int i = 0; i < 2; ++i) {
        blocks.push_back(memory.allocate(4 * MiB));
    }
    auto const last = blocks.back()->offset();
    auto const first = blocks.front()->offset();
    blocks.clear();
    EXPECT_EQ(SharedMemory::cached(), 8 * MiB);  // of the large ones: the small ones are gone
    blocks.push_back(memory.allocate(4 * MiB));
    blocks.push_back(memory.allocate(4 * MiB));
    EXPECT_EQ(SharedMemory::cached(), 0U);
    EXPECT_EQ(blocks[0]->offset() + blocks[1]->offset(), first + last);
}

TEST_F(SharedMemoryTest, MoreThanThereIsIsRefused) {
    EXPECT_EQ(memory.allocate(memory.ticket().size), nullptr);
    EXPECT_EQ(used(), 0U);
}

TEST_F(SharedMemoryTest, AQuarantinedBlockIsNotHandedOut) {
    bool safe = false;
    auto block = memory.allocate(MiB);
    auto const offset = block->offset();
    memory.quarantine(std::move(block), [&safe] { return safe; });
    EXPECT_EQ(SharedMemory::quarantined_for_testing(), MiB);
    EXPECT_EQ(used(), MiB);
    EXPECT_NE(memory.allocate(MiB)->offset(), offset);
    safe = true;
    EXPECT_EQ(SharedMemory::quarantined_for_testing(), 0U);
    EXPECT_EQ(used(), 0U);
}

TEST_F(SharedMemoryTest, ThreadsTakeAndGiveBack) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (std::size_t i = 0; i < 200; ++i) {
                auto const block = memory.allocate((i * 7919 + t * 104'729) % (256 * KiB));
                auto* const data = block->data();
                std::memset(data, static_cast<int>(t), 64);
                if (i % 50 == 0) {
                    SharedMemory::trim(0);
                }
                EXPECT_EQ(data[63], static_cast<std::byte>(t));
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
}

TEST_F(SharedMemoryTest, ATicketOfOnesOwnIsOnesOwnMemory) {
    auto const view = SharedView::open(memory.ticket(), reason);
    ASSERT_NE(view, nullptr) << reason;
    EXPECT_EQ(view->at(0), memory.base());
    EXPECT_TRUE(view->owner_is_alive());
    EXPECT_EQ(SharedView::open(memory.ticket(), reason), view);
}

// Memory as another process would have it.
class OtherMemory {
  public:
    explicit OtherMemory(unsigned seals = F_SEAL_SHRINK | F_SEAL_GROW) {
        ticket.host = own_memory().ticket().host;
        ticket.pid = ::getpid();
        ticket.size = size;
        ticket.secret = {9, 8, 7, static_cast<std::uint8_t>(counter()++)};
        ticket.fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        EXPECT_EQ(::ftruncate(ticket.fd, static_cast<off_t>(size)), 0);
        EXPECT_EQ(::fcntl(ticket.fd, F_ADD_SEALS, seals), 0);
        std::vector<std::byte> page(4 * KiB);
        detail::write_secret(page.data(), ticket);
        EXPECT_EQ(::pwrite(ticket.fd, page.data(), page.size(), 0), static_cast<ssize_t>(page.size()));
    }
    ~OtherMemory() { ::close(ticket.fd); }
    OtherMemory(OtherMemory const&) = delete;
    OtherMemory& operator=(OtherMemory const&) = delete;

    static constexpr std::size_t size = 128 * MiB;
    SharedMemoryTicket ticket;

  private:
    static int& counter() {
        static int count = 0;
        return count;
    }
};

TEST_F(SharedMemoryTest, WhatIsWrittenThroughAViewIsInTheMemory) {
    OtherMemory const other;
    auto const view = SharedView::open(other.ticket, reason);
    ASSERT_NE(view, nullptr) << reason;
    std::memcpy(view->at(5 * MiB), "through", 8);
    std::array<char, 8> read{};
    EXPECT_EQ(::pread(other.ticket.fd, read.data(), read.size(), 5 * MiB), 8);
    EXPECT_STREQ(read.data(), "through");
    EXPECT_TRUE(view->contains(SharedMemory::first_offset, 10));
    EXPECT_FALSE(view->contains(SharedMemory::first_offset - 1, 10));
    EXPECT_TRUE(view->contains(OtherMemory::size - 10, 10));
    EXPECT_FALSE(view->contains(OtherMemory::size - 10, 11));
    EXPECT_FALSE(view->contains(~std::uint64_t{0}, 11));
}

TEST_F(SharedMemoryTest, ViewsOfOneOwnerAreOne) {
    OtherMemory const other;
    auto const view = SharedView::open(other.ticket, reason);
    EXPECT_EQ(SharedView::open(other.ticket, reason), view);
}

TEST_F(SharedMemoryTest, WhatIsNotAsOfferedIsRefused) {
    auto const refusal = [&](SharedMemoryTicket const& ticket) {
        reason.clear();
        EXPECT_EQ(SharedView::open(ticket, reason), nullptr);
        return reason;
    };
    OtherMemory const other;
    auto ticket = other.ticket;
    ticket.host = "elsewhere";
    EXPECT_EQ(refusal(ticket), "it is on another host, or in another pid namespace");
    ticket = other.ticket;
    ticket.secret[5] ^= 1U;
    EXPECT_NE(refusal(ticket).find("is not the memory that was offered"), std::string::npos);
    ticket = other.ticket;
    ticket.size -= MiB;
    EXPECT_NE(refusal(ticket).find("is not the memory that was offered"), std::string::npos);
    ticket = other.ticket;
    ticket.fd = 1'000'000;
    EXPECT_NE(refusal(ticket).find("cannot be opened"), std::string::npos);
    ticket = other.ticket;
    ticket.pid = 1 << 30;
    EXPECT_NE(refusal(ticket).find("cannot be watched"), std::string::npos);
    OtherMemory const not_sealed{0};
    EXPECT_NE(refusal(not_sealed.ticket).find("is not the memory that was offered"), std::string::npos);
}

// A process that may not look into this one's descriptors is refused.
TEST_F(SharedMemoryTest, AnotherUserNamespaceIsRefused) {
    enum Outcome : int { refused, opened, refused_otherwise, no_namespaces };
    OtherMemory const other;
    auto const child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        if (::unshare(CLONE_NEWUSER) != 0) {
            std::_Exit(no_namespaces);
        }
        std::string why;
        if (SharedView::open(other.ticket, why) != nullptr) {
            std::_Exit(opened);
        }
        std::_Exit(why.find("cannot be opened") != std::string::npos ? refused : refused_otherwise);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == no_namespaces) {
        GTEST_SKIP() << "no user namespaces here";
    }
    EXPECT_EQ(WEXITSTATUS(status), refused);
}

TEST_F(SharedMemoryTest, AViewOutlivesItsOwner) {
    OtherMemory const other;
    auto const owner = ::fork();
    ASSERT_GE(owner, 0);
    if (owner == 0) {
        for (;;) {
            ::pause();
        }
    }
    auto ticket = other.ticket;
    ticket.pid = owner;
    auto const view = SharedView::open(ticket, reason);
    ASSERT_NE(view, nullptr) << reason;
    EXPECT_TRUE(view->owner_is_alive());
    ::kill(owner, SIGKILL);
    ::waitpid(owner, nullptr, 0);
    EXPECT_FALSE(view->owner_is_alive());
    std::memset(view->at(4 * MiB), 3, MiB);
    EXPECT_EQ(view->at(5 * MiB)[-1], std::byte{3});
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // their shadows are memory, too
TEST_F(SharedMemoryTest, PagesCountForTheirOwnerOnly) {
    auto const& device = Device::current();
    if (device.kind() != DeviceKind::cpu) {
        GTEST_SKIP() << "what is resident counts on a CPU";
    }
    constexpr std::size_t bytes = 96 * MiB;
    constexpr std::int64_t much = 48 * MiB;
    OtherMemory const other;
    auto const view = SharedView::open(other.ticket, reason);
    auto const before = device.used_memory();
    std::memset(view->at(SharedMemory::first_offset), 1, bytes);
    EXPECT_LT(device.used_memory() - before, much);
    {
        auto const block = memory.allocate(bytes);
        // As another process would write: not through this process's pages.
        std::vector<std::byte> const some(MiB, std::byte{1});
        for (std::size_t offset = 0; offset < bytes; offset += some.size()) {
            ASSERT_EQ(
                ::pwrite(
                    memory.ticket().fd, some.data(), some.size(),
                    static_cast<off_t>(block->offset() + offset)),
                static_cast<ssize_t>(some.size()));
        }
        EXPECT_GT(device.used_memory() - before, much);
    }
    SharedMemory::trim(0);
    EXPECT_LT(device.used_memory() - before, much);
}
#endif

}  // namespace
}  // namespace rapidsmpf::device
