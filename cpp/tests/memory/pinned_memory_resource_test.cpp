#include <rapidsmpf/memory/pinned_memory_resource.hpp>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {
namespace {

config::Options options(config::Strings const& values) {
    return config::Options{values};
}

TEST(PinnedMemoryResource, WithoutAGpuTheReasonIsSaid) {
    if (PinnedMemoryResource::is_available()) {
        GTEST_SKIP() << "this machine has page-locked memory";
    }
    try {
        (void)PinnedMemoryResource::make();
        FAIL();
    } catch (std::runtime_error const& error) {
        EXPECT_NE(std::string{error.what()}.find("page-locked"), std::string::npos) << error.what();
    }
    EXPECT_EQ(PinnedMemoryResource::make_if_available({}), nullptr);
    EXPECT_EQ(PinnedMemoryResource::from_options(options({{"pinned_memory", "true"}})), nullptr);
}

TEST(PinnedMemoryResource, IsOffByDefault) {
    EXPECT_EQ(PinnedMemoryResource::from_options(options({})), nullptr);
    EXPECT_EQ(PinnedMemoryResource::from_options(options({{"pinned_memory", "no"}})), nullptr);
    EXPECT_THROW(
        (void)PinnedMemoryResource::from_options(options({{"pinned_memory", "perhaps"}})),
        std::invalid_argument);
}

TEST(PinnedMemoryResource, SizesComeFromTheOptions) {
    auto const properties = PinnedMemoryResource::properties_from_options(
        options({{"pinned_initial_pool_size", "1MiB"}, {"pinned_max_pool_size", "off"}}));
    EXPECT_EQ(properties.initial_pool_size, 1U << 20U);
    EXPECT_EQ(properties.max_pool_size, 0U);
    auto const share =
        PinnedMemoryResource::properties_from_options(options({{"pinned_max_pool_size", "50%"}}));
    EXPECT_EQ(share.initial_pool_size, 0U);
    EXPECT_GT(share.max_pool_size, 0U);
}

TEST(PinnedMemoryResource, PoolThatStartsBeyondItsEndIsRefused) {
    PinnedMemoryResource::Properties properties;
    properties.initial_pool_size = 2;
    properties.max_pool_size = 1;
    EXPECT_THROW((void)PinnedMemoryResource::make(properties), std::invalid_argument);
    EXPECT_THROW((void)PinnedMemoryResource::make_if_available(properties), std::invalid_argument);
}

// With a GPU.
class PinnedPool : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!PinnedMemoryResource::is_available()) {
            GTEST_SKIP() << "no page-locked memory on this machine: it needs a GPU";
        }
    }
};

TEST_F(PinnedPool, BlocksCanBeUsedByTheHostAndTheDevice) {
    auto const mr = PinnedMemoryResource::make();
    auto& device = Device::current();
    auto const stream = device.next_stream();
    constexpr std::size_t size = 1U << 20U;
    std::vector<char> expected(size, 'x');
    auto* const pinned = mr->allocate(size, stream);
    std::memcpy(pinned, expected.data(), size);
    auto* const on_device = device.allocate(size, stream);
    device.copy(on_device, pinned, size, stream);
    std::memset(expected.data(), 0, size);
    device.copy(expected.data(), on_device, size, stream);
    device.synchronize(stream);
    EXPECT_EQ(expected, std::vector<char>(size, 'x'));
    device.deallocate(on_device, size, stream);
    mr->deallocate(pinned, size, stream);
}

TEST_F(PinnedPool, BlockInUseByItsStreamIsNotHandedOutAgain) {
    auto const mr = PinnedMemoryResource::make();
    auto& device = Device::current();
    auto const stream = device.next_stream();
    constexpr std::size_t size = 64U << 20U;
    auto* const on_device = device.allocate(size, stream);
    auto* const first = mr->allocate(size, stream);
    std::memset(first, 1, size);
    device.copy(on_device, first, size, stream);
    mr->deallocate(first, size, stream);  // the copy may still read it
    auto* const second = mr->allocate(size, device.next_stream());
    std::memset(second, 2, size);
    std::vector<char> back(size);
    device.copy(back.data(), on_device, size, stream);
    device.synchronize(stream);
    EXPECT_EQ(back, std::vector<char>(size, 1));
    mr->deallocate(second, size, stream);
    device.deallocate(on_device, size, stream);
}

TEST_F(PinnedPool, MaximumIsKeptAndWhatIsGivenBackCountsAgain) {
    PinnedMemoryResource::Properties properties;
    properties.initial_pool_size = 64U << 20U;  // whatever of it is locked by now must not be in the way
    properties.max_pool_size = 128U << 20U;
    auto const mr = PinnedMemoryResource::make(properties);
    auto* const first = mr->allocate(96U << 20U, Stream{});
    EXPECT_THROW((void)mr->allocate(96U << 20U, Stream{}), OutOfMemory);
    mr->deallocate(first, 96U << 20U, Stream{});
    auto* const second = mr->allocate(96U << 20U, Stream{});
    mr->deallocate(second, 96U << 20U, Stream{});
}

}  // namespace
}  // namespace rapidsmpf
