#include <rapidsmpf/core/error.hpp>

#include <exception>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

template <typename Error>
std::string described(Error error) {
    return describe_error(std::make_exception_ptr(std::move(error)));
}

TEST(DescribeError, NamesTheTypesOfThisLibrary) {
    EXPECT_EQ(described(SpillError{"no room"}), "SpillError: no room");
    EXPECT_EQ(described(OutOfMemory{"no room"}), "OutOfMemory: no room");
    EXPECT_EQ(described(ReservationError{"no room"}), "ReservationError: no room");
    EXPECT_EQ(described(BadAlloc{"no room"}), "BadAlloc: no room");
    EXPECT_EQ(described(TimeoutError{"late"}), "TimeoutError: late");
    EXPECT_EQ(described(FormatError{"odd"}), "FormatError: odd");
    EXPECT_EQ(described(DeviceLostError{"gone"}), "DeviceLostError: gone");
    EXPECT_EQ(described(SystemError{"open", 2}), "SystemError: open: No such file or directory");
    EXPECT_EQ(described(RankFailedError{1, "", 0, "left"}), "RankFailedError: rank 1 failed: left");
}

TEST(DescribeError, GivesTheTextOfOthers) {
    EXPECT_EQ(described(std::out_of_range{"5 of 3"}), "5 of 3");
    EXPECT_EQ(describe_error(std::make_exception_ptr(7)), "");
}

}  // namespace
}  // namespace rapidsmpf
