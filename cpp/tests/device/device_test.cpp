#include <rapidsmpf/device/device.hpp>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {
namespace {

// Every test of the seam runs on the CPU device, and on a GPU where there is one.
class DeviceTest : public testing::TestWithParam<DeviceKind> {
  protected:
    void SetUp() override {
        if (GetParam() == DeviceKind::cpu) {
            device_ = device::make_cpu_device();
            return;
        }
        std::string reason;
        device_ = device::make_cuda_device(reason);
        if (!device_) {
            GTEST_SKIP() << "no usable GPU: " << reason;
        }
    }
    std::unique_ptr<Device> device_;
};

TEST_P(DeviceTest, CopiesThereAndBack) {
    std::vector<std::uint8_t> in(100'000);
    std::iota(in.begin(), in.end(), std::uint8_t{0});
    std::vector<std::uint8_t> out(in.size());
    auto const stream = device_->next_stream();
    void* const memory = device_->allocate(in.size(), stream);
    device_->copy(memory, in.data(), in.size(), stream);
    device_->copy(out.data(), memory, out.size(), stream);
    device_->synchronize(stream);
    device_->deallocate(memory, in.size(), stream);
    EXPECT_EQ(in, out);
}

TEST_P(DeviceTest, MemoryIsAligned) {
    void* const memory = device_->allocate(1, Stream{});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % Device::alignment, 0U);
    device_->deallocate(memory, 1, Stream{});
}

TEST_P(DeviceTest, EventIsDoneAfterSynchronize) {
    auto const stream = device_->next_stream();
    auto const event = device_->make_event();
    event->record(stream);
    event->synchronize();
    EXPECT_TRUE(event->is_done());
}

TEST_P(DeviceTest, KnowsItsMemory) {
    EXPECT_GT(device_->total_memory(), 0);
    EXPECT_GT(device_->used_memory(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DeviceTest, testing::Values(DeviceKind::cpu, DeviceKind::cuda),
    [](auto const& info) { return info.param == DeviceKind::cpu ? "cpu" : "cuda"; });

}  // namespace
}  // namespace rapidsmpf
