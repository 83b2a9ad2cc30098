#include <rapidsmpf/memory/disk_space.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <rapidsmpf/core/error.hpp>

#include "disk_support.hpp"
#include "memory/disk/disk_faults.hpp"

namespace rapidsmpf {
namespace {

using test::bytes_on_disk;
using test::equal;
using test::read_all;
using test::TemporaryFolder;
using test::TestBytes;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

// How the file was opened and how memory lies must make no difference to what is read.
enum class Mode : std::uint8_t { direct, buffered, unlinked, short_transfers };

class DiskSpaceTest : public testing::Test {
  protected:
    [[nodiscard]] DiskSpace::Settings settings() const {
        DiskSpace::Settings settings;
        settings.directory = folder_.path();
        settings.faults_for_testing = faults_;
        settings.statistics = statistics_;
        return settings;
    }
    [[nodiscard]] static std::vector<DiskExtent> write_all(
        DiskSpace& space, std::vector<TestBytes> const& written) {
        std::vector<std::span<std::byte const>> blocks;
        for (auto const& bytes : written) {
            blocks.push_back(bytes.all());
        }
        return space.write(blocks);
    }
    [[nodiscard]] static std::vector<TestBytes> blocks_of(std::size_t size, std::uint64_t count) {
        std::vector<TestBytes> blocks;
        for (std::uint64_t i = 0; i < count; ++i) {
            blocks.emplace_back(size, i);
        }
        return blocks;
    }
    TemporaryFolder folder_;
    std::shared_ptr<DiskFaults> faults_{std::make_shared<DiskFaults>()};
    std::shared_ptr<Statistics> statistics_{std::make_shared<Statistics>()};
};

class RoundTrip : public DiskSpaceTest, public testing::WithParamInterface<std::tuple<Mode, std::size_t>> {
  protected:
    void SetUp() override {
        switch (std::get<0>(GetParam())) {
            case Mode::direct:
                break;
            case Mode::buffered:  // the file system refuses direct I/O, with a name and without
                faults_->fail(DiskCall::open, 1, 2, EINVAL);
                break;
            case Mode::unlinked:
                faults_->fail(DiskCall::open, 1, 1, EOPNOTSUPP);
                break;
            case Mode::short_transfers:
                faults_->shorten(DiskCall::write, 8192);
                faults_->shorten(DiskCall::read, 12'288);
                break;
        }
        space_ = DiskSpace::make(settings());
    }
    std::size_t misalignment_{std::get<1>(GetParam())};
    std::shared_ptr<DiskSpace> space_;
};

TEST_P(RoundTrip, OfEverySizeAroundABoundary) {
    for (std::size_t const size :
         {std::size_t{0}, std::size_t{1}, 4 * KiB - 1, 4 * KiB, 4 * KiB + 1, 64 * KiB - 1, 64 * KiB,
          256 * KiB - 1, 256 * KiB, 256 * KiB + 1, MiB, MiB + 1, 4 * MiB - 1, 4 * MiB, 4 * MiB + 4097}) {
        TestBytes const bytes{size, size + 1, misalignment_};
        auto const extent = space_->write(bytes.all());
        EXPECT_EQ(extent.size(), size);
        EXPECT_EQ(extent.stored_bytes() % DiskSpace::alignment, 0U);
        TestBytes back{size, 99, misalignment_};
        space_->read(extent, 0, back.all());
        EXPECT_TRUE(equal(back.all(), bytes.all())) << size;
    }
    EXPECT_EQ(space_->used(), 0);
}

TEST_P(RoundTrip, OfAPart) {
    TestBytes const bytes{5 * MiB + 777, 5, misalignment_};
    auto const extent = space_->write(bytes.all());
    for (auto const& [offset, size] : std::vector<std::pair<std::size_t, std::size_t>>{
             {0, 1},
             {4095, 2},
             {100, 300 * KiB},
             {256 * KiB, 256 * KiB},
             {255 * KiB, MiB + 3 * KiB},
             {4 * MiB - 1, 2},
             {3 * MiB + 4096, 2 * MiB - 4096},
             {5 * MiB, 777},
             {5 * MiB + 777, 0}}) {
        for (std::size_t const to : {std::size_t{0}, std::size_t{8}, offset % DiskSpace::alignment}) {
            TestBytes back{size, 99, to};
            space_->read(extent, offset, back.all());
            EXPECT_TRUE(equal(back.all(), bytes.all().subspan(offset, size))) << offset << " " << size;
        }
    }
}

TEST_P(RoundTrip, OfManyBlocksAtOnce) {
    std::vector<TestBytes> blocks;
    std::vector<std::span<std::byte const>> views;
    for (std::size_t const size :
         {3 * KiB, std::size_t{0}, std::size_t{17}, 70 * KiB, 63 * KiB, 4 * MiB + 1, std::size_t{1}}) {
        blocks.emplace_back(size, size + 7, misalignment_);
        views.push_back(blocks.back().all());
    }
    auto const extents = space_->write(views);
    ASSERT_EQ(extents.size(), blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        EXPECT_TRUE(equal(read_all(extents[i]), views[i])) << i;
    }
}

std::string name_of(testing::TestParamInfo<RoundTrip::ParamType> const& info) {
    auto const& [mode, misalignment] = info.param;
    std::array<char const*, 4> const names{"direct", "buffered", "unlinked", "short_transfers"};
    return std::string{names[static_cast<std::size_t>(mode)]}
           + (misalignment == 0 ? "_aligned" : "_unaligned");
}

INSTANTIATE_TEST_SUITE_P(
    Ways, RoundTrip,
    testing::Combine(
        testing::Values(Mode::direct, Mode::buffered, Mode::unlinked, Mode::short_transfers),
        testing::Values<std::size_t>(0, 256)),
    name_of);

// A file system that takes O_DIRECT when the file is opened, and refuses the transfer.
TEST_F(DiskSpaceTest, GoesOnWithoutDirectIo) {
    faults_->fail(DiskCall::write, 1, 1, EINVAL);
    auto const space = DiskSpace::make(settings());
    TestBytes const bytes{MiB + 5};
    auto const extent = space->write(bytes.all());
    EXPECT_TRUE(equal(read_all(extent), bytes.all()));
}

// As on file systems that cannot reserve blocks.
TEST_F(DiskSpaceTest, GoesOnWithoutReservedBlocks) {
    faults_->fail(DiskCall::allocate, 1, 1000, EOPNOTSUPP);
    auto const space = DiskSpace::make(settings());
    TestBytes const bytes{MiB + 5};
    auto const first = space->write(bytes.all());
    auto const second = space->write(bytes.all());
    EXPECT_TRUE(equal(read_all(first), bytes.all()));
    EXPECT_TRUE(equal(read_all(second), bytes.all()));
}

TEST_F(DiskSpaceTest, PacksTinyBlocks) {
    auto const space = DiskSpace::make(settings());
    std::vector<TestBytes> blocks;
    std::vector<std::span<std::byte const>> views;
    std::size_t total = 0;
    for (std::size_t i = 0; i < 5000; ++i) {
        blocks.emplace_back(1 + i % 700, i + 1, i % 9);
        views.push_back(blocks.back().all());
        total += views.back().size();
    }
    auto extents = space->write(views);
    EXPECT_LE(space->used(), static_cast<std::int64_t>(total + total / 50));
    EXPECT_LE(faults_->calls(DiskCall::write), total / MiB + 1);
    for (std::size_t i = 0; i < extents.size(); i += 13) {
        EXPECT_TRUE(equal(read_all(extents[i]), views[i])) << i;
        EXPECT_EQ(extents[i].stored_bytes(), views[i].size());
    }
    // The pages go when the last that shares them does.
    extents.resize(1);
    EXPECT_GT(space->used(), 0);
    EXPECT_TRUE(equal(read_all(extents[0]), views[0]));
    extents.clear();
    EXPECT_EQ(space->used(), 0);
}

TEST_F(DiskSpaceTest, ReusesFreedSpace) {
    auto const space = DiskSpace::make(settings());
    TestBytes const bytes{3 * MiB};
    std::vector<DiskExtent> extents(4);
    for (auto& extent : extents) {
        extent = space->write(bytes.all());
    }
    auto const before = bytes_on_disk(folder_.path());
    for (std::size_t i = 0; i < 40; ++i) {
        extents[i % 4] = {};
        extents[i % 4] = space->write(bytes.all().first(3 * MiB - i * 4 * KiB));
    }
    EXPECT_EQ(bytes_on_disk(folder_.path()), before);
    EXPECT_LE(space->peak(), static_cast<std::int64_t>(12 * MiB));
}

TEST_F(DiskSpaceTest, GivesSpaceBackToTheFileSystem) {
    auto custom = settings();
    custom.io_threads = 1;  // then what is written last is written after the trim
    custom.keep_free = static_cast<std::int64_t>(2 * MiB);
    auto const space = DiskSpace::make(std::move(custom));
    TestBytes const bytes{MiB};
    std::vector<DiskExtent> extents;
    for (int i = 0; i < 12; ++i) {
        extents.push_back(space->write(bytes.all()));
    }
    EXPECT_GE(bytes_on_disk(folder_.path()), static_cast<std::int64_t>(12 * MiB));
    auto const last = std::move(extents.back());
    auto const middle = std::move(extents[5]);
    extents.clear();
    auto const after = space->write(bytes.all().first(1));
    EXPECT_LE(space->kept_free_for_testing(), static_cast<std::int64_t>(2 * MiB));
    EXPECT_LE(bytes_on_disk(folder_.path()), static_cast<std::int64_t>(5 * MiB));
    EXPECT_TRUE(equal(read_all(middle), bytes.all()));
    EXPECT_TRUE(equal(read_all(last), bytes.all()));
}

TEST_F(DiskSpaceTest, KeepsToItsLimit) {
    auto custom = settings();
    custom.limit = static_cast<std::int64_t>(4 * MiB);
    auto const space = DiskSpace::make(std::move(custom));
    TestBytes const bytes{5 * MiB};
    auto const all = bytes.all();
    auto first = space->write(all.first(3 * MiB));
    auto const text = test::spill_error([&] { (void)space->write(all.first(MiB + 1)); });
    EXPECT_NE(text.find("3.00 MiB of the limit of 4.00 MiB"), std::string::npos) << text;
    EXPECT_NE(text.find(folder_.path().string()), std::string::npos) << text;
    EXPECT_EQ(space->used(), static_cast<std::int64_t>(3 * MiB));
    auto const second = space->write(all.first(MiB));
    EXPECT_LE(bytes_on_disk(folder_.path()), static_cast<std::int64_t>(4 * MiB + 64 * KiB));
    // All of a batch, or nothing of it.
    first = {};
    std::vector<std::span<std::byte const>> const batch{all.first(2 * MiB), all.first(2 * MiB)};
    EXPECT_THROW((void)space->write(batch), SpillError);
    EXPECT_EQ(space->used(), static_cast<std::int64_t>(MiB));
    EXPECT_TRUE(equal(read_all(space->write(all.first(3 * MiB))), all.first(3 * MiB)));
}

// Free space in pieces must not keep a large block out: the limit counts bytes, not places.
TEST_F(DiskSpaceTest, UsesItsLimitWhenFreeSpaceIsInPieces) {
    auto custom = settings();
    custom.limit = static_cast<std::int64_t>(2 * MiB);
    auto const space = DiskSpace::make(std::move(custom));
    TestBytes const bytes{MiB};
    std::vector<DiskExtent> extents;
    for (int i = 0; i < 16; ++i) {
        extents.push_back(space->write(bytes.all().first(128 * KiB)));
    }
    for (std::size_t i = 0; i < 16; i += 2) {
        extents[i] = {};
    }
    auto const large = space->write(bytes.all());
    EXPECT_TRUE(equal(read_all(large), bytes.all()));
    EXPECT_TRUE(equal(read_all(extents[1]), bytes.all().first(128 * KiB)));
    EXPECT_LE(bytes_on_disk(folder_.path()), static_cast<std::int64_t>(2 * MiB + 64 * KiB));
}

TEST_F(DiskSpaceTest, ManyThreads) {
    auto const space = DiskSpace::make(settings());
    std::vector<std::thread> threads;
    std::latch ready{6};
    for (unsigned thread = 0; thread < 6; ++thread) {
        threads.emplace_back([&, thread] {
            std::mt19937 random{thread};
            TestBytes const bytes{600 * KiB, thread + 1, thread * 64};
            std::vector<std::pair<DiskExtent, std::span<std::byte const>>> held;
            ready.arrive_and_wait();
            for (int step = 0; step < 30; ++step) {
                auto const size = random() % (500 * KiB);
                auto const part = bytes.all().subspan(random() % (100 * KiB), size);
                held.emplace_back(space->write(part), part);
                auto const& [extent, expected] = held[random() % held.size()];
                EXPECT_TRUE(equal(read_all(extent), expected));
                if (held.size() > 4) {
                    std::swap(held[random() % held.size()], held.back());
                    held.pop_back();
                }
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(space->used(), 0);
    EXPECT_GT(space->peak(), 0);
}

// Write-behind: more is written while the first is held up, and read-ahead is not stopped by it.
TEST_F(DiskSpaceTest, WritesBehind) {
    auto const space = DiskSpace::make(settings());
    TestBytes const bytes{2 * MiB};
    auto const before = space->write(bytes.all());
    faults_->hold(DiskCall::write);
    auto first = space->start_write(bytes.all());
    auto second = space->start_write(bytes.all().first(100));
    faults_->wait_until_held(DiskCall::write, 2);
    EXPECT_FALSE(first.is_done());
    EXPECT_FALSE(second.is_done());
    TestBytes back{2 * MiB, 9};
    auto reading = space->start_read(before, 0, back.all());
    reading.get();
    EXPECT_TRUE(equal(back.all(), bytes.all()));
    std::latch called{1};
    first.on_done([&] { called.count_down(); });
    faults_->release(DiskCall::write);
    called.wait();
    EXPECT_TRUE(first.is_done());
    EXPECT_TRUE(equal(read_all(first.take_one()), bytes.all()));
    second.wait();
    bool at_once = false;
    second.on_done([&] { at_once = true; });
    EXPECT_TRUE(at_once);
    EXPECT_TRUE(equal(read_all(second.take_one()), bytes.all().first(100)));
}

TEST_F(DiskSpaceTest, ADroppedWriteKeepsNothing) {
    auto const space = DiskSpace::make(settings());
    TestBytes const bytes{MiB};
    {
        auto const dropped = space->start_write(bytes.all());
    }
    EXPECT_EQ(space->used(), 0);
}

TEST_F(DiskSpaceTest, AnExtentMayGoWhileItIsRead) {
    auto const space = DiskSpace::make(settings());
    TestBytes const bytes{MiB};
    auto extent = space->write(bytes.all());
    faults_->hold(DiskCall::read);
    TestBytes back{MiB, 9};
    auto reading = space->start_read(extent, 0, back.all());
    extent = {};
    auto const other = space->write(TestBytes{MiB, 55}.all());
    faults_->release(DiskCall::read);
    reading.get();
    EXPECT_TRUE(equal(back.all(), bytes.all()));
}

TEST_F(DiskSpaceTest, AnExtentKeepsItsSpaceAlive) {
    auto space = DiskSpace::make(settings());
    TestBytes const bytes{100 * KiB};
    auto const extent = space->write(bytes.all());
    space.reset();
    EXPECT_TRUE(equal(read_all(extent), bytes.all()));
}

// The last reference may be dropped by a callback, on a thread of the space itself.
TEST_F(DiskSpaceTest, MayEndOnItsOwnThread) {
    auto space = DiskSpace::make(settings());
    TestBytes const bytes{100 * KiB};
    faults_->hold(DiskCall::write);
    auto writing = std::make_unique<PendingWrite>(space->start_write(bytes.all()));
    faults_->wait_until_held(DiskCall::write, 1);
    std::latch ready{1};
    std::latch gone{1};
    auto owner = std::make_shared<std::unique_ptr<PendingWrite>>();
    auto& pending = *writing;
    pending.on_done([owner, space, &ready, &gone]() mutable {
        ready.wait();  // until the test has dropped its references
        owner->reset();
        space.reset();
        gone.count_down();
    });
    *owner = std::move(writing);
    owner.reset();
    std::weak_ptr<DiskSpace> const watch = space;
    space.reset();
    faults_->release(DiskCall::write);
    ready.count_down();
    gone.wait();
    EXPECT_TRUE(watch.expired());
}

TEST_F(DiskSpaceTest, RefusesWhatCannotBeRead) {
    auto const space = DiskSpace::make(settings());
    auto const other = DiskSpace::make(settings());
    TestBytes const bytes{100};
    auto const extent = space->write(bytes.all());
    TestBytes back{100};
    EXPECT_THROW(space->read(extent, 1, back.all()), std::out_of_range);
    EXPECT_THROW(space->read(extent, 101, back.all().first(0)), std::out_of_range);
    EXPECT_THROW(space->read(DiskExtent{}, 0, back.all()), std::invalid_argument);
    EXPECT_THROW(other->read(extent, 0, back.all()), std::invalid_argument);
}

// Sizes below and above the limits for sharing pages and for reading several by one transfer; extents in random order.
TEST_P(RoundTrip, OfSeveralExtentsAtOnce) {
    std::mt19937 random{3};
    std::vector<TestBytes> written;
    for (std::uint64_t i = 0; i < 200; ++i) {
        constexpr std::array<std::size_t, 8> sizes{
            0, 1, 5000, 40 * KiB, 64 * KiB, 100 * KiB + 3, 256 * KiB, 300 * KiB};
        written.emplace_back(sizes[random() % sizes.size()], i, misalignment_);
    }
    auto const extents = write_all(*space_, written);
    for (std::size_t const part : {1, 3, 40}) {
        std::vector<std::size_t> chosen;
        for (std::size_t i = 0; i < extents.size(); ++i) {
            if (random() % part == 0) {
                chosen.push_back(i);
            }
        }
        std::shuffle(chosen.begin(), chosen.end(), random);
        std::vector<TestBytes> back;
        std::vector<DiskSpace::WholeRead> wanted;
        for (auto const i : chosen) {
            wanted.push_back({&extents[i], back.emplace_back(extents[i].size(), 7, misalignment_).all()});
        }
        auto const reads = space_->start_reads(wanted);
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            reads[i].get();
            EXPECT_TRUE(equal(back[i].all(), written[chosen[i]].all()));
        }
    }
}

TEST_F(DiskSpaceTest, ReadsWhatLiesTogetherWithOneTransfer) {
    auto const space = DiskSpace::make(settings());
    auto const extents = write_all(*space, blocks_of(20 * KiB, 100));
    auto const reads_for = [&](std::size_t step) {
        std::vector<TestBytes> back;
        std::vector<DiskSpace::WholeRead> wanted;
        for (std::size_t i = 0; i < extents.size(); i += step) {
            wanted.push_back({&extents[i], back.emplace_back(extents[i].size()).all()});
        }
        auto const before = faults_->calls(DiskCall::read);
        for (auto const& read : space->start_reads(wanted)) {
            read.get();
        }
        return faults_->calls(DiskCall::read) - before;
    };
    EXPECT_EQ(reads_for(1), 2U);   // 1 MiB at a time
    EXPECT_EQ(reads_for(2), 50U);  // too much between them
}

// A group that cannot be read is read one by one: what is well comes, the rest says what is wrong.
TEST_F(DiskSpaceTest, AFaultIsToldToThoseWhomItConcerns) {
    auto const space = DiskSpace::make(settings());
    auto const written = blocks_of(20 * KiB, 3);
    auto const extents = write_all(*space, written);
    std::vector<TestBytes> back;
    std::vector<DiskSpace::WholeRead> wanted;
    for (auto const& extent : extents) {
        wanted.push_back({&extent, back.emplace_back(extent.size(), 9).all()});
    }
    faults_->fail(DiskCall::read, 1, 2, EIO);  // of all together, and of the first by itself
    auto const reads = space->start_reads(wanted);
    EXPECT_THROW(reads[0].get(), SpillError);
    for (std::size_t i = 1; i < 3; ++i) {
        reads[i].get();
        EXPECT_TRUE(equal(back[i].all(), written[i].all()));
    }
    faults_->corrupt_reads(1);
    auto const corrupted = space->start_reads(wanted);
    EXPECT_EQ(
        std::ranges::count_if(
            corrupted,
            [](auto const& read) {
                try {
                    read.get();
                    return false;
                } catch (SpillError const&) {
                    return true;
                }
            }),
        1);  // one bit of the transfer
    faults_->clear();
    TestBytes small{10};
    wanted.front().destination = small.all();
    EXPECT_THROW((void)space->start_reads(wanted), std::invalid_argument);
}

TEST_F(DiskSpaceTest, CountsInStatistics) {
    auto const space = DiskSpace::make(settings());
    TestBytes const bytes{MiB + 1};
    auto const extent = space->write(bytes.all());
    TestBytes back{1000};
    space->read(extent, 5, back.all());
    EXPECT_EQ(statistics_->get("disk-write-bytes").value, static_cast<double>(MiB + 1));
    EXPECT_EQ(statistics_->get("disk-read-bytes").value, 1000);
    EXPECT_GT(statistics_->get("disk-write-seconds").value, 0);
    EXPECT_GT(statistics_->get("disk-read-seconds").value, 0);
    EXPECT_EQ(statistics_->get("disk-bytes-used").max, static_cast<double>(MiB + 4 * KiB));
}

TEST_F(DiskSpaceTest, MakesItsFolderForItsUserOnly) {
    auto custom = settings();
    custom.directory = folder_.path() / "new" / "folder";
    auto const space = DiskSpace::make(std::move(custom));
    EXPECT_TRUE(folder_.names().empty());  // nothing before the first write
    auto const extent = space->write(TestBytes{10}.all());
    for (auto const& path : {folder_.path() / "new", folder_.path() / "new" / "folder"}) {
        struct stat status{};
        ASSERT_EQ(::stat(path.c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 0777U, 0700U);
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path() / "new" / "folder"));
}

TEST_F(DiskSpaceTest, ReadsItsOptions) {
    auto const space = DiskSpace::from_options(
        config::Options{
            {{"spill_directory", folder_.path()}, {"spill_disk_limit", "3 MiB"}, {"spill_io_threads", "2"}}});
    EXPECT_EQ(space->directory(), folder_.path());
    EXPECT_EQ(space->limit(), static_cast<std::int64_t>(3 * MiB));
    EXPECT_EQ(DiskSpace::from_options(config::Options{})->limit(), DiskSpace::unlimited);
    EXPECT_EQ(
        DiskSpace::from_options(config::Options{{{"spill_disk_limit", "disabled"}}})->limit(),
        DiskSpace::unlimited);
    auto const share = DiskSpace::from_options(config::Options{{{"spill_disk_limit", "50%"}}});
    EXPECT_GT(share->limit(), 0);
    EXPECT_LT(share->limit(), DiskSpace::unlimited);
    for (auto const& [key, value] : config::Strings{
             {"spill_io_threads", "0"}, {"spill_disk_limit", "-5"}, {"spill_disk_limit", "lots"}}) {
        EXPECT_THROW((void)DiskSpace::from_options(config::Options{{{key, value}}}), std::invalid_argument)
            << key << value;
    }
}

TEST_F(DiskSpaceTest, RefusesAFolderThatCannotBeUsedAtOnce) {
    auto const file = folder_.path() / "file";
    std::ofstream{file} << "not a folder";
    std::string message;
    try {
        (void)DiskSpace::from_options(config::Options{{{"spill_directory", file / "folder"}}});
    } catch (std::invalid_argument const& error) {
        message = error.what();
    }
    for (auto const& part :
         {std::string{"option spill_directory"}, file.string(), std::string{"may write to"}}) {
        EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
    }
    auto const space =
        DiskSpace::from_options(config::Options{{{"spill_directory", folder_.path() / "new"}}});
    EXPECT_TRUE(std::filesystem::is_directory(folder_.path() / "new"));
}

}  // namespace
}  // namespace rapidsmpf
