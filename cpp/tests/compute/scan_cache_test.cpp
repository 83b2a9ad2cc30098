// Scans with a cache: columns that are cached are not read from the file again, evicted ones are, and the rows are the same.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>  // libcudf's headers need it first
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <rapidsmpf/compute/detail/program.hpp>
#include <rapidsmpf/compute/detail/runtime.hpp>
#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "compute/rows_support.hpp"
#include "compute/tiny_parquet.hpp"

namespace rapidsmpf::compute {
namespace {

using testing::Rows;
using testing::tiny_parquet;

struct Keeps {
    bool compressed;
    bool decoded;
};

class ScanCacheTest : public ::testing::TestWithParam<Keeps> {
  protected:
    void SetUp() override {
        if (Device::current().kind() != DeviceKind::cuda) {
            GTEST_SKIP() << "scans run on a GPU, and the compute device is " << Device::current().name();
        }
        std::string name = (std::filesystem::temp_directory_path() / "scan_cache_XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
        path_ = (folder_ / "a.parquet").string();
        write(tiny_parquet());
        RuntimeSettings settings;
        settings.keep_compressed = GetParam().compressed;
        settings.keep_decoded = GetParam().decoded;
        runtime_ = std::make_unique<Runtime>(BufferResource::make(), settings);
    }
    void TearDown() override {
        runtime_.reset();
        if (!folder_.empty()) {
            std::filesystem::remove_all(folder_);
        }
    }

    void write(std::vector<std::uint8_t> const& bytes) const {
        std::fstream file{path_, std::ios::binary | std::ios::in | std::ios::out};
        if (!file) {
            file.open(path_, std::ios::binary | std::ios::out);
        }
        file.write(reinterpret_cast<char const*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }

    // Destroys the pages, but for their footer; the file seems to be what it was.
    void destroy_pages() const {
        struct stat before{};
        ASSERT_EQ(::stat(path_.c_str(), &before), 0);
        auto bytes = tiny_parquet();
        auto const* const length = bytes.data() + bytes.size() - 8;
        auto const footer = std::size_t{length[0]} | std::size_t{length[1]} << 8U;
        std::fill(bytes.begin() + 4, bytes.end() - static_cast<std::ptrdiff_t>(footer + 8), 0xFF);
        write(bytes);
        timespec const times[2] = {before.st_atim, before.st_mtim};
        ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
    }

    [[nodiscard]] Rows scan(std::vector<std::string> columns, std::vector<DataType> types) const {
        Program program;
        ParquetScan scan;
        scan.files.push_back(ParquetFile{.path = path_, .row_groups = {}});
        scan.columns = std::move(columns);
        scan.types = types;
        program.pipelines.push_back(Pipeline{scan, {}, Hold{true, std::nullopt}, types});
        auto const result = runtime_->run(std::move(program));
        return testing::rows_of(*result);
    }
    [[nodiscard]] Rows ids() const { return scan({"id"}, {testing::int64_type()}); }
    [[nodiscard]] Rows names() const { return scan({"name"}, {testing::text_type()}); }
    [[nodiscard]] Rows both() const {
        return scan(
            {"name", "id", "name"}, {testing::text_type(), testing::int64_type(), testing::text_type()});
    }

    std::filesystem::path folder_;
    std::string path_;
    std::unique_ptr<Runtime> runtime_;
    Rows const ids_{{"1"}, {"2"}, {"3"}, {"null"}, {"5"}};
    Rows const both_{
        {"a", "1", "a"}, {"b", "2", "b"}, {"a", "3", "a"}, {"b", "null", "b"}, {"null", "5", "null"}};
};

TEST_P(ScanCacheTest, WhatWasReadIsNotReadAgain) {
    EXPECT_EQ(ids(), ids_);
    EXPECT_GT(runtime_->cached_bytes(), 0U);
    EXPECT_EQ(both(), both_);
    destroy_pages();
    EXPECT_EQ(both(), both_);
    EXPECT_EQ(ids(), ids_);
}

TEST_P(ScanCacheTest, OnlyWhatIsNotThereIsRead) {
    EXPECT_EQ(ids(), ids_);
    EXPECT_EQ(both(), both_);
    EXPECT_EQ(names().size(), 5U);
    EXPECT_EQ(both(), both_);
}

TEST_P(ScanCacheTest, AChangedFileIsReadAnew) {
    EXPECT_EQ(ids(), ids_);
    write(tiny_parquet());
    timespec const times[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
    EXPECT_EQ(ids(), ids_);
    destroy_pages();
    EXPECT_EQ(ids(), ids_);
}

TEST_P(ScanCacheTest, WhatIsNotReadIsAnError) {
    EXPECT_EQ(ids(), ids_);
    destroy_pages();
    EXPECT_THROW((void)names(), std::runtime_error);
    EXPECT_EQ(ids(), ids_);
}

INSTANTIATE_TEST_SUITE_P(
    , ScanCacheTest, ::testing::Values(Keeps{true, false}, Keeps{false, true}, Keeps{true, true}));

}  // namespace
}  // namespace rapidsmpf::compute
