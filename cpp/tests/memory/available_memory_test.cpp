#include <rapidsmpf/memory/available_memory.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include <rapidsmpf/memory/memory_type.hpp>

namespace rapidsmpf {
namespace {

std::shared_ptr<RmmResourceAdaptor> over_host() {
    return std::make_shared<RmmResourceAdaptor>(std::make_shared<HostMemoryResource>());
}

AvailableMemoryMap with_limit(std::shared_ptr<RmmResourceAdaptor> const& mr, std::string const& limit) {
    return available_memory_from_options(mr, config::Options{config::Strings{{"spill_device_limit", limit}}});
}

auto& device_entry(AvailableMemoryMap& map) {
    return map[static_cast<std::size_t>(MemoryType::DEVICE)];
}

TEST(LimitAvailableMemory, IsTheLimitLessWhatIsInUse) {
    auto const mr = over_host();
    LimitAvailableMemory const available{mr, 100};
    EXPECT_EQ(available(), 100);
    auto* const pointer = mr->allocate(130, Stream{});
    EXPECT_EQ(available(), -30);
    mr->deallocate(pointer, 130, Stream{});
    EXPECT_EQ(available(), 100);
}

TEST(LimitAvailableMemory, NeedsAnAdaptor) {
    EXPECT_THROW((LimitAvailableMemory{nullptr, 1}), std::invalid_argument);
}

TEST(AvailableMemory, FollowsTheAdaptorAndTheLimit) {
    auto const mr = over_host();
    // More than any process has resident, so that the adaptor alone decides.
    auto map = with_limit(mr, "1000TiB");
    auto const before = device_entry(map)();
    auto* const pointer = mr->allocate(1000, Stream{});
    EXPECT_LE(device_entry(map)(), (std::int64_t{1000} << 40U) - 1000);
    EXPECT_LE(before, std::int64_t{1000} << 40U);
    mr->deallocate(pointer, 1000, Stream{});
}

TEST(AvailableMemory, ResidentMemoryCountsOnACpu) {
    if (Device::current().kind() != DeviceKind::cpu) {
        GTEST_SKIP() << "the device has memory of its own";
    }
    auto map = with_limit(over_host(), "1");  // one byte: the process itself is larger
    EXPECT_LT(device_entry(map)(), 0);
}

TEST(AvailableMemory, SwitchedOffIsUnlimited) {
    auto const map = with_limit(over_host(), "off");
    for (auto const& entry : map) {
        EXPECT_FALSE(entry);
    }
}

TEST(AvailableMemory, OtherTiersAreUnlimited) {
    auto const map = with_limit(over_host(), "1GiB");
    EXPECT_TRUE(map[0]);
    EXPECT_FALSE(map[1]);
    EXPECT_FALSE(map[2]);
    EXPECT_FALSE(map[3]);
}

}  // namespace
}  // namespace rapidsmpf
