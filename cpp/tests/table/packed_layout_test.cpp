// What the host plans and the GPU computes, as far as the host can run it.
#include "table/packed/packed_layout.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/table/partition.hpp>

#include "random_table_support.hpp"
#include "table/gpu/concat_kernels.hpp"
#include "table/gpu/device_bytes.hpp"
#include "table/gpu/device_node.hpp"
#include "table/gpu/row_space.hpp"

namespace rapidsmpf::detail {
namespace {

// The counts of a packed table's columns, as a partitioner would have found them.
void count(PackedLayout& layout, std::size_t& node, Field const& field, Column const& column) {
    auto& piece = layout.slot(node++, 0);
    piece.rows = column.length;
    piece.nulls = field.layout() == Layout::null ? 0 : column.null_count;
    piece.bytes = static_cast<std::int64_t>(column.data.size());
    for (std::size_t i = 0; i < column.children.size(); ++i) {
        count(layout, node, field.children()[i], column.children[i]);
    }
    if (column.dictionary) {
        count(layout, node, *field.dictionary(), *column.dictionary);
    }
}

TEST(PackedLayout, its_metadata_describes_the_counted_columns) {
    auto const br = BufferResource::make();
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        testing::RandomTables random{seed};
        auto const table = unpack(pack(random.table(random.gpu_schema(5), random.number(0, 60)), *br));
        PackedLayout layout{flatten(*table.schema(), table.columns()).fields, 1};
        std::size_t node{0};
        for (std::size_t i = 0; i < table.num_columns(); ++i) {
            count(layout, node, table.schema()->fields()[i], table.columns()[i]);
        }
        ASSERT_EQ(node, layout.num_nodes());
        auto const size = layout.place().front();
        EXPECT_EQ(size % 64, 0U);
        auto const beginning = PackedMetadataWriter::beginning(*table.schema());
        auto const metadata = layout.metadata(0, beginning, table.num_rows(), size);
        EXPECT_EQ(packed_info(metadata).num_rows, table.num_rows());
        // All lengths, places and alignments are checked here.
        std::vector<std::byte> const data(size);
        auto const columns = read_packed_columns(*table.schema(), split_packed_metadata(metadata), data);
        ASSERT_EQ(columns.size(), table.num_columns());
        for (std::size_t i = 0; i < columns.size(); ++i) {
            EXPECT_EQ(columns[i].length, table.columns()[i].length);
            EXPECT_EQ(columns[i].null_count, table.columns()[i].null_count);
        }
    }
}

TEST(PackedLayout, buffers_do_not_overlap) {
    Field const text{"t", "u"};
    Field const number{"n", "l"};
    PackedLayout layout{{&text, &number}, 3};
    for (std::size_t p = 0; p < 3; ++p) {
        layout.slot(0, p) = {.rows = 10, .bytes = static_cast<std::int64_t>(100 * p), .nulls = 1};
        layout.slot(1, p) = {.rows = 10, .bytes = 0, .nulls = 0};
    }
    auto const sizes = layout.place();
    EXPECT_EQ(sizes, (std::vector<std::size_t>{64 + 64 + 128, 64 + 64 + 128 + 128, 64 + 64 + 256 + 128}));
    EXPECT_EQ(layout.slot(0, 0).data, ColumnSlot::nowhere);
    EXPECT_EQ(layout.slot(0, 1).data, 128U);
    EXPECT_EQ(layout.slot(1, 1).validity, ColumnSlot::nowhere);
    EXPECT_EQ(layout.slot(1, 1).values, 256U);
}

TEST(PackedLayout, texts_beyond_their_offsets_are_refused) {
    Field const text{"t", "u"};
    PackedLayout layout{{&text}, 1};
    layout.slot(0, 0) = {.rows = 10, .bytes = std::int64_t{1} << 31, .nulls = 0};
    EXPECT_THROW((void)layout.place(), std::invalid_argument);
}

TEST(DeviceBytes, words_are_read_at_any_address) {
    alignas(8) std::uint8_t bytes[64];
    for (int i = 0; i < 64; ++i) {
        bytes[i] = static_cast<std::uint8_t>(i * 7 + 3);
    }
    for (std::uint32_t at = 0; at < 56; ++at) {
        for (std::uint32_t count = 1; count <= 8; ++count) {
            std::uint64_t expected{0};
            for (std::uint32_t i = 0; i < count; ++i) {
                expected |= static_cast<std::uint64_t>(bytes[at + i]) << (8 * i);
            }
            EXPECT_EQ(load_bytes(bytes + at, count, bytes + 64), expected);
            EXPECT_EQ(load_bytes(bytes + at, count, bytes + at + count), expected);
        }
    }
}

TEST(DeviceBytes, nothing_is_read_beyond_the_limit) {
    for (std::size_t size = 1; size < 40; ++size) {
        auto const memory = std::make_unique<std::uint8_t[]>(size);  // a sanitizer sees one byte too many
        for (std::size_t at = 0; at < size; ++at) {
            auto const count = static_cast<std::uint32_t>(std::min<std::size_t>(8, size - at));
            EXPECT_EQ(load_bytes(memory.get() + at, count, memory.get() + size), 0U);
        }
    }
}

TEST(DeviceBytes, of_equal_entries_the_last_is_found) {
    std::vector<std::uint16_t> const starts{0, 0, 0, 5, 5, 9};
    EXPECT_EQ(last_not_above(starts.data(), 0, 6, 0U), 2U);
    EXPECT_EQ(last_not_above(starts.data(), 0, 6, 4U), 2U);
    EXPECT_EQ(last_not_above(starts.data(), 0, 6, 5U), 4U);
    EXPECT_EQ(last_not_above(starts.data(), 0, 6, 100U), 5U);
    EXPECT_EQ(last_not_above(starts.data(), 0, 1, 100U), 0U);
}

TEST(JoinBits, joined_words_are_the_bits) {
    std::mt19937_64 random{1};
    for (int round = 0; round < 200; ++round) {
        std::vector<std::vector<std::uint32_t>> sources;
        std::vector<std::uint32_t> joined(64, 0);
        std::vector<bool> expected;
        for (int i = 0; i < 5; ++i) {
            auto const count = static_cast<std::int64_t>(random() % 100 + 1);
            auto& source = sources.emplace_back((static_cast<std::size_t>(count) + 31) / 32);
            for (auto& word : source) {
                word = static_cast<std::uint32_t>(random());
            }
            auto const is_null = i == 3;
            BitPiece const piece{
                is_null ? nullptr : source.data(), joined.data(), static_cast<std::int64_t>(expected.size()),
                count};
            for (std::int64_t k = 0; k < count; ++k) {
                expected.push_back(
                    is_null || ((source[static_cast<std::size_t>(k / 32)] >> (k % 32)) & 1U) != 0);
            }
            for (auto word = piece.position / 32; word <= (piece.position + count - 1) / 32; ++word) {
                joined[static_cast<std::size_t>(word)] |= bits_for_word(piece, word);
            }
        }
        for (std::size_t k = 0; k < joined.size() * 32; ++k) {
            ASSERT_EQ(((joined[k / 32] >> (k % 32)) & 1U) != 0, k < expected.size() && expected[k]);
        }
    }
}

TEST(RowSpace, tiles_can_be_numbered_by_two_bytes) {
    for (std::uint32_t const partitions : {1U, 2U, 256U, 257U, max_device_partitions}) {
        EXPECT_LE(choose_tile_rows(partitions), 65535U);
        EXPECT_LT(partitions + 1, 65536U);
    }
}

}  // namespace
}  // namespace rapidsmpf::detail
