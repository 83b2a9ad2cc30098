// What is read of a file is what is in it, and a file that is truncated meanwhile is an error.
#include "compute/scan/data_file.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::compute {
namespace {

constexpr std::size_t file_bytes = (std::size_t{3} << 20) + 17;

class DataFileTest : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "data_file_XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
        path_ = (folder_ / "a").string();
        contents_.resize(file_bytes);
        std::mt19937_64 random{1};
        for (std::size_t i = 0; i + 8 <= contents_.size(); i += 8) {
            auto const value = random();
            std::memcpy(&contents_[i], &value, sizeof value);
        }
        write();
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    void write() const {
        std::ofstream{path_, std::ios::binary}.write(
            contents_.data(), static_cast<std::streamsize>(contents_.size()));
    }

    std::filesystem::path folder_;
    std::string path_;
    std::vector<char> contents_;
};

TEST_F(DataFileTest, GivesWhatIsInTheFile) {
    DataFile const file{path_};
    auto const expect_same = [&](std::size_t offset, std::size_t bytes) {
        std::vector<char> read(bytes + 1, 'x');
        file.read(read.data(), bytes, offset);
        EXPECT_EQ(std::memcmp(read.data(), contents_.data() + offset, bytes), 0) << offset << ' ' << bytes;
        EXPECT_EQ(read.back(), 'x');
    };
    auto const expect_all = [&] {
        for (std::size_t const bytes :
             {std::size_t{0}, std::size_t{100}, std::size_t{65536}, std::size_t{1000001}}) {
            for (std::size_t const offset :
                 {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{2000000}}) {
                expect_same(offset, bytes);
            }
            expect_same(contents_.size() - bytes, bytes);
        }
        expect_same(0, contents_.size());
    };
    expect_all();
    // Nothing of it in memory, where the file system does as it is told.
    ::fdatasync(file.descriptor());
    ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
    expect_all();
}

TEST_F(DataFileTest, ThatIsTruncatedIsAnError) {
    DataFile const file{path_};
    EXPECT_NO_THROW(file.check_version(file.version()));
    std::vector<char> bytes(file_bytes);
    file.read(bytes.data(), bytes.size(), 0);
    std::filesystem::resize_file(path_, file_bytes / 2);
    EXPECT_THROW(file.read(bytes.data(), bytes.size(), 0), std::runtime_error);
    EXPECT_THROW(file.read(bytes.data(), 4096, file_bytes - 5000), std::runtime_error);
    EXPECT_THROW(file.check_version(file.version()), std::runtime_error);
}

TEST_F(DataFileTest, BeyondItsEndIsAnError) {
    DataFile const file{path_};
    std::vector<char> bytes(100000);
    EXPECT_THROW(file.read(bytes.data(), bytes.size(), file_bytes - 99999), std::runtime_error);
    EXPECT_THROW(file.read(bytes.data(), bytes.size(), file_bytes + 1), std::runtime_error);
}

TEST_F(DataFileTest, ThatIsNotThereIsAnError) {
    EXPECT_THROW(DataFile{(folder_ / "nothing").string()}, SystemError);
    EXPECT_THROW(DataFile{folder_.string()}, std::runtime_error);
}

TEST_F(DataFileTest, OfNoBytesHasNothingToRead) {
    std::filesystem::resize_file(path_, 0);
    DataFile const file{path_};
    std::vector<char> bytes(100000);
    EXPECT_NO_THROW(file.read(bytes.data(), 0, 0));
    EXPECT_THROW(file.read(bytes.data(), bytes.size(), 0), std::runtime_error);
}

}  // namespace
}  // namespace rapidsmpf::compute
