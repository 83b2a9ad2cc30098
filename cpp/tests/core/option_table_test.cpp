#include <rapidsmpf/core/detail/option_table.hpp>

#include <cctype>
#include <set>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace rapidsmpf::config {
namespace {

Total of(std::int64_t total) {
    return [total] { return total; };
}

std::string error_of(auto const& read) {
    try {
        (void)read();
    } catch (std::invalid_argument const& error) {
        return error.what();
    }
    return "";
}

TEST(OptionTable, KeysAreUniqueAndNormal) {
    std::set<std::string_view> keys;
    for (auto const& info : option_table) {
        EXPECT_TRUE(keys.insert(info.key).second) << info.key;
        EXPECT_EQ(Options::normalise(info.key), info.key);
        EXPECT_FALSE(info.meaning.empty()) << info.key;
    }
}

// Every default is one that its own type can read, so a user may write it out.
TEST(OptionTable, DefaultsAreReadable) {
    for (auto const& info : option_table) {
        std::string const text{info.default_text};
        auto const off = info.off == OptionOff::yes && is_disabled(text);
        if (off) {
            continue;
        }
        switch (info.type) {
            case OptionType::boolean:
                EXPECT_NO_THROW((void)parse_bool(text)) << info.key;
                break;
            case OptionType::count:
                EXPECT_GT(std::stoll(text), 0) << info.key;
                break;
            case OptionType::bytes:
                EXPECT_NO_THROW((void)parse_bytes(text)) << info.key;
                break;
            case OptionType::share:
                EXPECT_NO_THROW((void)parse_bytes_or_percent(text, 100)) << info.key;
                break;
            case OptionType::fraction:
                EXPECT_EQ(text.back(), '%') << info.key;
                break;
            case OptionType::duration:
                EXPECT_GT(parse_duration(text), 0) << info.key;
                break;
            case OptionType::text:
                EXPECT_TRUE(info.words.empty() || info.words.find(text) != std::string_view::npos)
                    << info.key;
                break;
        }
    }
}

TEST(OptionTable, UnsetOptionsHaveTheirDefaults) {
    Options const options;
    EXPECT_FALSE(get_bool(options, "statistics"));
    EXPECT_EQ(get_count(options, "num_streams"), 16);
    EXPECT_EQ(get_bytes(options, "exchange_frame_bytes"), 4 << 20);
    EXPECT_EQ(get_optional_share(options, "spill_device_limit", of(1000)), 800);
    EXPECT_EQ(get_optional_share(options, "spill_disk_limit", of(1)), std::nullopt);
    EXPECT_EQ(get_optional_bytes(options, "memory_limit"), std::nullopt);
    EXPECT_DOUBLE_EQ(get_fraction(options, "spill_high_water"), 0.9);
    EXPECT_DOUBLE_EQ(get_seconds(options, "memory_reserve_timeout"), 0.1);
    EXPECT_EQ(get_optional_seconds(options, "periodic_spill_check"), 1e-3);
    EXPECT_EQ(get_text(options, "log"), "WARN");
    EXPECT_EQ(get_text(options, "spill_directory"), "");
}

TEST(OptionTable, BlankIsUnset) {
    EXPECT_EQ(get_count(Options{{{"num_streams", "  "}}}, "num_streams"), 16);
}

TEST(OptionTable, GivenOptionsAreRead) {
    Options const options{
        {{"statistics", "Yes"},
         {"num_streams", " 3 "},
         {"exchange_frame_bytes", "1 KiB"},
         {"spill_device_limit", "2 GB"},
         {"spill_disk_limit", "5e3"},
         {"spill_high_water", "0.5"},
         {"spill_low_water", "25 %"},
         {"memory_reserve_timeout", "2"},
         {"periodic_spill_check", "5 ms"},
         {"log", "debug"}}};
    EXPECT_TRUE(get_bool(options, "statistics"));
    EXPECT_EQ(get_count(options, "num_streams"), 3);
    EXPECT_EQ(get_bytes(options, "exchange_frame_bytes"), 1024);
    EXPECT_EQ(get_optional_share(options, "spill_device_limit", of(1000)), 2'000'000'000);
    EXPECT_EQ(
        get_optional_share(
            options, "spill_disk_limit", []() -> std::int64_t { throw std::logic_error{"not needed"}; }),
        5000);
    EXPECT_DOUBLE_EQ(get_fraction(options, "spill_high_water"), 0.5);
    EXPECT_DOUBLE_EQ(get_fraction(options, "spill_low_water"), 0.25);
    EXPECT_DOUBLE_EQ(get_seconds(options, "memory_reserve_timeout"), 2);
    EXPECT_EQ(get_optional_seconds(options, "periodic_spill_check"), 5e-3);
    EXPECT_EQ(get_text(options, "log"), "DEBUG");
}

TEST(OptionTable, OffIsNothing) {
    Options const options{
        {{"spill_device_limit", "OFF"}, {"spill_disk_limit", "no"}, {"periodic_spill_check", "disabled"}}};
    EXPECT_EQ(get_optional_share(options, "spill_device_limit", of(1000)), std::nullopt);
    EXPECT_EQ(get_optional_share(options, "spill_disk_limit", of(1)), std::nullopt);
    EXPECT_EQ(get_optional_seconds(options, "periodic_spill_check"), std::nullopt);
    EXPECT_EQ(get_optional_seconds(options, "periodic_spill_check"), std::nullopt);
}

TEST(OptionTable, UnreadableValuesNameTheOptionAndTheText) {
    auto const expect_refused = [](std::string const& key, std::string const& text, auto const& get) {
        Options const options{{{key, text}}};
        auto const error = error_of([&] { return get(options); });
        EXPECT_NE(error.find(key), std::string::npos) << text << ": " << error;
        EXPECT_NE(error.find(text), std::string::npos) << text << ": " << error;
        // And it can be corrected: nothing was kept.
        EXPECT_NO_THROW((void)options.get_strings());
    };
    for (auto const* text : {"perhaps", "2", "truee", "tr ue"}) {
        expect_refused("statistics", text, [](Options const& o) { return get_bool(o, "statistics"); });
    }
    for (auto const* text : {"0", "-1", "1.5", "many", "0x10", "99999999999999999999"}) {
        expect_refused("num_streams", text, [](Options const& o) { return get_count(o, "num_streams"); });
    }
    for (auto const* text : {"-1", "1 furlong", "nan", "inf", "1e300"}) {
        expect_refused("exchange_frame_bytes", text, [](Options const& o) {
            return get_bytes(o, "exchange_frame_bytes");
        });
    }
    for (auto const* text : {"101%", "-1%", "-5", "%", "on"}) {
        expect_refused("spill_device_limit", text, [](Options const& o) {
            return get_optional_share(o, "spill_device_limit", of(100)).value_or(0);
        });
    }
    for (auto const* text : {"0", "1.1", "101%", "-1", "%", "half"}) {
        expect_refused(
            "spill_high_water", text, [](Options const& o) { return get_fraction(o, "spill_high_water"); });
    }
    for (auto const* text : {"0", "-1s", "off", "5 fortnights", "0.1 ns", "1e300"}) {
        expect_refused("memory_reserve_timeout", text, [](Options const& o) {
            return get_seconds(o, "memory_reserve_timeout");
        });
    }
    expect_refused("log", "gzip", [](Options const& o) { return get_text(o, "log"); });
}

TEST(OptionTable, AnOptionReadWithAnotherTypeIsRefused) {
    Options options{{{"num_streams", "3"}}};
    (void)options.get<std::string>("num_streams", [](std::string const& text) { return text; });
    EXPECT_THROW((void)get_count(options, "num_streams"), std::invalid_argument);
}

TEST(OptionTable, ChecksATextOfAnyOption) {
    for (auto const& info : option_table) {
        EXPECT_NO_THROW(check_option(info.key, std::string{info.default_text})) << info.key;
        EXPECT_NO_THROW(check_option(info.key, " ")) << info.key;
        if (info.off == OptionOff::yes) {
            EXPECT_NO_THROW(check_option(info.key, "Disabled")) << info.key;
        }
        if (info.type != OptionType::text || !info.words.empty()) {
            EXPECT_NE(
                error_of([&] {
                    check_option(info.key, "???");
                    return 0;
                }).find(std::string{info.key}),
                std::string::npos)
                << info.key;
        }
    }
    EXPECT_THROW(check_option("spill_io_threads", "-5"), std::invalid_argument);
    EXPECT_THROW(check_option("memory_limit", "80%"), std::invalid_argument);
    EXPECT_NO_THROW(check_option("spill_disk_limit", "80%"));
    EXPECT_THROW(check_option("memory_reserve_timeout", "off"), std::invalid_argument);
    EXPECT_THROW(check_option("spil_directory", "/tmp"), std::out_of_range);
}

}  // namespace
}  // namespace rapidsmpf::config
