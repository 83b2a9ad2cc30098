// Ranges of files are registered once, in whole pages that do not overlap, and released when no reader holds them. A registrar
// that keeps books stands for CUDA's.
#include "compute/scan/mapped_files.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "compute/scan/data_file.hpp"

namespace rapidsmpf::compute {
namespace {

constexpr std::size_t page_bytes = 4096;

// What CUDA would refuse ends a test: overlaps, parts of pages, what was not registered.
class Books {
  public:
    void add(char* address, std::size_t bytes) {
        std::lock_guard const lock{mutex_};
        if (reinterpret_cast<std::uintptr_t>(address) % page_bytes != 0 || bytes == 0
            || bytes % page_bytes != 0) {
            mistakes_ += "not whole pages; ";
        }
        auto const next = ranges_.lower_bound(address);
        if ((next != ranges_.end() && next->first < address + bytes)
            || (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second > address)) {
            mistakes_ += "an overlap; ";
        }
        ranges_[address] = bytes;
        total_ += bytes;
        largest_ = std::max(largest_, total_);
        ++calls_;
    }
    void remove(char* address, std::size_t bytes) {
        std::lock_guard const lock{mutex_};
        auto const found = ranges_.find(address);
        if (found == ranges_.end() || found->second != bytes) {
            mistakes_ += "removed what was not there; ";
            return;
        }
        total_ -= bytes;
        ranges_.erase(found);
    }
    // Whether a copy engine can read these bytes in one copy.
    [[nodiscard]] bool holds(char const* address, std::size_t bytes) const {
        std::lock_guard const lock{mutex_};
        auto next = ranges_.upper_bound(const_cast<char*>(address));
        return next != ranges_.begin() && (--next)->first + next->second >= address + bytes;
    }
    [[nodiscard]] std::size_t total() const {
        std::lock_guard const lock{mutex_};
        return total_;
    }
    [[nodiscard]] std::size_t largest() const {
        std::lock_guard const lock{mutex_};
        return largest_;
    }
    [[nodiscard]] int calls() const {
        std::lock_guard const lock{mutex_};
        return calls_;
    }
    [[nodiscard]] std::string mistakes() const {
        std::lock_guard const lock{mutex_};
        return mistakes_;
    }
    std::atomic<bool> refuse{false};
    std::atomic<int> slabs{0};

  private:
    mutable std::mutex mutex_;
    std::map<char*, std::size_t> ranges_;
    std::size_t total_{0};
    std::size_t largest_{0};
    int calls_{0};
    std::string mistakes_;
};

class BookRegistrar final : public PageRegistrar {
  public:
    explicit BookRegistrar(Books& books) : books_{books} {}
    bool add(void* address, std::size_t bytes) override {
        if (books_.refuse) {
            return false;
        }
        books_.add(static_cast<char*>(address), bytes);
        return true;
    }
    void remove(void* address, std::size_t bytes) noexcept override {
        books_.remove(static_cast<char*>(address), bytes);
    }
    void* allocate(std::size_t bytes) override {
        ++books_.slabs;
        return std::malloc(bytes);
    }
    void free(void* address) noexcept override {
        --books_.slabs;
        std::free(address);
    }

  private:
    Books& books_;
};

class MappedFilesTest : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "mapped_files_XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
    }
    void TearDown() override {
        std::filesystem::remove_all(folder_);
        // No mapping is left.
        std::ifstream maps{"/proc/self/maps"};
        std::string const all{std::istreambuf_iterator<char>{maps}, {}};
        EXPECT_EQ(all.find(folder_.string()), std::string::npos);
        EXPECT_EQ(books_.mistakes(), "");
        EXPECT_EQ(books_.total(), 0U);
        EXPECT_EQ(books_.slabs, 0);
    }

    // A file whose bytes tell where they are.
    std::string write(std::string const& name, std::size_t bytes, unsigned seed = 0) {
        auto const path = (folder_ / name).string();
        std::vector<char> content(bytes);
        for (std::size_t i = 0; i < bytes; ++i) {
            content[i] = byte_at(i, seed);
        }
        std::ofstream{path, std::ios::binary}.write(content.data(), static_cast<std::streamsize>(bytes));
        return path;
    }
    static char byte_at(std::size_t i, unsigned seed = 0) {
        return static_cast<char>(i * 31 + i / page_bytes + seed);
    }

    static ScanSettings settings() {
        ScanSettings settings;
        settings.registered_limit = std::size_t{1} << 30;
        settings.register_bytes = 16 * page_bytes;
        settings.register_gap = 2 * page_bytes;
        settings.register_threads = 3;
        settings.slab_bytes = page_bytes;
        return settings;
    }
    MappedFiles files(ScanSettings const& settings) {
        return MappedFiles{settings, std::make_unique<BookRegistrar>(books_)};
    }

    // That the pieces are the ranges' bytes, and each in one registered range.
    void expect_bytes(
        std::vector<HostPiece> const& pieces, std::vector<FileRange> const& ranges, unsigned seed = 0) const {
        std::string got;
        for (auto const& piece : pieces) {
            EXPECT_TRUE(books_.holds(static_cast<char const*>(piece.address), piece.bytes));
            got.append(static_cast<char const*>(piece.address), piece.bytes);
        }
        std::string expected;
        for (auto const& range : ranges) {
            for (std::size_t i = 0; i < range.bytes; ++i) {
                expected += byte_at(range.offset + i, seed);
            }
        }
        EXPECT_EQ(got, expected);
    }

    Books books_;
    std::filesystem::path folder_;
};

TEST_F(MappedFilesTest, RegistersWholePagesOfWhatIsNeeded) {
    auto mapped = files(settings());
    DataFile const file{write("a", 100 * page_bytes + 17)};
    std::vector<FileRange> const ranges{{10 * page_bytes + 100, 3 * page_bytes}, {50 * page_bytes, 10}};
    auto lease = mapped.prepare(file, ranges);
    ASSERT_TRUE(lease);
    auto const pieces = lease->wait();
    ASSERT_TRUE(pieces);
    expect_bytes(*pieces, ranges);
    EXPECT_EQ(books_.total(), 5 * page_bytes);
    EXPECT_EQ(mapped.registered_bytes(), 5 * page_bytes);
}

TEST_F(MappedFilesTest, RegistersTheLastPageOfAFile) {
    auto mapped = files(settings());
    DataFile const file{write("a", 3 * page_bytes + 17)};
    std::vector<FileRange> const ranges{{3 * page_bytes, 17}};
    auto lease = mapped.prepare(file, ranges);
    ASSERT_TRUE(lease);
    expect_bytes(lease->wait().value(), ranges);
}

TEST_F(MappedFilesTest, RegistersNeighboursInOneCall) {
    auto mapped = files(settings());
    DataFile const file{write("a", 100 * page_bytes)};
    std::vector<FileRange> const ranges{
        {0, page_bytes}, {2 * page_bytes, page_bytes}, {10 * page_bytes, page_bytes}};
    auto lease = mapped.prepare(file, ranges);
    ASSERT_TRUE(lease);
    expect_bytes(lease->wait().value(), ranges);
    EXPECT_EQ(books_.calls(), 2);  // the first two with the page between them
    EXPECT_EQ(books_.total(), 4 * page_bytes);
}

TEST_F(MappedFilesTest, RegistersLargeRangesInParts) {
    auto mapped = files(settings());
    DataFile const file{write("a", 100 * page_bytes)};
    std::vector<FileRange> const ranges{{100, 40 * page_bytes}};
    auto lease = mapped.prepare(file, ranges);
    ASSERT_TRUE(lease);
    auto const pieces = lease->wait().value();
    EXPECT_EQ(pieces.size(), 3U);
    expect_bytes(pieces, ranges);
}

TEST_F(MappedFilesTest, ExtendsWhatIsThere) {
    auto mapped = files(settings());
    DataFile const file{write("a", 100 * page_bytes)};
    std::vector<FileRange> const middle{{10 * page_bytes + 1, page_bytes}};
    std::vector<FileRange> const around{{9 * page_bytes, 6 * page_bytes}};
    auto first = mapped.prepare(file, middle);
    expect_bytes(first->wait().value(), middle);
    auto second = mapped.prepare(file, around);
    expect_bytes(second->wait().value(), around);
    EXPECT_EQ(books_.total(), 6 * page_bytes);
    EXPECT_EQ(books_.calls(), 3);
    first->release();
    second->release();
    auto again = mapped.prepare(file, around);
    expect_bytes(again->wait().value(), around);
    EXPECT_EQ(books_.calls(), 3);  // it stayed registered
}

TEST_F(MappedFilesTest, GivesBackWhatWasUsedLongestAgo) {
    auto limited = settings();
    limited.registered_limit = 8 * page_bytes;
    auto mapped = files(limited);
    DataFile const file{write("a", 100 * page_bytes)};
    auto const use = [&](std::uint64_t at) {
        std::vector<FileRange> const ranges{{at * page_bytes, 3 * page_bytes}};
        auto lease = mapped.prepare(file, ranges);
        ASSERT_TRUE(lease);
        expect_bytes(lease->wait().value(), ranges);
    };
    use(0);
    use(10);
    use(0);
    EXPECT_EQ(books_.calls(), 2);
    use(20);  // in place of 10
    use(0);
    EXPECT_EQ(books_.calls(), 3);
    use(10);
    EXPECT_EQ(books_.calls(), 4);
    EXPECT_LE(books_.largest(), 8 * page_bytes);
}

TEST_F(MappedFilesTest, RefusesWhatDoesNotFitBesideWhatIsHeld) {
    auto limited = settings();
    limited.registered_limit = 4 * page_bytes;
    auto mapped = files(limited);
    DataFile const file{write("a", 100 * page_bytes)};
    std::vector<FileRange> const first{{0, 3 * page_bytes}};
    std::vector<FileRange> const second{{2 * page_bytes, 3 * page_bytes}};
    std::vector<FileRange> const large{{0, 5 * page_bytes}};
    EXPECT_FALSE(mapped.prepare(file, large));
    auto lease = mapped.prepare(file, first);
    ASSERT_TRUE(lease);
    EXPECT_FALSE(mapped.prepare(file, second));
    expect_bytes(lease->wait().value(), first);
    lease->release();
    auto other = mapped.prepare(file, std::vector<FileRange>{{50 * page_bytes, 3 * page_bytes}});
    ASSERT_TRUE(other);
    EXPECT_TRUE(other->wait());
}

TEST_F(MappedFilesTest, ReleasesOnDemand) {
    auto mapped = files(settings());
    DataFile const file{write("a", 100 * page_bytes)};
    auto held = mapped.prepare(file, std::vector<FileRange>{{0, 2 * page_bytes}});
    ASSERT_TRUE(held->wait());
    {
        auto lease = mapped.prepare(file, std::vector<FileRange>{{10 * page_bytes, 4 * page_bytes}});
        ASSERT_TRUE(lease->wait());
    }
    EXPECT_EQ(mapped.release_unused(std::size_t{1} << 40), 4 * page_bytes);
    EXPECT_EQ(books_.total(), 2 * page_bytes);
}

TEST_F(MappedFilesTest, SaysWhenRegisteringIsRefused) {
    auto mapped = files(settings());
    DataFile const file{write("a", 100 * page_bytes)};
    books_.refuse = true;
    auto lease = mapped.prepare(file, std::vector<FileRange>{{0, 40 * page_bytes}});
    ASSERT_TRUE(lease);
    EXPECT_FALSE(lease->wait());
    EXPECT_FALSE(mapped.prepare(file, std::vector<FileRange>{{0, page_bytes}}));  // not tried again
    lease->release();
    EXPECT_EQ(mapped.registered_bytes(), 0U);
}

TEST_F(MappedFilesTest, MapsAChangedFileAnew) {
    auto mapped = files(settings());
    auto const path = write("a", 20 * page_bytes);
    std::vector<FileRange> const ranges{{0, 2 * page_bytes}};
    DataFile const before{path};
    auto old_lease = mapped.prepare(before, ranges);
    ASSERT_TRUE(old_lease->wait());
    std::filesystem::rename(write("b", 20 * page_bytes, 5), path);
    DataFile const after{path};
    auto lease = mapped.prepare(after, ranges);
    expect_bytes(lease->wait().value(), ranges, 5);
    expect_bytes(old_lease->wait().value(), ranges);  // replaced by renaming, the old file is what it was
    old_lease->release();
    EXPECT_EQ(books_.total(), 2 * page_bytes);
}

TEST_F(MappedFilesTest, RefusesRangesBehindTheEnd) {
    auto mapped = files(settings());
    DataFile const file{write("a", 10 * page_bytes)};
    EXPECT_FALSE(mapped.prepare(file, std::vector<FileRange>{{9 * page_bytes, page_bytes + 1}}));
    EXPECT_FALSE(mapped.prepare(file, std::vector<FileRange>{{~std::uint64_t{0}, 2}}));
}

TEST_F(MappedFilesTest, MapsNothingIfTold) {
    auto off = settings();
    off.map_files = false;
    auto mapped = files(off);
    DataFile const file{write("a", 10 * page_bytes)};
    EXPECT_FALSE(mapped.prepare(file, std::vector<FileRange>{{0, page_bytes}}));
}

TEST_F(MappedFilesTest, UsesSlabsAgain) {
    auto mapped = files(settings());
    {
        auto const one = mapped.take_slab();
        auto const two = mapped.take_slab();
        EXPECT_NE(one.data(), two.data());
    }
    auto const again = mapped.take_slab();
    EXPECT_EQ(books_.slabs, 2);
}

TEST_F(MappedFilesTest, RegistersForLaterReadsWhatNobodyWaitedFor) {
    auto later = settings();
    later.read_while_registering = true;
    later.register_threads = 1;
    auto mapped = files(later);
    DataFile const file{write("a", 200 * page_bytes)};
    for (std::uint64_t at = 0; at < 200; at += 10) {
        auto const lease = mapped.prepare(file, std::vector<FileRange>{{at * page_bytes, 5 * page_bytes}});
        ASSERT_TRUE(lease);
    }
    std::vector<FileRange> const last{{190 * page_bytes, 5 * page_bytes}};
    auto lease = mapped.prepare(file, last);
    ASSERT_TRUE(lease);
    expect_bytes(lease->wait().value(), last);
    EXPECT_TRUE(lease->is_settled());
    EXPECT_EQ(books_.calls(), 20);  // one thread does them in order
}

TEST_F(MappedFilesTest, EndsWithoutRegisteringWhatIsLeft) {
    auto later = settings();
    later.read_while_registering = true;
    later.register_threads = 1;
    DataFile const file{write("a", 200 * page_bytes)};
    auto mapped = files(later);
    for (std::uint64_t at = 0; at < 200; at += 10) {
        ASSERT_TRUE(mapped.prepare(file, std::vector<FileRange>{{at * page_bytes, page_bytes}}));
    }
}

TEST_F(MappedFilesTest, ServesManyThreads) {
    auto limited = settings();
    limited.registered_limit = 150 * page_bytes;
    auto mapped = files(limited);
    std::vector<std::string> paths;
    for (unsigned i = 0; i < 3; ++i) {
        paths.push_back(write("file" + std::to_string(i), 200 * page_bytes));
    }
    std::atomic<int> served{0};
    {
        std::vector<std::jthread> threads;
        for (unsigned t = 0; t < 6; ++t) {
            threads.emplace_back([&, t] {
                std::mt19937 random{t};
                std::vector<MappedFiles::Lease> held;
                for (int round = 0; round < 200; ++round) {
                    DataFile const file{paths[random() % paths.size()]};
                    std::vector<FileRange> ranges;
                    for (auto n = 1 + random() % 5; n > 0; --n) {
                        auto const bytes = 1 + random() % (6 * page_bytes);
                        ranges.push_back({random() % (200 * page_bytes - bytes), bytes});
                    }
                    auto lease = mapped.prepare(file, ranges);
                    if (!lease) {
                        held.clear();
                        continue;
                    }
                    if (random() % 4 == 0) {
                        continue;  // given up before it is registered
                    }
                    auto const pieces = lease->wait();
                    ASSERT_TRUE(pieces);
                    std::size_t bytes = 0;
                    for (auto const& piece : *pieces) {
                        ASSERT_TRUE(books_.holds(static_cast<char const*>(piece.address), piece.bytes));
                        bytes += piece.bytes;
                    }
                    std::size_t wanted = 0;
                    for (auto const& range : ranges) {
                        wanted += range.bytes;
                    }
                    ASSERT_EQ(bytes, wanted);
                    ++served;
                    held.push_back(std::move(*lease));
                    if (held.size() > 2) {
                        held.erase(held.begin());
                    }
                }
            });
        }
    }
    EXPECT_GT(served, 100);
    EXPECT_LE(books_.largest(), limited.registered_limit);
}

}  // namespace
}  // namespace rapidsmpf::compute
