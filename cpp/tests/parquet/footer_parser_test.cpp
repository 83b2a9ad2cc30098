// Row groups are read out of footers that a small writer of Thrift's compact protocol makes; what is damaged is refused.
#include <rapidsmpf/parquet/detail/footer_parser.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::parquet {
namespace {

// Writes structures: fields in any order, lists, texts.
class CompactWriter {
  public:
    using Body = std::function<void(CompactWriter&)>;

    CompactWriter& integer(int field, std::int64_t value, std::uint8_t type = 6) {
        header(field, type);
        varint(zigzag(value));
        return *this;
    }
    CompactWriter& text(int field, std::string const& value) {
        header(field, 8);
        raw_text(value);
        return *this;
    }
    CompactWriter& structure(int field, Body const& body) {
        header(field, 12);
        nested(body);
        return *this;
    }
    CompactWriter& list(int field, std::uint8_t element, std::size_t n, Body const& body) {
        header(field, 9);
        list_header(element, n);
        nested_values(body);
        return *this;
    }
    CompactWriter& header(int field, std::uint8_t type) {
        auto const delta = field - last_;
        if (delta > 0 && delta < 16) {
            bytes.push_back(static_cast<std::uint8_t>(delta << 4 | type));
        } else {
            bytes.push_back(type);
            varint(zigzag(field));
        }
        last_ = field;
        return *this;
    }
    void list_header(std::uint8_t element, std::size_t n) {
        if (n < 15) {
            bytes.push_back(static_cast<std::uint8_t>(n << 4 | element));
        } else {
            bytes.push_back(static_cast<std::uint8_t>(0xF0 | element));
            varint(n);
        }
    }
    void raw_text(std::string const& value) {
        varint(value.size());
        bytes.insert(bytes.end(), value.begin(), value.end());
    }
    void raw_integer(std::int64_t value) { varint(zigzag(value)); }
    void nested(Body const& body) {
        nested_values(body);
        bytes.push_back(0);
    }
    void varint(std::uint64_t value) {
        for (; value >= 0x80; value >>= 7U) {
            bytes.push_back(static_cast<std::uint8_t>(value | 0x80U));
        }
        bytes.push_back(static_cast<std::uint8_t>(value));
    }

    std::vector<std::uint8_t> bytes;

  private:
    static std::uint64_t zigzag(std::int64_t value) {
        return static_cast<std::uint64_t>(value) << 1U ^ static_cast<std::uint64_t>(value >> 63);
    }
    void nested_values(Body const& body) {
        auto const last = std::exchange(last_, 0);
        body(*this);
        last_ = last;
    }
    int last_{0};
};

void column_meta(CompactWriter& w, std::size_t group, std::size_t column) {
    auto const offset = static_cast<std::int64_t>(1000 * group + 100 * column);
    w.integer(1, 2, 5);
    w.list(2, 5, 2, [](CompactWriter& v) {
        v.raw_integer(0);
        v.raw_integer(8);
    });
    w.list(3, 8, 2, [&](CompactWriter& v) {
        v.raw_text("part" + std::to_string(column));
        v.raw_text("below");
    });
    w.integer(4, 1, 5).integer(5, 10).integer(6, 80).integer(7, 90).integer(9, offset + 20);
    if (column % 2 == 1) {
        w.integer(11, offset);
    }
    w.structure(12, [](CompactWriter& v) { v.text(5, std::string(3, '\xff')).integer(3, 0).header(7, 1); });
    if (column == 2) {
        w.structure(16, [](CompactWriter& v) { v.integer(1, 77); });
    }
    w.header(
        20, 7);  // what no version has yet: a floating-point number, a map, a UUID, lists of truth values
    w.bytes.insert(w.bytes.end(), 8, 0x55);
    w.header(21, 11);
    w.varint(2);
    w.bytes.push_back(0x85);  // texts to 32-bit numbers
    for (int i = 0; i < 2; ++i) {
        w.raw_text("key");
        w.raw_integer(-5);
    }
    w.header(22, 13);
    w.bytes.insert(w.bytes.end(), 16, 0x66);
    w.list(23, 2, 3, [](CompactWriter& v) { v.bytes.insert(v.bytes.end(), {1, 2, 1}); });
    w.header(24, 11);
    w.varint(0);
}

struct Shape {
    std::size_t groups{3};
    std::size_t columns{3};
    std::size_t odd_group{99};  // has columns in another order
};

std::vector<std::uint8_t> footer(
    Shape const& shape, CompactWriter::Body const& more = [](CompactWriter&) {}) {
    CompactWriter w;
    w.integer(1, 2, 5);
    w.list(2, 12, 1, [](CompactWriter& v) { v.nested([](CompactWriter& e) { e.text(4, "schema"); }); });
    w.integer(3, static_cast<std::int64_t>(10 * shape.groups));
    w.list(4, 12, shape.groups, [&](CompactWriter& groups) {
        for (std::size_t g = 0; g < shape.groups; ++g) {
            groups.nested([&](CompactWriter& group) {
                group.list(1, 12, shape.columns, [&](CompactWriter& columns) {
                    for (std::size_t c = 0; c < shape.columns; ++c) {
                        columns.nested([&](CompactWriter& chunk) {
                            chunk.integer(2, 4);
                            chunk.structure(3, [&](CompactWriter& meta) {
                                column_meta(meta, g, g == shape.odd_group ? shape.columns - 1 - c : c);
                            });
                            chunk.integer(4, 123456789);
                        });
                    }
                });
                group.integer(2, 240).integer(3, 10 + static_cast<std::int64_t>(g));
            });
        }
    });
    w.text(6, "a writer");
    more(w);
    w.bytes.push_back(0);
    return w.bytes;
}

TEST(FooterParser, ReadsRowGroups) {
    auto const parsed = parse_row_groups(footer({}));
    EXPECT_EQ(parsed.rows, (std::vector<std::int64_t>{10, 11, 12}));
    ASSERT_EQ(parsed.chunks.size(), 9U);
    EXPECT_EQ(parsed.columns[1], std::string("part1\0below", 11));
    auto const& plain = parsed.chunks[3];  // the first column of the second row group
    EXPECT_EQ(plain.offset(), 1020);
    EXPECT_EQ(plain.compressed_bytes, 90);
    EXPECT_EQ(plain.uncompressed_bytes, 80);
    EXPECT_EQ(plain.values, 10);
    EXPECT_EQ(plain.physical_type, 2);
    EXPECT_EQ(plain.codec, 1);
    EXPECT_EQ(plain.encodings, 1U << 0U | 1U << 8U);
    EXPECT_EQ(plain.text_bytes, -1);
    EXPECT_EQ(parsed.chunks[4].offset(), 1100);  // its dictionary
    EXPECT_EQ(parsed.chunks[5].text_bytes, 77);
}

TEST(FooterParser, ReadsLongLists) {
    auto const parsed = parse_row_groups(footer({.groups = 40, .columns = 20}));
    EXPECT_EQ(parsed.rows.size(), 40U);
    EXPECT_EQ(parsed.chunks.size(), 800U);
    EXPECT_EQ(parsed.columns.size(), 20U);
}

// Footer of a file with one column of such a type, and a row group for each of the statistics.
struct Statistics {
    std::optional<std::string> least;
    std::optional<std::string> most;
    std::int64_t nulls{0};
    std::int64_t values{10};
};

ColumnRange range_of(int physical_type, std::vector<Statistics> const& row_groups) {
    CompactWriter w;
    w.integer(1, 2, 5).integer(3, 0);
    w.list(4, 12, row_groups.size(), [&](CompactWriter& groups) {
        for (auto const& statistics : row_groups) {
            groups.nested([&](CompactWriter& group) {
                group.list(1, 12, 1, [&](CompactWriter& chunks) {
                    chunks.nested([&](CompactWriter& chunk) {
                        chunk.structure(3, [&](CompactWriter& meta) {
                            meta.integer(1, physical_type, 5);
                            meta.list(3, 8, 1, [](CompactWriter& path) { path.raw_text("n"); });
                            meta.integer(5, statistics.values).integer(6, 80).integer(7, 90).integer(9, 4);
                            meta.structure(12, [&](CompactWriter& v) {
                                v.integer(3, statistics.nulls);
                                if (statistics.most) {
                                    v.text(5, *statistics.most);
                                }
                                if (statistics.least) {
                                    v.text(6, *statistics.least);
                                }
                            });
                        });
                    });
                });
                group.integer(3, statistics.values);
            });
        }
    });
    w.bytes.push_back(0);
    return parse_row_groups(w.bytes).ranges.at(0);
}

TEST(FooterParser, FindsWhatNumbersLieBetween) {
    using Kind = ColumnRange::Kind;
    auto const bytes = [](auto n) { return std::string(reinterpret_cast<char const*>(&n), sizeof(n)); };
    auto const found = range_of(
        2, {{bytes(std::int64_t{-7}), bytes(std::int64_t{3})},
            {std::nullopt, std::nullopt, 10},
            {bytes(std::int64_t{-2}), bytes(std::int64_t{1} << 62)}});
    EXPECT_EQ(found.kind, Kind::between);
    EXPECT_TRUE(found.least == -7 && found.most == std::int64_t{1} << 62);

    auto const narrow = range_of(1, {{bytes(std::int32_t{-1}), bytes(std::int32_t{5})}});
    EXPECT_TRUE(narrow.kind == Kind::between && narrow.least == -1 && narrow.most == 5);

    // Decimals of three bytes, the first of which has the sign.
    auto const fixed = range_of(7, {{std::string("\xff\xff\xfe", 3), std::string("\x01\x00\x02", 3)}});
    EXPECT_TRUE(fixed.kind == Kind::between && fixed.least == -2 && fixed.most == 65'538);
    auto const widest = range_of(
        7, {{std::string("\x80") + std::string(15, '\0'), std::string("\x7f") + std::string(15, '\xff')}});
    EXPECT_TRUE(widest.kind == Kind::between && widest.least < 0 && widest.most == -(widest.least + 1));
}

TEST(FooterParser, KnowsNoRangeWithoutStatistics) {
    using Kind = ColumnRange::Kind;
    auto const bytes = [](std::int64_t n) {
        return std::string(reinterpret_cast<char const*>(&n), sizeof(n));
    };
    EXPECT_EQ(range_of(2, {{std::nullopt, std::nullopt, 10}}).kind, Kind::empty);
    EXPECT_EQ(range_of(2, {{std::nullopt, std::nullopt, 0, 0}}).kind, Kind::empty);
    EXPECT_EQ(range_of(2, {{bytes(1), bytes(2)}, {std::nullopt, bytes(2)}}).kind, Kind::unknown);
    EXPECT_EQ(
        range_of(2, {{bytes(1), bytes(2)}, {bytes(1), std::nullopt}, {bytes(1), bytes(2)}}).kind,
        Kind::unknown);
    EXPECT_EQ(range_of(2, {{bytes(3), bytes(2)}}).kind, Kind::unknown);
    EXPECT_EQ(range_of(2, {{"short", "texts"}}).kind, Kind::unknown);
    EXPECT_EQ(range_of(6, {{bytes(1), bytes(2)}}).kind, Kind::unknown);
    EXPECT_EQ(range_of(7, {{std::string(17, 'a'), std::string(17, 'b')}}).kind, Kind::unknown);
}

TEST(FooterParser, LeavesTheRest) {
    // What is left reads as a footer without row groups and rows, and with all else.
    auto const parsed = parse_row_groups(footer({}));
    auto const rest = parse_row_groups(parsed.rest);
    EXPECT_TRUE(rest.rows.empty());
    EXPECT_EQ(rest.rest, parsed.rest);
    CompactWriter none;
    none.integer(1, 2, 5);
    none.list(2, 12, 1, [](CompactWriter& v) { v.nested([](CompactWriter& e) { e.text(4, "schema"); }); });
    none.integer(3, 0).list(4, 12, 0, [](CompactWriter&) {}).text(6, "a writer");
    none.bytes.push_back(0);
    EXPECT_EQ(parsed.rest, none.bytes);
}

TEST(FooterParser, RefusesWhatIsCutOff) {
    auto const whole = footer({});
    for (std::size_t n = 0; n < whole.size(); ++n) {
        EXPECT_THROW((void)parse_row_groups(std::span{whole}.first(n)), FooterError) << n;
    }
}

TEST(FooterParser, SurvivesDamage) {
    auto const whole = footer({});
    std::mt19937 random{3};
    for (int round = 0; round < 20'000; ++round) {
        auto bytes = whole;
        for (auto n = 1 + random() % 4; n > 0; --n) {
            bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
        }
        try {
            auto const parsed = parse_row_groups(bytes);
            ASSERT_EQ(parsed.chunks.size(), parsed.rows.size() * parsed.columns.size());
        } catch (FooterError const&) {
        }
    }
}

TEST(FooterParser, RefusesDeepValues) {
    auto bytes = footer({});
    bytes.pop_back();
    for (int i = 0; i < 10'000; ++i) {
        bytes.push_back(0x1C);  // a structure in the structure
    }
    EXPECT_THROW((void)parse_row_groups(bytes), FooterError);
}

TEST(FooterParser, RefusesOtherColumnsInARowGroup) {
    EXPECT_THROW((void)parse_row_groups(footer({.odd_group = 1})), FooterError);
}

TEST(FooterParser, RefusesEncryptedFiles) {
    auto const encrypted = footer({}, [](CompactWriter& w) { w.structure(8, [](CompactWriter&) {}); });
    EXPECT_THROW((void)parse_row_groups(encrypted), FooterError);
}

}  // namespace
}  // namespace rapidsmpf::parquet
