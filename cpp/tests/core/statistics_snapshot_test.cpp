#include <rapidsmpf/core/statistics_snapshot.hpp>

#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/statistics.hpp>

namespace rapidsmpf {
namespace {

using Unit = StatisticUnit;
using Kind = StatisticKind;
using Bytes = std::vector<std::uint8_t>;

StatisticsSnapshot example() {
    StatisticsSnapshot snapshot;
    snapshot.add("a", {{3, 8.5, 5}, Unit::bytes, Kind::sum});
    snapshot.add("bb", {{2, 7, 7}, Unit::none, Kind::peak});
    snapshot.add("c c", {{1, -0.25, -0.25}, Unit::seconds, Kind::sum});
    return snapshot;
}

bool same(StatisticsSnapshot const& a, StatisticsSnapshot const& b) {
    return a.serialize() == b.serialize() && a.to_json() == b.to_json();
}

// With the checksum that the changed bytes need.
Bytes sealed(Bytes bytes) {
    bytes.resize(bytes.size() - 4);
    auto const crc = crc32(bytes);
    for (unsigned i = 0; i < 4; ++i) {
        bytes.push_back(static_cast<std::uint8_t>(crc >> (8 * i)));
    }
    return bytes;
}

TEST(StatisticsSnapshot, SerialRoundTrip) {
    EXPECT_TRUE(same(StatisticsSnapshot::deserialize(example().serialize()), example()));
    EXPECT_TRUE(StatisticsSnapshot::deserialize(StatisticsSnapshot{}.serialize()).entries().empty());
}

TEST(StatisticsSnapshot, EveryValueSurvives) {
    for (double const value :
         {0.0, -0.0, 1e300, std::numeric_limits<double>::infinity(),
          std::numeric_limits<double>::denorm_min()}) {
        StatisticsSnapshot snapshot;
        snapshot.add("x", {{~std::uint64_t{0}, value, value}, Unit::none, Kind::sum});
        auto const stat = StatisticsSnapshot::deserialize(snapshot.serialize()).entries().at("x").stat;
        EXPECT_EQ(std::memcmp(&stat.value, &value, sizeof value), 0);
        EXPECT_EQ(stat.count, ~std::uint64_t{0});
    }
}

TEST(StatisticsSnapshot, AnyFlippedBitIsAFormatError) {
    auto const bytes = example().serialize();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        for (unsigned bit = 0; bit < 8; ++bit) {
            auto broken = bytes;
            broken[i] = static_cast<std::uint8_t>(broken[i] ^ (1U << bit));
            EXPECT_THROW((void)StatisticsSnapshot::deserialize(broken), FormatError) << "byte " << i;
        }
    }
}

TEST(StatisticsSnapshot, EveryTruncationIsAFormatErrorEvenWithItsChecksum) {
    auto const bytes = example().serialize();
    for (std::size_t n = 0; n < bytes.size(); ++n) {
        Bytes const shorter{bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)};
        EXPECT_THROW((void)StatisticsSnapshot::deserialize(shorter), FormatError);
        if (n >= 4) {
            EXPECT_THROW((void)StatisticsSnapshot::deserialize(sealed(shorter)), FormatError);
        }
    }
}

TEST(StatisticsSnapshot, LiesWithARightChecksumAreFormatErrors) {
    auto const bytes = example().serialize();
    auto const with = [&](std::size_t at, std::uint8_t value) {
        auto broken = bytes;
        broken[at] = value;
        return sealed(broken);
    };
    constexpr std::size_t version = 4;
    constexpr std::size_t flags = 5;
    constexpr std::size_t count = 8;
    constexpr std::size_t first_name_size = 12;
    constexpr std::size_t first_unit = first_name_size + 4 + 1;
    for (auto const& broken :
         {with(0, 'x'), with(version, 2), with(flags, 1), with(count, 4), with(count, 2), with(count, 0),
          with(count + 3, 0xff), with(first_name_size, 0xff), with(first_name_size + 3, 0xff),
          with(first_unit, 3), with(first_unit + 1, 2), with(first_unit + 2, 0),
          with(first_name_size + 4, 'z')}) {
        EXPECT_THROW((void)StatisticsSnapshot::deserialize(broken), FormatError);
    }
    EXPECT_NO_THROW((void)StatisticsSnapshot::deserialize(sealed(bytes)));
}

TEST(StatisticsSnapshot, WhatCannotBeReadBackIsNotSerialised) {
    StatisticsSnapshot long_name;
    long_name.add(std::string(StatisticsSnapshot::longest_name + 1, 'x'), {{1, 1, 1}});
    EXPECT_THROW((void)long_name.serialize(), std::invalid_argument);
    StatisticsSnapshot many;
    for (std::size_t i = 0; i <= StatisticsSnapshot::max_stats; ++i) {
        many.add(std::to_string(i), {{1, 1, 1}});
    }
    EXPECT_THROW((void)many.serialize(), std::invalid_argument);
}

TEST(StatisticsSnapshot, MergingIsTheSameInAnyOrder) {
    StatisticsSnapshot other;
    other.add("a", {{1, 2, 2}, Unit::bytes, Kind::sum});
    other.add("bb", {{1, 9, 9}, Unit::none, Kind::peak});
    other.add("d", {{1, 1, 1}});
    auto left = example();
    left.merge(other);
    auto right = other;
    right.merge(example());
    EXPECT_TRUE(same(left, right));
    EXPECT_DOUBLE_EQ(left.entries().at("a").stat.value, 10.5);
    EXPECT_DOUBLE_EQ(left.entries().at("bb").stat.value, 9);
}

TEST(StatisticsSnapshot, JsonHasCountValueAndMax) {
    Statistics statistics;
    statistics.add("x", 2.5);
    EXPECT_EQ(statistics.to_json(), R"({"statistics": {"x": {"count": 1, "value": 2.5, "max": 2.5}}})");
    EXPECT_EQ(StatisticsSnapshot{}.to_json(R"("more": {})"), R"({"statistics": {}, "more": {}})");
}

TEST(StatisticsSnapshot, JsonHasNullForWhatIsNoNumber) {
    Statistics statistics;
    statistics.add("x", std::numeric_limits<double>::infinity());
    EXPECT_NE(statistics.to_json().find(R"("value": null)"), std::string::npos);
}

TEST(StatisticsSnapshot, JsonRefusesNamesThatNeedEscapes) {
    for (auto const* name : {"a\"b", "a\\b", "a\nb", "\x1f"}) {
        Statistics statistics;
        statistics.add(name, 1);
        EXPECT_THROW((void)statistics.to_json(), std::invalid_argument);
    }
}

TEST(StatisticsReport, IsSortedAndInTheUnitOfEach) {
    auto const text = example().report("Title");
    EXPECT_EQ(
        text,
        "Title\n"
        " - a:   8 B | count 3 | avg 3 B | max 5 B\n"
        " - bb:  7\n"
        " - c c: -250.00 ms | count 1 | avg -250.00 ms | max -250.00 ms\n");
}

TEST(StatisticsReport, GivesBytesWithATimeTheirBandwidth) {
    Statistics statistics;
    statistics.add(statistic::id("disk-write-bytes"), 3.0 * (1U << 30U));
    statistics.add(statistic::id("disk-write-seconds"), 1.5);
    EXPECT_NE(statistics.report().find("max 3.00 GiB | 2.00 GiB/s\n"), std::string::npos);
}

TEST(StatisticsReport, OfDisabledStatisticsSaysSo) {
    EXPECT_EQ(Statistics{Statistics::Enabled::no}.report("Title:"), "Title: disabled\n");
}

}  // namespace
}  // namespace rapidsmpf
