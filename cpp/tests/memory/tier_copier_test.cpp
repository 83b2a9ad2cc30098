#include <rapidsmpf/memory/detail/tier_copier.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>

#include <rapidsmpf/core/statistics.hpp>

#include "about_the_cpu.hpp"

namespace rapidsmpf {
namespace {

// On a CPU, where DEVICE is the process's memory and the disk reads and writes it.
class CopyBetweenTiers : public ::testing::Test {
  protected:
    void SetUp() override {
        RAPIDSMPF_ABOUT_THE_CPU();
        BufferResource::Settings settings;
        settings.statistics = statistics_;
        br_ = BufferResource::make(std::move(settings));
    }

    std::unique_ptr<Buffer> filled(std::size_t size, int value) {
        auto buffer = br_->allocate(MemoryType::DEVICE, size);
        auto const bytes = buffer->mutable_host_bytes();
        std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(value));
        return buffer;
    }
    MemoryReservation reservation(MemoryType type, std::size_t size) {
        return br_->reserve(type, size, AllowOverbooking::yes).first;
    }
    // Zero where nothing was recorded.
    [[nodiscard]] double counted(char const* name) const {
        auto const entries = statistics_->snapshot().entries();
        auto const found = entries.find(name);
        return found == entries.end() ? 0 : found->second.stat.value;
    }

    std::shared_ptr<Statistics> statistics_{std::make_shared<Statistics>()};
    std::shared_ptr<BufferResource> br_;
};

TEST_F(CopyBetweenTiers, APartIsCopiedAndCounted) {
    auto const source = filled(100, 7);
    auto memory = reservation(MemoryType::HOST, 60);
    auto const copied = br_->copier().copy(*source, 40, 60, memory);
    EXPECT_EQ(copied->mem_type(), MemoryType::HOST);
    EXPECT_EQ(copied->size(), 60U);
    EXPECT_EQ(copied->host_bytes()[59], std::byte{7});
    EXPECT_EQ(memory.size(), 0U);
    EXPECT_EQ(counted("copy-device-to-host-bytes"), 60);
    EXPECT_EQ(counted("spill-bytes-device-to-host"), 60);
}

TEST_F(CopyBetweenTiers, ACopyWithinATierIsNoSpilling) {
    auto const source = filled(100, 7);
    auto memory = reservation(MemoryType::DEVICE, 100);
    (void)br_->copier().copy(*source, 0, 100, memory);
    EXPECT_EQ(counted("copy-device-to-device-bytes"), 100);
    EXPECT_EQ(counted("spill-bytes-device-to-host"), 0);
}

TEST_F(CopyBetweenTiers, ACopyThatIsNotWaitedForIsNotCounted) {
    auto const source = filled(100, 7);
    auto memory = reservation(MemoryType::HOST, 100);
    auto const copied = br_->copier().start_copy(*source, 0, 100, memory);
    copied->synchronize();
    EXPECT_EQ(copied->host_bytes()[99], std::byte{7});
    EXPECT_EQ(counted("copy-device-to-host-bytes"), 0);
}

TEST_F(CopyBetweenTiers, BuffersAreWrittenToDiskTogetherAndReadBack) {
    auto const first = filled(1000, 1);
    auto const second = filled(2000, 2);
    std::array<Buffer const*, 2> const sources{first.get(), second.get()};
    auto const stored = br_->copier().write_to_disk(sources);
    ASSERT_EQ(stored.size(), 2U);
    EXPECT_EQ(br_->memory_used(MemoryType::DISK), 3000);
    EXPECT_EQ(counted("spill-bytes-device-to-disk"), 3000);

    std::array<std::promise<std::unique_ptr<Buffer>>, 2> read;
    std::vector<detail::TierCopier::ReadBack> wanted;
    for (std::size_t i = 0; i < 2; ++i) {
        auto const done = [&, i](std::unique_ptr<Buffer> buffer, std::exception_ptr const& error) {
            error ? read[i].set_exception(error) : read[i].set_value(std::move(buffer));
        };
        wanted.push_back({stored[i].get(), reservation(br_->type_to_read_into(), stored[i]->size()), done});
    }
    br_->copier().read_back(std::move(wanted));
    EXPECT_EQ(read[0].get_future().get()->host_bytes()[999], std::byte{1});
    EXPECT_EQ(read[1].get_future().get()->host_bytes()[1999], std::byte{2});
    EXPECT_EQ(counted("spill-bytes-disk-to-device"), 3000);
}

TEST_F(CopyBetweenTiers, BeyondTheEndOfABufferIsAnError) {
    auto const source = filled(100, 7);
    auto memory = reservation(MemoryType::HOST, 100);
    EXPECT_THROW((void)br_->copier().copy(*source, 50, 51, memory), std::invalid_argument);
    EXPECT_THROW((void)br_->copier().start_copy(*source, 101, 0, memory), std::invalid_argument);
}

}  // namespace
}  // namespace rapidsmpf
