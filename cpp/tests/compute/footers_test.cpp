// Footers are parsed once for each version of a file, say what libcudf's own reading says, and are reduced to columns and row
// groups for its readers. No GPU is needed.
#include "compute/scan/footers.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>  // libcudf's headers need it first
#include <vector>

#include <cudf/io/experimental/hybrid_scan.hpp>
#include <cudf/io/experimental/hybrid_scan_multifile.hpp>
#include <cudf/io/parquet.hpp>
#include <cudf/unary.hpp>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <rapidsmpf/core/error.hpp>

#include "compute/scan/column_types.hpp"
#include "compute/tiny_parquet.hpp"

namespace rapidsmpf::compute {
namespace {

using testing::tiny_parquet;
namespace experimental = cudf::io::parquet::experimental;

class FootersTest : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "footers_XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string write(std::string const& name, std::vector<std::uint8_t> const& bytes) {
        auto const path = (folder_ / name).string();
        std::ofstream{path, std::ios::binary}.write(
            reinterpret_cast<char const*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        return path;
    }
    static std::shared_ptr<Footer const> get(FooterCache& cache, std::string const& path) {
        return cache.get(std::vector<std::string>{path}).front();
    }
    static cudf::io::parquet::FileMetaData libcudf_reading() {
        auto const bytes = tiny_parquet();
        auto const* const length = bytes.data() + bytes.size() - 8;
        auto const n = std::size_t{length[0]} | std::size_t{length[1]} << 8U;
        experimental::hybrid_scan_reader const reader{
            cudf::host_span<std::uint8_t const>{length - n, n},
            cudf::io::parquet_reader_options::builder().build()};
        return reader.parquet_metadata();
    }

    std::filesystem::path folder_;
};

TEST_F(FootersTest, SayWhatLibcudfSays) {
    FooterCache cache;
    auto const footer = get(cache, write("a.parquet", tiny_parquet()));
    auto const expected = libcudf_reading();
    EXPECT_EQ(footer->created_by, expected.created_by);
    ASSERT_EQ(footer->schema.size(), expected.schema.size());
    for (std::size_t i = 0; i < expected.schema.size(); ++i) {
        EXPECT_EQ(footer->schema[i], expected.schema[i]);
        EXPECT_EQ(footer->schema[i].max_definition_level, expected.schema[i].max_definition_level);
        EXPECT_EQ(footer->schema[i].arrow_type, expected.schema[i].arrow_type);
    }
    ASSERT_EQ(footer->row_groups.rows.size(), expected.row_groups.size());
    for (std::size_t g = 0; g < expected.row_groups.size(); ++g) {
        EXPECT_EQ(footer->row_groups.rows[g], expected.row_groups[g].num_rows);
        ASSERT_EQ(footer->leaves.size(), expected.row_groups[g].columns.size());
        for (std::size_t c = 0; c < footer->leaves.size(); ++c) {
            auto const& place = footer->chunk(g, c);
            auto const& column = expected.row_groups[g].columns[c];
            EXPECT_EQ(footer->leaves[c], static_cast<std::size_t>(column.schema_idx));
            EXPECT_EQ(place.values, column.meta_data.num_values);
            EXPECT_EQ(place.compressed_bytes, column.meta_data.total_compressed_size);
            EXPECT_EQ(place.uncompressed_bytes, column.meta_data.total_uncompressed_size);
            EXPECT_EQ(place.data_page_offset, column.meta_data.data_page_offset);
            EXPECT_EQ(place.dictionary_page_offset, column.meta_data.dictionary_page_offset);
            EXPECT_EQ(static_cast<int>(place.codec), static_cast<int>(column.meta_data.codec));
            EXPECT_EQ(static_cast<int>(place.physical_type), static_cast<int>(column.meta_data.type));
        }
    }
}

TEST_F(FootersTest, AreParsedOnce) {
    FooterCache cache;
    auto const path = write("a.parquet", tiny_parquet());
    std::vector<std::shared_ptr<Footer const>> footers(8);
    {
        std::vector<std::jthread> threads;
        for (auto& footer : footers) {
            threads.emplace_back([&] { footer = get(cache, path); });
        }
    }
    for (auto const& footer : footers) {
        EXPECT_EQ(footer, footers.front());
    }
    EXPECT_EQ(cache.parsed_for_testing(), 1U);
}

TEST_F(FootersTest, AreParsedAgainWhenTheFileHasChanged) {
    FooterCache cache;
    auto const path = write("a.parquet", tiny_parquet());
    auto const before = get(cache, path);
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds{1});
    auto const after = get(cache, path);
    EXPECT_NE(before, after);
    EXPECT_NE(before->version, after->version);
    EXPECT_EQ(cache.parsed_for_testing(), 2U);
}

TEST_F(FootersTest, AreDroppedBeyondTheLimit) {
    FooterCache cache{1};
    auto const a = write("a.parquet", tiny_parquet());
    auto const b = write("b.parquet", tiny_parquet());
    (void)get(cache, a);
    (void)get(cache, b);
    (void)get(cache, b);
    EXPECT_EQ(cache.parsed_for_testing(), 2U);
    (void)get(cache, a);
    EXPECT_EQ(cache.parsed_for_testing(), 3U);
}

TEST_F(FootersTest, NameTheFileThatIsDamaged) {
    FooterCache cache;
    auto const whole = tiny_parquet();
    auto const good = write("good.parquet", whole);
    std::vector<std::uint8_t> const cut{whole.begin(), whole.end() - 100};
    auto long_footer = whole;
    long_footer[whole.size() - 6] = 0x7f;
    auto damaged = whole;
    damaged[whole.size() - 1801 - 8] = 0x1f;
    int number = 0;
    for (auto const& bytes : {cut, long_footer, damaged, std::vector<std::uint8_t>{}, {1, 2, 3}}) {
        auto const bad = write("bad" + std::to_string(number++) + ".parquet", bytes);
        std::vector<std::string> const paths{good, bad, good};
        try {
            (void)cache.get(paths);
            ADD_FAILURE() << bad;
        } catch (std::runtime_error const& error) {
            EXPECT_NE(std::string{error.what()}.find(bad), std::string::npos) << error.what();
        }
    }
    EXPECT_THROW((void)get(cache, (folder_ / "nothing").string()), SystemError);
}

// What a reader of some columns and row groups reads is where a reader of the whole file finds them.
TEST_F(FootersTest, AreCutDown) {
    FooterCache cache;
    auto const footer = get(cache, write("a.parquet", tiny_parquet()));
    std::vector<std::string> const columns{"took", "pair", "id", "tags"};
    std::vector<std::int32_t> const row_groups{1};
    auto const selection = select_columns(*footer, columns);
    std::vector<cudf::io::parquet::FileMetaData> metadata;
    metadata.push_back(reader_metadata(*footer, selection, row_groups));
    EXPECT_EQ(metadata.front().num_rows, 2);
    auto const options = cudf::io::parquet_reader_options::builder().build();
    experimental::hybrid_scan_multifile const reader{std::move(metadata), options};
    std::vector<std::vector<cudf::size_type>> const numbers{{0}};
    EXPECT_EQ(reader.total_rows_in_row_groups(numbers), 2);
    auto const got = reader.all_column_chunks_byte_ranges(numbers, options).first;

    auto const whole = libcudf_reading();
    std::vector<std::vector<std::string>> const paths{
        {"took"}, {"pair", "x"}, {"pair", "y"}, {"id"}, {"tags", "list", "element"}};
    ASSERT_EQ(got.size(), paths.size());
    for (std::size_t i = 0; i < paths.size(); ++i) {
        for (auto const& chunk : whole.row_groups[1].columns) {
            if (chunk.meta_data.path_in_schema == paths[i]) {
                EXPECT_EQ(
                    got[i].offset(), chunk.meta_data.dictionary_page_offset != 0
                                         ? chunk.meta_data.dictionary_page_offset
                                         : chunk.meta_data.data_page_offset);
                EXPECT_EQ(got[i].size(), chunk.meta_data.total_compressed_size);
            }
        }
    }
    auto const cut = reader.parquet_metadatas();
    EXPECT_EQ(cut.front().schema.at(1).name, "took");
    EXPECT_EQ(cut.front().schema.at(1).arrow_type, cudf::type_id::DURATION_MILLISECONDS);
}

TEST_F(FootersTest, NameTheColumnThatIsMissing) {
    FooterCache cache;
    auto const footer = get(cache, write("a.parquet", tiny_parquet()));
    std::vector<std::string> const columns{"id", "nothing"};
    try {
        (void)select_columns(*footer, columns);
        ADD_FAILURE();
    } catch (std::runtime_error const& error) {
        EXPECT_NE(std::string{error.what()}.find("a.parquet has no column 'nothing'"), std::string::npos);
    }
}

// ---- Types

TEST(ColumnTypes, WidenWithoutLoss) {
    using cudf::data_type;
    using enum cudf::type_id;
    EXPECT_TRUE(holds_all_values(data_type{INT32}, data_type{INT64}));
    EXPECT_TRUE(holds_all_values(data_type{UINT32}, data_type{INT64}));
    EXPECT_TRUE(holds_all_values(data_type{INT32}, data_type{FLOAT64}));
    EXPECT_TRUE(holds_all_values(data_type{FLOAT32}, data_type{FLOAT64}));
    EXPECT_TRUE(holds_all_values(data_type{DECIMAL32, -2}, data_type{DECIMAL64, -2}));
    EXPECT_TRUE(holds_all_values(data_type{DECIMAL64, -2}, data_type{DECIMAL128, -22}));
    EXPECT_TRUE(holds_all_values(data_type{TIMESTAMP_MILLISECONDS}, data_type{TIMESTAMP_NANOSECONDS}));
    EXPECT_TRUE(holds_all_values(data_type{DURATION_DAYS}, data_type{DURATION_SECONDS}));

    EXPECT_FALSE(holds_all_values(data_type{INT64}, data_type{INT32}));
    EXPECT_FALSE(holds_all_values(data_type{INT64}, data_type{FLOAT64}));
    EXPECT_FALSE(holds_all_values(data_type{INT32}, data_type{UINT64}));
    EXPECT_FALSE(holds_all_values(data_type{UINT64}, data_type{INT64}));
    EXPECT_FALSE(holds_all_values(data_type{FLOAT64}, data_type{INT64}));
    EXPECT_FALSE(holds_all_values(data_type{DECIMAL64, -2}, data_type{DECIMAL32, -2}));
    EXPECT_FALSE(holds_all_values(data_type{DECIMAL64, -2}, data_type{DECIMAL128, -1}));
    EXPECT_FALSE(holds_all_values(data_type{DECIMAL64, -2}, data_type{DECIMAL128, -23}));
    EXPECT_FALSE(holds_all_values(data_type{TIMESTAMP_NANOSECONDS}, data_type{TIMESTAMP_MILLISECONDS}));
    EXPECT_FALSE(holds_all_values(data_type{TIMESTAMP_SECONDS}, data_type{DURATION_NANOSECONDS}));
    EXPECT_FALSE(holds_all_values(data_type{STRING}, data_type{INT64}));
}

TEST(ColumnTypes, AreCastByLibcudf) {
    for (int from = 0; from < static_cast<int>(cudf::type_id::NUM_TYPE_IDS); ++from) {
        for (int to = 0; to < static_cast<int>(cudf::type_id::NUM_TYPE_IDS); ++to) {
            auto const a = cudf_type(DataType{from, -2});
            auto const b = cudf_type(DataType{to, -2});
            if (a != b && holds_all_values(a, b)) {
                EXPECT_TRUE(cudf::is_supported_cast(a, b)) << type_name(a) << " to " << type_name(b);
            }
        }
    }
}

TEST(ColumnTypes, HaveNames) {
    EXPECT_EQ(type_name(cudf::data_type{cudf::type_id::INT64}), "INT64");
    EXPECT_EQ(type_name(cudf::data_type{cudf::type_id::STRUCT}), "STRUCT");
    EXPECT_EQ(type_name(cudf::data_type{cudf::type_id::DECIMAL64, -2}), "DECIMAL64 with 2 decimal places");
}

}  // namespace
}  // namespace rapidsmpf::compute
