#include <rapidsmpf/exchange/settings.hpp>

#include <stdexcept>

#include <gtest/gtest.h>

namespace rapidsmpf::exchange {
namespace {

TEST(Settings, DefaultsOfTheOptionsAreThoseOfTheStruct) {
    Settings const expected;
    auto const settings = Settings::from_options(config::Options{});
    EXPECT_EQ(settings.gather_limit, expected.gather_limit);
    EXPECT_EQ(settings.frame_bytes, expected.frame_bytes);
    EXPECT_EQ(settings.eager_bytes, expected.eager_bytes);
    EXPECT_EQ(settings.announce_bytes, expected.announce_bytes);
    EXPECT_EQ(settings.split_bytes, expected.split_bytes);
    EXPECT_EQ(settings.receive_limit, expected.receive_limit);
}

TEST(Settings, EveryOptionIsRead) {
    auto const settings = Settings::from_options(
        config::Options{
            {{"exchange_gather_limit", "1"},
             {"exchange_frame_bytes", "2"},
             {"exchange_eager_bytes", "3"},
             {"exchange_announce_bytes", "4"},
             {"exchange_split_bytes", "5"},
             {"exchange_receive_limit", "6 KiB"}}});
    EXPECT_EQ(settings.gather_limit, 1U);
    EXPECT_EQ(settings.frame_bytes, 2U);
    EXPECT_EQ(settings.eager_bytes, 3U);
    EXPECT_EQ(settings.announce_bytes, 4U);
    EXPECT_EQ(settings.split_bytes, 5U);
    EXPECT_EQ(settings.receive_limit, 6144U);
}

TEST(Settings, SizesThatCannotBeAreRefused) {
    for (auto const* text : {"0", "-1", "much"}) {
        EXPECT_THROW(
            (void)Settings::from_options(config::Options{{{"exchange_split_bytes", text}}}),
            std::invalid_argument)
            << text;
    }
}

}  // namespace
}  // namespace rapidsmpf::exchange
