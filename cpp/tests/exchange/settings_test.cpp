#include <rapidsmpf/exchange/settings.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include <gtest/gtest.h>

#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::exchange {
namespace {

TEST(Settings, DefaultsOfTheOptionsAreThoseOfTheStruct) {
    auto const expected = Settings::for_device(Device::current());
    auto const settings = Settings::from_options(config::Options{});
    EXPECT_EQ(settings.gather_limit, expected.gather_limit);
    EXPECT_EQ(settings.frame_bytes, expected.frame_bytes);
    EXPECT_EQ(settings.eager_bytes, expected.eager_bytes);
    EXPECT_EQ(settings.announce_bytes, expected.announce_bytes);
    EXPECT_EQ(settings.split_bytes, expected.split_bytes);
    EXPECT_EQ(settings.receive_limit, expected.receive_limit);
    EXPECT_EQ(settings.bundle_bytes, expected.bundle_bytes);
    EXPECT_EQ(settings.flush_bytes, expected.flush_bytes);
    EXPECT_EQ(settings.flush_delay, expected.flush_delay);
}

// What the table of options says about a CPU is what the struct begins with.
TEST(Settings, DefaultsOfTheTableAreThoseOfTheStruct) {
    auto const in_table = [](std::string_view key) {
        return config::parse_bytes(
            std::find_if(config::option_table.begin(), config::option_table.end(), [&](auto const& row) {
                return row.key == key;
            })->default_text);
    };
    Settings const settings;
    EXPECT_EQ(in_table("exchange_gather_limit"), static_cast<std::int64_t>(settings.gather_limit));
    EXPECT_EQ(in_table("exchange_frame_bytes"), static_cast<std::int64_t>(settings.frame_bytes));
    EXPECT_EQ(in_table("exchange_eager_bytes"), static_cast<std::int64_t>(settings.eager_bytes));
    EXPECT_EQ(in_table("exchange_announce_bytes"), static_cast<std::int64_t>(settings.announce_bytes));
    EXPECT_EQ(in_table("exchange_split_bytes"), static_cast<std::int64_t>(settings.split_bytes));
    EXPECT_EQ(in_table("exchange_receive_limit"), static_cast<std::int64_t>(settings.receive_limit));
    EXPECT_EQ(in_table("exchange_bundle_bytes"), static_cast<std::int64_t>(settings.bundle_bytes));
    EXPECT_EQ(in_table("exchange_flush_bytes"), static_cast<std::int64_t>(settings.flush_bytes));
    EXPECT_EQ(
        std::chrono::microseconds{
            std::llround(config::get_seconds(config::Options{}, "exchange_flush_delay") * 1e6)},
        settings.flush_delay);
}

TEST(Settings, OfACpuAreThoseOfTheStruct) {
    auto const cpu = device::make_cpu_device();
    auto const settings = Settings::for_device(*cpu);
    EXPECT_EQ(settings.frame_bytes, Settings().frame_bytes);
    EXPECT_EQ(settings.receive_limit, Settings().receive_limit);
}

TEST(Settings, EveryOptionIsRead) {
    auto const settings = Settings::from_options(
        config::Options{
            {{"exchange_gather_limit", "1"},
             {"exchange_frame_bytes", "2"},
             {"exchange_eager_bytes", "3"},
             {"exchange_announce_bytes", "4"},
             {"exchange_split_bytes", "5"},
             {"exchange_receive_limit", "6 KiB"},
             {"exchange_bundle_bytes", "0"},
             {"exchange_flush_bytes", "8"},
             {"exchange_flush_delay", "9 ms"}}});
    EXPECT_EQ(settings.gather_limit, 1U);
    EXPECT_EQ(settings.frame_bytes, 2U);
    EXPECT_EQ(settings.eager_bytes, 3U);
    EXPECT_EQ(settings.announce_bytes, 4U);
    EXPECT_EQ(settings.split_bytes, 5U);
    EXPECT_EQ(settings.receive_limit, 6144U);
    EXPECT_EQ(settings.bundle_bytes, 0U);
    EXPECT_EQ(settings.flush_bytes, 8U);
    EXPECT_EQ(settings.flush_delay, std::chrono::milliseconds{9});
}

TEST(Settings, SizesThatCannotBeAreRefused) {
    for (auto const* key : {"exchange_split_bytes", "exchange_flush_bytes", "exchange_flush_delay"}) {
        for (auto const* text : {"0", "-1", "much"}) {
            EXPECT_THROW((void)Settings::from_options(config::Options{{{key, text}}}), std::invalid_argument)
                << key << "=" << text;
        }
    }
}

}  // namespace
}  // namespace rapidsmpf::exchange
