// What goes wrong with a disk: each fails the operation that needed the bytes, says where, and leaves the rest alone.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/disk_space.hpp>

#include "disk_support.hpp"
#include "memory/disk/disk_faults.hpp"

namespace rapidsmpf {
namespace {

using test::equal;
using test::read_all;
using test::spill_error;
using test::TemporaryFolder;
using test::TestBytes;

constexpr std::size_t MiB = 1024 * 1024;

class DiskFailure : public testing::Test {
  protected:
    [[nodiscard]] std::shared_ptr<DiskSpace> make(std::filesystem::path directory) const {
        DiskSpace::Settings settings;
        settings.directory = std::move(directory);
        settings.faults_for_testing = faults_;
        return DiskSpace::make(std::move(settings));
    }
    // Writing fails with a message that names place, amount and reason; then the disk is well again.
    void expect_failed_write(std::string const& reason) {
        auto const text = spill_error([&] { (void)space_->write(bytes_.all()); });
        EXPECT_NE(text.find(folder_.path().string()), std::string::npos) << text;
        EXPECT_NE(text.find("file system at /"), std::string::npos) << text;
        EXPECT_NE(text.find(reason), std::string::npos) << text;
        EXPECT_EQ(space_->used(), 0);
        faults_->clear();
        expect_works();
    }
    void expect_works() {
        auto const extent = space_->write(bytes_.all());
        EXPECT_TRUE(equal(read_all(extent), bytes_.all()));
    }
    TemporaryFolder folder_;
    std::shared_ptr<DiskFaults> faults_{std::make_shared<DiskFaults>(11)};
    TestBytes bytes_{6 * MiB + 5};
    std::shared_ptr<DiskSpace> space_{make(folder_.path())};
};

TEST_F(DiskFailure, NoSpaceToReserve) {
    faults_->fail(DiskCall::allocate, 1, 100, ENOSPC);
    expect_failed_write("cannot get 6.00 MiB for spilled data");
}

TEST_F(DiskFailure, NoSpaceForALargeStepIsNotTheEnd) {
    faults_->fail(DiskCall::allocate, 1, 1, ENOSPC);
    expect_works();
}

TEST_F(DiskFailure, NoSpaceToWrite) {
    faults_->fail(DiskCall::write, 2, 1, ENOSPC);
    expect_failed_write("No space left on device. Free some space there, or set spill_directory");
}

TEST_F(DiskFailure, ErrorWhileWriting) {
    faults_->fail(DiskCall::write, 1, 1, EIO);
    expect_failed_write("MiB of spilled data to");
}

TEST_F(DiskFailure, NoPermission) {
    faults_->fail(DiskCall::open, 1, 10, EACCES);
    expect_failed_write("Permission denied. Set spill_directory to a folder that this process may write to");
}

TEST_F(DiskFailure, TooManyOpenFiles) {
    faults_->fail(DiskCall::open, 1, 1, EMFILE);
    expect_failed_write("Raise the limit of open files");
}

TEST_F(DiskFailure, ErrorWhileReading) {
    auto const extent = space_->write(bytes_.all());
    faults_->fail(DiskCall::read, 1, 1, EIO);
    auto const text = spill_error([&] { (void)read_all(extent); });
    EXPECT_NE(text.find("of spilled data from " + folder_.path().string()), std::string::npos) << text;
    EXPECT_TRUE(equal(read_all(extent), bytes_.all()));
}

TEST_F(DiskFailure, EveryFlippedBitIsFound) {
    auto const extent = space_->write(bytes_.all());
    std::vector<std::span<std::byte const>> const views{bytes_.all().first(10), bytes_.all().first(9)};
    auto const small = space_->write(views);
    faults_->corrupt_reads(1);
    for (int i = 0; i < 5; ++i) {
        auto const text = spill_error([&] { (void)read_all(extent); });
        EXPECT_NE(text.find("is not what was written"), std::string::npos) << text;
        EXPECT_NE(text.find(folder_.path().string()), std::string::npos) << text;
    }
    faults_->clear();
    EXPECT_TRUE(equal(read_all(extent), bytes_.all()));
    EXPECT_TRUE(equal(read_all(small[1]), views[1]));
}

// The test writes into the file through /proc, which the space does not see.
TEST_F(DiskFailure, CorruptFileIsFound) {
    auto const extent = space_->write(bytes_.all());
    bool changed = false;
    for (auto const& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
        std::error_code gone;
        auto const target = std::filesystem::read_symlink(entry.path(), gone);
        if (!gone && target.string().starts_with(folder_.path().string() + "/")) {
            int const fd = ::open(entry.path().c_str(), O_WRONLY | O_CLOEXEC);
            ASSERT_GE(fd, 0);
            char const wrong = static_cast<char>(~static_cast<unsigned char>(bytes_.all()[5 * MiB]));
            changed = ::pwrite(fd, &wrong, 1, 5 * MiB) == 1;
            ::close(fd);
            break;
        }
    }
    ASSERT_TRUE(changed);
    TestBytes back{MiB};
    space_->read(extent, 0, back.all());  // other pieces are as good as before
    EXPECT_THROW(space_->read(extent, 5 * MiB, back.all().first(1)), SpillError);
    EXPECT_THROW((void)read_all(extent), SpillError);
    expect_works();
}

TEST_F(DiskFailure, AFailedBatchKeepsNothing) {
    std::vector<std::span<std::byte const>> const batch{
        bytes_.all().first(100), bytes_.all().first(MiB), bytes_.all().first(200), bytes_.all()};
    faults_->fail(DiskCall::write, 3, 1, EIO);
    EXPECT_THROW((void)space_->write(batch), SpillError);
    EXPECT_EQ(space_->used(), 0);
    EXPECT_EQ(space_->write(batch).size(), 4U);
}

TEST_F(DiskFailure, OneFailureDoesNotReachAnotherOperation) {
    faults_->hold(DiskCall::write);
    auto good = space_->start_write(bytes_.all().first(MiB));
    faults_->wait_until_held(DiskCall::write, 1);
    faults_->fail(DiskCall::write, 2, 1, ENOSPC);
    auto bad = space_->start_write(bytes_.all().first(MiB));
    faults_->wait_until_held(DiskCall::write, 2);
    faults_->release(DiskCall::write);
    EXPECT_THROW(bad.get(), SpillError);
    EXPECT_TRUE(equal(read_all(good.take_one()), bytes_.all().first(MiB)));
}

TEST_F(DiskFailure, FolderThatIsRemovedBeforeIsMadeAgain) {
    auto const inner = folder_.path() / "spill";
    auto const space = make(inner);
    {
        auto const extent = space->write(bytes_.all());
    }
    std::filesystem::remove_all(inner);
    auto const other = make(inner);
    auto const extent = other->write(bytes_.all());
    EXPECT_TRUE(equal(read_all(extent), bytes_.all()));
}

// The file has no name: it needs no folder once it is open.
TEST_F(DiskFailure, FolderThatIsRemovedWhileInUse) {
    auto const inner = folder_.path() / "spill";
    auto const space = make(inner);
    auto const before = space->write(bytes_.all());
    std::filesystem::remove_all(inner);
    auto const after = space->write(bytes_.all());
    EXPECT_TRUE(equal(read_all(before), bytes_.all()));
    EXPECT_TRUE(equal(read_all(after), bytes_.all()));
    // A message about it is still possible.
    faults_->fail(DiskCall::write, faults_->calls(DiskCall::write) + 1, 1, EIO);
    EXPECT_NE(spill_error([&] { (void)space->write(bytes_.all()); }).find(inner.string()), std::string::npos);
}

TEST_F(DiskFailure, FolderThatCannotBeMade) {
    auto const file = folder_.path() / "file";
    ASSERT_GE(::close(::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    auto const space = make(file / "folder");
    auto const text = spill_error([&] { (void)space->write(bytes_.all()); });
    EXPECT_NE(text.find("cannot make the spill folder"), std::string::npos) << text;
    EXPECT_NE(text.find("Not a directory"), std::string::npos) << text;
    // When the obstacle is gone, it goes on.
    std::filesystem::remove(file);
    auto const extent = space->write(bytes_.all());
    EXPECT_TRUE(equal(read_all(extent), bytes_.all()));
}

TEST_F(DiskFailure, FolderOfTheSystem) {
    // Not even root can make a file there.
    auto const space = make("/proc/self/spill");
    auto const text = spill_error([&] { (void)space->write(bytes_.all()); });
    EXPECT_NE(text.find("/proc/self/spill"), std::string::npos) << text;
    EXPECT_NE(text.find("proc file system at /proc"), std::string::npos) << text;
}

// Runs `body` in a folder on a file system of 8 MiB that only this thread, and those it starts, can see. Where mounts
// are not allowed, the same size is a fault that the test puts in.
void on_small_file_system(
    std::filesystem::path const& folder, DiskFaults& faults, std::function<void()> const& body) {
    std::thread{[&] {
        bool const mounted = ::unshare(CLONE_NEWNS) == 0
                             && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0
                             && ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=8m") == 0;
        if (!mounted) {
            // The second block finds no room, nor does it after the space released free blocks.
            faults.fail(DiskCall::allocate, 2, 2, ENOSPC);
        }
        body();
    }}.join();
}

TEST_F(DiskFailure, FullFileSystem) {
    on_small_file_system(folder_.path(), *faults_, [&] {
        DiskSpace::Settings settings;
        settings.directory = folder_.path();
        settings.faults_for_testing = faults_;
        settings.keep_free = 0;  // the file grows by what is needed only
        auto const space = DiskSpace::make(std::move(settings));
        auto first = space->write(bytes_.all());
        auto const text = spill_error([&] { (void)space->write(bytes_.all()); });
        EXPECT_NE(text.find("cannot get 6.00 MiB for spilled data"), std::string::npos) << text;
        EXPECT_NE(text.find("No space left on device"), std::string::npos) << text;
        EXPECT_TRUE(equal(read_all(first), bytes_.all()));
        // What others free, or what was spilled and is not needed any more, makes room again.
        first = {};
        auto const second = space->write(bytes_.all());
        EXPECT_TRUE(equal(read_all(second), bytes_.all()));
    });
}

// Whatever fails: an operation either throws SpillError or has the right bytes, and nothing is lost.
TEST_F(DiskFailure, RandomFaults) {
    faults_->fail_randomly(DiskCall::open, 0.5, EMFILE);
    faults_->fail_randomly(DiskCall::allocate, 0.1, ENOSPC);
    faults_->fail_randomly(DiskCall::write, 0.1, EIO);
    faults_->fail_randomly(DiskCall::read, 0.1, EIO);
    faults_->shorten(DiskCall::write, 128 * 1024);
    faults_->corrupt_reads(0.1);
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            std::mt19937 random{thread};
            std::vector<std::pair<DiskExtent, std::span<std::byte const>>> held;
            for (int step = 0; step < 60; ++step) {
                auto const part = bytes_.all().subspan(random() % 9000, random() % (300 * 1024));
                try {
                    held.emplace_back(space_->write(part), part);
                } catch (SpillError const&) {
                    held.resize(held.size() / 2);
                }
                if (!held.empty()) {
                    auto const& [extent, expected] = held[random() % held.size()];
                    try {
                        EXPECT_TRUE(equal(read_all(extent), expected));
                    } catch (SpillError const& error) {
                        EXPECT_STRNE(error.what(), "");
                    }
                }
            }
            // What is held is whole: only reading it went wrong.
            faults_->clear();
            for (auto const& [extent, expected] : held) {
                EXPECT_TRUE(equal(read_all(extent), expected));
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(space_->used(), 0);
    EXPECT_GT(faults_->injected(), 0U);
    expect_works();
}

// A process that is killed in the middle of writing, in each way to make the file, leaves nothing.
enum class Naming : std::uint8_t { nameless, unlinked, default_folder };

class Killed : public testing::TestWithParam<Naming> {
  protected:
    static constexpr auto variable = "RAPIDSMPF_TEST_KILLED_FOLDER";

    [[noreturn]] static void write_and_be_killed(Naming naming) {
        std::filesystem::path const folder = std::getenv(variable);
        DiskSpace::Settings settings;
        settings.faults_for_testing = std::make_shared<DiskFaults>();
        if (naming == Naming::default_folder) {
            ::setenv("TMPDIR", folder.c_str(), 1);
        } else {
            settings.directory = folder;
        }
        if (naming == Naming::unlinked) {
            settings.faults_for_testing->fail(DiskCall::open, 1, 1, EOPNOTSUPP);
        }
        auto const faults = settings.faults_for_testing;
        auto const space = DiskSpace::make(std::move(settings));
        TestBytes const bytes{6 * MiB};
        auto const kept = space->write(bytes.all());
        faults->hold(DiskCall::write);
        auto const writing = space->start_write(bytes.all());
        faults->wait_until_held(DiskCall::write, 2);
        if (test::bytes_on_disk(folder) < static_cast<std::int64_t>(12 * MiB)) {
            std::_Exit(3);  // it does not write where we look
        }
        ::kill(::getpid(), SIGKILL);
        std::_Exit(4);
    }
};

TEST_P(Killed, LeavesNothing) {
    // The child runs this test anew, up to the statement; no process would remove a folder that it makes.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    std::optional<TemporaryFolder> folder;
    if (std::getenv(variable) == nullptr) {
        ::setenv(variable, folder.emplace().path().c_str(), 1);
    }
    std::filesystem::path const watched = std::getenv(variable);
    EXPECT_EXIT(write_and_be_killed(GetParam()), testing::KilledBySignal(SIGKILL), "");
    ::unsetenv(variable);
    EXPECT_TRUE(std::filesystem::is_empty(watched));
}

std::string name_of(testing::TestParamInfo<Naming> const& info) {
    std::array<char const*, 3> const names{"nameless", "unlinked", "default_folder"};
    return names[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Killed, testing::Values(Naming::nameless, Naming::unlinked, Naming::default_folder), name_of);

}  // namespace
}  // namespace rapidsmpf
