#include <rapidsmpf/streaming/context.hpp>

#include <stdexcept>

#include <gtest/gtest.h>

namespace rapidsmpf::streaming {
namespace {

TEST(Context, MakesItsExecutorFromTheOptions) {
    Context context{config::Options{{{"num_streaming_threads", "2"}}}, nullptr, BufferResource::make()};
    EXPECT_EQ(context.executor()->num_threads(), 2U);
}

TEST(Context, NeedsAResource) {
    EXPECT_THROW((Context{config::Options{}, nullptr, nullptr}), std::invalid_argument);
}

TEST(Context, SaysWhenThereIsNoCommunicator) {
    Context const context{config::Options{}, nullptr, BufferResource::make()};
    EXPECT_THROW((void)context.communicator(), std::logic_error);
}

TEST(Context, CreatesChannelsThatSpill) {
    Context const context{config::Options{}, nullptr, BufferResource::make()};
    auto const channel = context.create_channel(ChannelCapacity{7, 100});
    EXPECT_EQ(channel->capacity().messages(), 7U);
    EXPECT_EQ(channel->capacity().bytes(), 100U);
    EXPECT_TRUE(channel->send_blocking(
        Message{
            0,
            PackedData{std::vector<std::uint8_t>{1}, context.resource()->allocate(MemoryType::DEVICE, 50)}}));
    EXPECT_EQ(context.resource()->spill_manager().spill(1), 50U);
}

TEST(Context, ShutdownIsIdempotent) {
    Context context{config::Options{}, nullptr, BufferResource::make()};
    context.shutdown();
    context.shutdown();
}

}  // namespace
}  // namespace rapidsmpf::streaming
