#include <rapidsmpf/table/packed.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/partition.hpp>

#include "about_the_cpu.hpp"
#include "random_table_support.hpp"

namespace rapidsmpf {
namespace {

using testing::RandomTables;
using testing::row_texts;

class Packed : public ::testing::Test {
  protected:
    [[nodiscard]] PackedData copy(PackedData const& packed) const {
        auto data = br_->allocate(MemoryType::HOST, packed.data->size());
        auto const bytes = packed.data->host_bytes();
        std::copy(bytes.begin(), bytes.end(), data->mutable_host_bytes().begin());
        return PackedData{packed.metadata, std::move(data)};
    }
    std::shared_ptr<BufferResource> br_{BufferResource::make()};
};

TEST_F(Packed, tables_of_every_type_come_back) {
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
        RandomTables random{seed};
        auto const table = random.table(random.schema(5), random.number(0, 300));
        auto packed = pack(table, *br_);
        auto const info = packed_info(packed.metadata);
        ASSERT_EQ(info.num_rows, table.num_rows());
        ASSERT_EQ(info.data_size, packed.data->size());
        auto const again = unpack(std::move(packed), ValidateData::full);
        ASSERT_EQ(*again.schema(), *table.schema()) << seed;
        ASSERT_EQ(row_texts(again), row_texts(table)) << seed;
    }
}

TEST_F(Packed, unpacking_keeps_the_buffer_alive_and_copies_nothing) {
    RAPIDSMPF_ABOUT_THE_CPU();
    auto packed = pack(testing::int64_table({1, 2, 3}), *br_);
    auto const* const data = packed.data->data();
    auto const size = packed.data->size();
    auto const table = unpack(std::move(packed));
    EXPECT_GE(table.columns()[0].values, data);
    EXPECT_LT(table.columns()[0].values, data + size);
    EXPECT_GT(br_->memory_used(MemoryType::DEVICE), 0);
}

TEST_F(Packed, columns_begin_at_multiples_of_64) {
    RandomTables random{5};
    auto const table = unpack(pack(random.table(random.schema(6, 0), 33), *br_));
    for (auto const& column : table.columns()) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(column.values) % 64, 0U);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(column.validity) % 64, 0U);
    }
}

TEST_F(Packed, a_table_without_columns_keeps_its_rows) {
    Table const table{std::make_shared<Schema const>(std::vector<Field>{}), {}, 12, nullptr};
    EXPECT_EQ(unpack(pack(table, *br_)).num_rows(), 12);
}

// Such a column has no offsets of its own in the packed data, but consumers read the first one.
TEST_F(Packed, a_column_without_rows_is_exported_with_one_offset) {
    auto const numbers = testing::int64_table({7, 8});
    std::vector<std::int64_t> const no_items(3, 0);
    Column lists;
    lists.length = 2;
    lists.offsets = no_items.data();
    lists.children.emplace_back();  // of text, without rows
    std::vector<Field> fields{Field{"numbers", "l"}, Field{"lists", "+L", 2, {Field{"item", "U"}}}};
    Table const table{
        std::make_shared<Schema const>(std::move(fields)), {numbers.columns()[0], lists}, 2, numbers.owner()};
    ArrowArrayOwner array;
    unpack(pack(table, *br_)).export_array(array.out());
    auto const& texts = *array->children[1]->children[0];
    EXPECT_EQ(texts.offset, 0);
    EXPECT_EQ(static_cast<std::int64_t const*>(texts.buffers[1])[0], 0);
}

TEST_F(Packed, views_take_along_only_what_they_refer_to) {
    std::vector<std::string> texts;
    std::vector<char const*> pointers;
    for (int i = 0; i < 1000; ++i) {
        texts.push_back("a text of thirty characters " + std::to_string(i % 10));
    }
    for (auto const& text : texts) {
        pointers.push_back(text.c_str());
    }
    auto const table = testing::text_table(pointers).slice(500, 3);
    EXPECT_LT(pack(table, *br_).data->size(), 256U);
}

TEST_F(Packed, views_that_share_a_text_share_it_when_packed) {
    auto const one =
        testing::text_table({"a text that is a good deal longer than sixty-four bytes, is it not?"});
    auto column = one.columns()[0];
    std::vector<std::byte> views(16 * 1000);
    for (std::size_t i = 0; i < 1000; ++i) {
        std::memcpy(views.data() + 16 * i, column.values, 16);
    }
    column.values = views.data();
    column.length = 1000;
    Table const table{one.schema(), {column}, 1000, one.owner()};
    auto packed = pack(table, *br_);
    EXPECT_LT(packed.data->size(), 16'000U + 256U);
    EXPECT_EQ(row_texts(unpack(std::move(packed))), row_texts(table));
}

TEST_F(Packed, a_long_dictionary_is_cut_to_what_occurs) {
    std::vector<int> order(10'000);
    for (int i = 0; i < 10'000; ++i) {
        order[static_cast<std::size_t>(i)] = i;
    }
    auto const table = testing::categorical_table({9000, 17, -1, 9000}, order);
    auto packed = pack(table, *br_);
    EXPECT_LT(packed.data->size(), 512U);
    auto const again = unpack(std::move(packed), ValidateData::full);
    EXPECT_EQ(again.columns()[0].dictionary->length, 2);
    EXPECT_EQ(row_texts(again), row_texts(table));
}

TEST_F(Packed, an_ordered_dictionary_keeps_its_codes) {
    std::vector<int> order(1000);
    for (int i = 0; i < 1000; ++i) {
        order[static_cast<std::size_t>(i)] = i;
    }
    auto const table =
        testing::categorical_table({900, 17}, order, ARROW_FLAG_NULLABLE | ARROW_FLAG_DICTIONARY_ORDERED);
    EXPECT_EQ(unpack(pack(table, *br_)).columns()[0].dictionary->length, 1000);
}

TEST_F(Packed, data_off_its_alignment_is_moved) {
    auto const packed = pack(testing::int64_table({1, 2, 3}), *br_);
    auto const bytes = packed.data->host_bytes();
    auto const block = std::make_shared<std::vector<std::byte>>(bytes.size() + 65);
    auto const base = reinterpret_cast<std::uintptr_t>(block->data());
    auto* const odd = block->data() + (64 - base % 64) % 64 + 1;
    std::copy(bytes.begin(), bytes.end(), odd);
    auto const table =
        unpack(PackedData{packed.metadata, br_->adopt(MemoryType::HOST, odd, bytes.size(), block)});
    EXPECT_EQ(row_texts(table), row_texts(testing::int64_table({1, 2, 3})));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(table.columns()[0].values) % 64, 0U);
}

TEST_F(Packed, any_changed_byte_of_the_metadata_is_a_format_error) {
    RandomTables random{11};
    auto const packed = pack(random.table(random.schema(5), 20), *br_);
    for (std::size_t i = 0; i < packed.metadata.size(); ++i) {
        for (int const flip : {0x01, 0x80, 0xff}) {
            auto changed = copy(packed);
            changed.metadata[i] ^= static_cast<std::uint8_t>(flip);
            ASSERT_THROW(static_cast<void>(unpack(std::move(changed))), FormatError) << "byte " << i;
        }
    }
}

TEST_F(Packed, metadata_cut_anywhere_or_too_long_is_a_format_error) {
    RandomTables random{12};
    auto const packed = pack(random.table(random.schema(3), 20), *br_);
    for (std::size_t size = 1; size < packed.metadata.size(); ++size) {
        auto changed = copy(packed);
        changed.metadata.resize(size);
        ASSERT_THROW(static_cast<void>(unpack(std::move(changed))), FormatError) << size;
    }
    auto longer = copy(packed);
    longer.metadata.push_back(0);
    EXPECT_THROW(static_cast<void>(unpack(std::move(longer))), FormatError);
}

TEST_F(Packed, data_of_another_size_is_a_format_error) {
    auto const packed = pack(testing::int64_table({1, 2, 3}), *br_);
    PackedData const wrong{packed.metadata, br_->allocate(MemoryType::HOST, 32)};
    EXPECT_THROW(static_cast<void>(unpack(copy(wrong))), FormatError);
}

// Whatever the data hold, reading a table that unpack() let through stays within its memory: under a sanitizer
// this test is worth most.
TEST_F(Packed, any_changed_byte_of_the_data_is_harmless) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        RandomTables random{seed};
        auto const packed = pack(random.table(random.schema(4), 12), *br_);
        for (std::size_t i = 0; i < packed.data->size(); i += 1 + i / 64) {
            auto changed = copy(packed);
            changed.data->mutable_host_bytes()[i] ^= static_cast<std::byte>(1U << (i % 8));
            try {
                static_cast<void>(row_texts(unpack(std::move(changed))));
            } catch (FormatError const&) {
            }
        }
    }
}

class MalformedData : public Packed {
  protected:
    // Packs, lets `change` at the bytes of the only column's values, unpacks.
    void expect_refused(Table const& table, ValidateData validate, auto const& change) {
        auto const packed = std::make_shared<PackedData const>(pack(table, *br_));
        auto const at = unpack(packed, ValidateData::none);
        change(const_cast<std::byte*>(at.columns()[0].values), at.columns()[0]);
        EXPECT_THROW(static_cast<void>(unpack(packed, validate)), FormatError);
    }
};

TEST_F(MalformedData, view_beyond_its_buffer) {
    expect_refused(
        testing::text_table({"a text longer than twelve"}), ValidateData::bounds,
        [](std::byte* values, Column const&) { values[12] = std::byte{1}; });
}

TEST_F(MalformedData, view_of_a_buffer_that_is_not_there) {
    expect_refused(
        testing::text_table({"a text longer than twelve"}), ValidateData::bounds,
        [](std::byte* values, Column const&) { values[8] = std::byte{1}; });
}

TEST_F(MalformedData, view_with_a_negative_size) {
    expect_refused(
        testing::text_table({"short"}), ValidateData::bounds,
        [](std::byte* values, Column const&) { values[3] = std::byte{0xff}; });
}

TEST_F(MalformedData, code_beyond_the_dictionary) {
    expect_refused(
        testing::categorical_table({0, 1}, {0, 1}), ValidateData::bounds,
        [](std::byte* values, Column const&) { values[4] = std::byte{2}; });
}

TEST_F(MalformedData, offsets_that_descend) {
    expect_refused(
        testing::text_table({"ab", "cd"}, "U"), ValidateData::bounds, [](std::byte*, Column const& column) {
            const_cast<std::int64_t*>(static_cast<std::int64_t const*>(column.offsets))[1] = 5;
        });
}

TEST_F(MalformedData, text_that_is_not_utf8) {
    for (auto const* const text :
         {"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "abcdefgh\xe2\x82", "\xff"}) {
        auto const table = testing::text_table({text});
        EXPECT_NO_THROW(static_cast<void>(unpack(pack(table, *br_), ValidateData::bounds)));
        EXPECT_THROW(static_cast<void>(unpack(pack(table, *br_), ValidateData::full)), FormatError);
    }
    auto const table =
        testing::text_table({"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 and more", "\xed\x9f\xbf"});
    EXPECT_NO_THROW(static_cast<void>(unpack(pack(table, *br_), ValidateData::full)));
}

TEST_F(MalformedData, view_with_another_prefix) {
    expect_refused(
        testing::text_table({"a text longer than twelve"}), ValidateData::full,
        [](std::byte* values, Column const&) { values[4] = std::byte{'b'}; });
}

TEST_F(MalformedData, wrong_null_count) {
    auto const table = testing::fixed_table<std::int32_t>("i", {1, 2, 3}, {true, false, true});
    expect_refused(table, ValidateData::full, [](std::byte*, Column const& column) {
        *const_cast<std::uint8_t*>(column.validity) = 0;
    });
}

TEST_F(Packed, what_is_no_packed_table_is_said_to_be_none) {
    std::vector<std::uint8_t> const other{'l', 'i', 'b', 'c', 'u', 'd', 'f'};
    EXPECT_FALSE(is_packed_table(other));
    EXPECT_THROW(static_cast<void>(packed_info(other)), FormatError);
}

}  // namespace
}  // namespace rapidsmpf
