#include <rapidsmpf/table/schema.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>

#include "random_table_support.hpp"

namespace rapidsmpf {
namespace {

Schema categories(std::string metadata) {
    auto const values = std::make_shared<Field const>("", "vu");
    return Schema{{Field{"c", "C", 3, {}, values, {{"_PL_ENUM_VALUES2", std::move(metadata)}}}}};
}

std::string message_of(auto const& call) {
    try {
        call();
    } catch (std::invalid_argument const& error) {
        return error.what();
    }
    return "no error";
}

TEST(Field, knows_layout_and_width) {
    EXPECT_EQ((Field{"x", "l"}.width()), 8);
    EXPECT_EQ((Field{"x", "_pli128"}.width()), 16);
    EXPECT_EQ((Field{"x", "d:38,2"}.width()), 16);
    EXPECT_EQ((Field{"x", "d:5,2,32"}.width()), 4);
    EXPECT_EQ((Field{"x", "w:7"}.width()), 7);
    EXPECT_EQ((Field{"x", "tsu:UTC"}.layout()), Layout::fixed);
    EXPECT_EQ((Field{"x", "vz"}.layout()), Layout::view);
    EXPECT_FALSE((Field{"x", "vz"}.is_text()));
}

TEST(Field, names_types_for_people) {
    EXPECT_EQ((Field{"x", "+L", 2, {Field{"item", "vu"}}}.type_name()), "large_list<string_view>");
    EXPECT_EQ((Field{"x", "tsm:Asia/Tokyo"}.type_name()), "timestamp[ms, Asia/Tokyo]");
    EXPECT_EQ(
        (Field{"x", "+s", 2, {Field{"a", "l"}, Field{"b", "b"}}}.type_name()),
        "struct<a: int64, b: boolean>");
}

TEST(Field, refuses_what_it_cannot_do_by_name) {
    for (auto const& [format, word] :
         {std::pair{"+r", "run-end"}, {"+us:0,1", "union"}, {"+vL", "list_view"}}) {
        auto const text = message_of([&] { Field{"salary", format}; });
        EXPECT_NE(text.find("'salary'"), std::string::npos) << text;
        EXPECT_NE(text.find(word), std::string::npos) << text;
    }
}

TEST(Field, refuses_malformed_formats) {
    for (auto const* const format :
         {"", "x", "ll", "w:", "w:-1", "w:5x", "+w:99999999999", "d:", "d:5", "d:5,2,7", "ts",
          "tsq:", "+L"}) {
        EXPECT_THROW((Field{"x", format}), std::invalid_argument) << format;
    }
}

TEST(Field, names_the_path_of_a_nested_column) {
    ArrowSchemaOwner owner;
    Field{"outer", "+s", 2, {Field{"inner", "l"}}}.to_arrow(owner.out());
    owner->children[0]->format = "+r";
    auto const text = message_of([&] { static_cast<void>(Field::from_arrow(*owner.get())); });
    EXPECT_NE(text.find("'outer.inner'"), std::string::npos) << text;
}

TEST(Schema, survives_the_arrow_interface) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        testing::RandomTables random{seed};
        auto const schema = random.schema(6);
        ArrowSchemaOwner owner;
        schema->to_arrow(owner.out());
        EXPECT_EQ(*Schema::from_arrow(*owner.get()), *schema);
    }
}

TEST(Schema, survives_serialization) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        testing::RandomTables random{seed};
        auto const schema = random.schema(6);
        EXPECT_EQ(*Schema::deserialize(schema->serialized()), *schema);
    }
}

TEST(Schema, a_cut_or_changed_serialization_is_a_format_error_or_another_schema) {
    testing::RandomTables random{7};
    auto const schema = random.schema(4);
    auto const bytes = schema->serialized();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_THROW(static_cast<void>(Schema::deserialize(bytes.first(size))), FormatError) << size;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        std::vector changed(bytes.begin(), bytes.end());
        changed[i] ^= 0x81;
        try {  // names may hold any byte but zero
            EXPECT_NE(*Schema::deserialize(changed), *schema);
        } catch (FormatError const&) {
        }
    }
}

// Arrow's C interface would end it there, and what it hands out were another schema.
TEST(Schema, a_zero_byte_in_a_name_or_a_format_is_a_format_error) {
    using namespace std::string_literals;
    for (auto const& field : {Field{"a\0b"s, "l"}, Field{"a", "tsu:Europe\0"s}}) {
        Schema const schema{{field}};
        EXPECT_THROW(static_cast<void>(Schema::deserialize(schema.serialized())), FormatError);
    }
}

TEST(Schema, keeps_moved_out_children_of_an_export_alive) {
    ArrowSchemaOwner owner;
    Schema{{Field{"a", "l"}, Field{"b", "vu"}}}.to_arrow(owner.out());
    ArrowSchemaOwner const moved{owner->children[1]};
    owner.reset();
    EXPECT_STREQ(moved->name, "b");
}

TEST(Schema, index_of_lists_the_names_there_are) {
    Schema const schema{{Field{"a", "l"}, Field{"b", "l"}}};
    EXPECT_EQ(schema.index_of("b"), 1U);
    auto const text = message_of([&] { static_cast<void>(schema.index_of("z")); });
    EXPECT_NE(text.find("'a', 'b'"), std::string::npos) << text;
}

TEST(Difference, is_empty_for_the_same_columns) {
    EXPECT_EQ(difference(Schema{{Field{"a", "l", 0}}}, Schema{{Field{"a", "l", 2}}}), "");
    Schema const item{{Field{"a", "+L", 2, {Field{"item", "l"}}}}};
    EXPECT_EQ(difference(item, Schema{{Field{"a", "+L", 2, {Field{"element", "l"}}}}}), "");
}

TEST(Difference, names_the_column) {
    auto const text = difference(Schema{{Field{"a", "l"}}}, Schema{{Field{"a", "g"}}});
    EXPECT_EQ(text, "column 'a' is int64 in one and float64 in another");
    EXPECT_NE(difference(Schema{{Field{"a", "l"}}}, Schema{{Field{"b", "l"}}}), "");
    EXPECT_NE(difference(Schema{{Field{"a", "l"}}}, Schema{{}}), "");
}

TEST(Difference, sees_other_enum_categories_and_time_zones) {
    EXPECT_EQ(difference(categories("1;a"), categories("1;a")), "");
    EXPECT_NE(difference(categories("1;a"), categories("1;b")), "");
    EXPECT_NE(difference(Schema{{Field{"t", "tsm:UTC"}}}, Schema{{Field{"t", "tsm:"}}}), "");
}

}  // namespace
}  // namespace rapidsmpf
