#include <rapidsmpf/core/config.hpp>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::config {
namespace {

int to_int(std::string const& text) {
    return text.empty() ? 7 : std::stoi(text);
}

TEST(Options, KeysAreTrimmedAndLowerCase) {
    Options options{{{"  Some_KEY ", "3"}}};
    EXPECT_EQ(options.get<int>("some_key", to_int), 3);
}

TEST(Options, FactoryGetsAnEmptyStringForAnUnsetKey) {
    Options options;
    EXPECT_EQ(options.get<int>("unset", to_int), 7);
}

TEST(Options, CopiesShareValues) {
    Options options;
    Options const copy = options;
    options.insert_if_absent({{"a", "1"}});
    EXPECT_EQ(copy.get_strings().at("a"), "1");
}

TEST(Options, InsertIfAbsentCountsOnlyNewKeys) {
    Options options{{{"a", "1"}}};
    EXPECT_EQ(options.insert_if_absent({{"A", "2"}, {"b", "3"}}), 1U);
    EXPECT_EQ(options.get_strings().at("a"), "1");
}

TEST(Options, SecondTypeForAKeyIsRefused) {
    Options options{{{"a", "1"}}};
    (void)options.get<int>("a", to_int);
    EXPECT_THROW(
        (void)options.get<std::string>("a", [](std::string const& text) { return text; }),
        std::invalid_argument);
}

TEST(Options, SerialRoundTrip) {
    Options options{{{"a", "1"}, {"long_key", std::string(1000, 'x')}, {"empty", ""}}};
    EXPECT_EQ(Options::deserialize(options.serialize()).get_strings(), options.get_strings());
}

TEST(Options, ReadOptionsCannotBeSerialised) {
    Options options{{{"a", "1"}}};
    (void)options.get<int>("a", to_int);
    EXPECT_THROW((void)options.serialize(), std::invalid_argument);
}

TEST(Options, AnyFlippedBitIsAFormatError) {
    auto const bytes = Options{{{"a", "1"}, {"bb", "22"}}}.serialize();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        for (unsigned bit = 0; bit < 8; ++bit) {
            auto broken = bytes;
            broken[i] = static_cast<std::uint8_t>(broken[i] ^ (1U << bit));
            EXPECT_THROW((void)Options::deserialize(broken), FormatError) << "byte " << i;
        }
    }
}

TEST(Options, EveryTruncationIsAFormatError) {
    auto const bytes = Options{{{"a", "1"}, {"bb", "22"}}}.serialize();
    for (std::size_t n = 0; n < bytes.size(); ++n) {
        EXPECT_THROW(
            (void)Options::deserialize({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}),
            FormatError);
    }
}

TEST(Options, WhatCannotBeParsedLeavesNoTrace) {
    Options options;
    auto const fail = [](std::string const&) -> int { throw std::invalid_argument{"no"}; };
    EXPECT_THROW((void)options.get<int>("key", fail), std::invalid_argument);
    EXPECT_TRUE(options.get_strings().empty());
    EXPECT_EQ(options.insert_if_absent({{"key", "3"}}), 1U);
    EXPECT_THROW((void)options.get<int>("key", fail), std::invalid_argument);
    EXPECT_EQ(options.get<int>("key", to_int), 3);
}

TEST(Options, WhatCouldNotBeReadBackIsNotSerialised) {
    EXPECT_THROW((void)(Options{{{std::string(4097, 'k'), ""}}}.serialize()), std::invalid_argument);
    EXPECT_THROW(
        (void)(Options{{{"k", std::string((1U << 20U) + 1, 'v')}}}.serialize()), std::invalid_argument);
    Options const largest{{{std::string(4096, 'k'), std::string(1U << 20U, 'v')}}};
    EXPECT_EQ(Options::deserialize(largest.serialize()).get_strings(), largest.get_strings());
}

// A serialised { a: 1, bb: 22 } whose 64-bit word at `at` is replaced, with the checksum that it then needs.
std::vector<std::uint8_t> with_word(std::size_t at, std::uint64_t value) {
    auto bytes = Options{{{"a", "1"}, {"bb", "22"}}}.serialize();
    bytes.resize(bytes.size() - 4);
    for (unsigned i = 0; i < 8; ++i) {
        bytes[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
    }
    auto const crc = crc32(bytes);
    for (unsigned i = 0; i < 4; ++i) {
        bytes.push_back(static_cast<std::uint8_t>(crc >> (8 * i)));
    }
    return bytes;
}

TEST(Options, LiesWithARightChecksumAreFormatErrors) {
    constexpr std::size_t count = 8;
    constexpr std::size_t offsets = 16;
    constexpr std::uint64_t first = offsets + 4 * 8;
    EXPECT_NO_THROW((void)Options::deserialize(with_word(count, 2)));
    for (std::uint64_t const lie :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{65537}, std::uint64_t{1} << 60U,
          ~std::uint64_t{0}}) {
        EXPECT_THROW((void)Options::deserialize(with_word(count, lie)), FormatError) << lie;
    }
    for (std::size_t word = 0; word < 4; ++word) {
        for (std::uint64_t const lie : {std::uint64_t{0}, first - 1, first + 100, ~std::uint64_t{0}}) {
            EXPECT_THROW((void)Options::deserialize(with_word(offsets + 8 * word, lie)), FormatError) << lie;
        }
    }
}

TEST(Environment, KeysAreTheCaptureGroup) {
    ::setenv("RAPIDSMPF_TEST_CAPTURE", "bar", 1);
    EXPECT_EQ(get_environment_variables().at("TEST_CAPTURE"), "bar");
    ::unsetenv("RAPIDSMPF_TEST_CAPTURE");
}

TEST(Environment, NeedsExactlyOneCaptureGroup) {
    EXPECT_THROW((void)get_environment_variables("RAPIDSMPF_.*"), std::invalid_argument);
    EXPECT_THROW((void)get_environment_variables("(R)(A)"), std::invalid_argument);
}

TEST(Parse, Bytes) {
    EXPECT_EQ(parse_bytes("1KiB"), 1024);
    EXPECT_EQ(parse_bytes(" 2 MB "), 2'000'000);
    EXPECT_EQ(parse_bytes("1e6"), 1'000'000);
    EXPECT_EQ(parse_bytes("1.5 GiB"), 1'610'612'736);
    EXPECT_THROW((void)parse_bytes("many"), std::invalid_argument);
    EXPECT_THROW((void)parse_bytes("1 furlong"), std::invalid_argument);
}

TEST(Parse, BytesOrPercent) {
    EXPECT_EQ(parse_bytes_or_percent("80%", 1000), 800);
    EXPECT_EQ(parse_bytes_or_percent("1 KiB", 1000), 1024);
    EXPECT_THROW((void)parse_bytes_or_percent("101%", 1000), std::invalid_argument);
    // As a double this total is 2^63.
    constexpr auto everything = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(parse_bytes_or_percent("100%", everything), everything);
    EXPECT_LT(parse_bytes_or_percent("99%", everything), everything);
}

TEST(Parse, Bool) {
    EXPECT_TRUE(parse_bool("Yes"));
    EXPECT_FALSE(parse_bool("off"));
    EXPECT_THROW((void)parse_bool("maybe"), std::invalid_argument);
}

TEST(Parse, Duration) {
    EXPECT_DOUBLE_EQ(parse_duration("100ms"), 0.1);
    EXPECT_DOUBLE_EQ(parse_duration("2"), 2.0);
    EXPECT_THROW((void)parse_duration("-1s"), std::invalid_argument);
    // A clock can be asked for the time then.
    EXPECT_DOUBLE_EQ(parse_duration("1e9"), 1e9);
    for (auto const* text : {"1.1e9", "1e300", "1e308 h"}) {
        EXPECT_THROW((void)parse_duration(text), std::invalid_argument) << text;
    }
}

}  // namespace
}  // namespace rapidsmpf::config
