// Where shared memory cannot be had: each way in a process of its own, which says why and goes on.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rapidsmpf/device/detail/shared_memory.hpp>

#include "sanitized.hpp"

namespace rapidsmpf::device {
namespace {

// Ends the process: with 0 and the reason on stderr when there is no shared memory.
[[noreturn]] void say_why_there_is_none() {
    std::string reason;
    auto const* const memory = SharedMemory::current(reason);
    std::fprintf(stderr, "%s\n", memory == nullptr ? reason.c_str() : "there is shared memory");
    std::_Exit(memory == nullptr ? EXIT_SUCCESS : EXIT_FAILURE);
}

[[noreturn]] void say_why_under_limit(decltype(RLIMIT_AS) resource, rlim_t bytes) {
    rlimit const limit{bytes, bytes};
    if (::setrlimit(resource, &limit) != 0) {
        std::_Exit(EXIT_FAILURE);
    }
    say_why_there_is_none();
}

// A system call that this kernel is made to lack.
bool forbid_call(std::uint32_t number) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog const program{sizeof(filter) / sizeof(filter[0]), filter};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
           && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Whether a child process could do that.
template <typename Try>
bool is_possible(Try const& attempt) {
    auto const child = ::fork();
    if (child == 0) {
        std::_Exit(attempt() ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    int status = EXIT_FAILURE;
    return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

class SharedMemoryRefusal : public testing::Test {
  protected:
    void SetUp() override {
        GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process, in which there is none yet
    }
};

TEST_F(SharedMemoryRefusal, TooLittleAddressSpace) {
    if (sanitized) {
        GTEST_SKIP() << "a sanitizer needs the address space";
    }
    EXPECT_EXIT(
        say_why_under_limit(RLIMIT_AS, rlim_t{1} << 30U), testing::ExitedWithCode(0),
        "the limit RLIMIT_AS of this process is 1073741824 bytes");
}

TEST_F(SharedMemoryRefusal, FilesMayNotBeThatLarge) {
    EXPECT_EXIT(
        say_why_under_limit(RLIMIT_FSIZE, 1 << 20), testing::ExitedWithCode(0),
        "the limit RLIMIT_FSIZE of this process is 1048576 bytes");
}

TEST_F(SharedMemoryRefusal, NoDescriptorsLeft) {
    EXPECT_EXIT(say_why_under_limit(RLIMIT_NOFILE, 0), testing::ExitedWithCode(0), "/proc does not tell");
}

TEST_F(SharedMemoryRefusal, AKernelWithoutMemfd) {
    if (!is_possible([] { return forbid_call(SYS_memfd_create); })) {
        GTEST_SKIP() << "system calls cannot be filtered here";
    }
    auto const without_memfd = [] {
        if (!forbid_call(SYS_memfd_create)) {
            std::_Exit(EXIT_FAILURE);
        }
        say_why_there_is_none();
    };
    EXPECT_EXIT(without_memfd(), testing::ExitedWithCode(0), "memfd_create: Function not implemented");
}

}  // namespace
}  // namespace rapidsmpf::device
