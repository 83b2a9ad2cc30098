#include <rapidsmpf/core/logger.hpp>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

config::Options with_level(std::string const& level) {
    return config::Options{config::Strings{{"log", level}}};
}

TEST(Logger, LevelComesFromTheOptions) {
    EXPECT_EQ(Logger{}.verbosity_level(), LogLevel::warn);
    EXPECT_EQ(Logger(with_level("debug")).verbosity_level(), LogLevel::debug);
}

TEST(Logger, TheEnvironmentSaysTheLevelWhereOptionsDoNot) {
    ::setenv("RAPIDSMPF_LOG", "INFO", 1);
    EXPECT_EQ(Logger{}.verbosity_level(), LogLevel::info);
    EXPECT_EQ(Logger(with_level(" ")).verbosity_level(), LogLevel::info);
    EXPECT_EQ(Logger(with_level("debug")).verbosity_level(), LogLevel::debug);
    ::setenv("RAPIDSMPF_LOG", "", 1);
    EXPECT_EQ(Logger{}.verbosity_level(), LogLevel::warn);
    ::unsetenv("RAPIDSMPF_LOG");
}

TEST(Logger, UnknownLevelIsAnError) {
    EXPECT_THROW(Logger(with_level("loud")), std::invalid_argument);
}

TEST(Logger, WritesWholeLinesWithLevelAndRank) {
    testing::internal::CaptureStderr();
    Logger const logger{config::Options{}, 3};
    logger.warn("careful");
    logger.debug("not shown");
    auto const text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(text.rfind("[WARN:3:", 0), 0U) << text;
    EXPECT_NE(text.find("] careful\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("not shown"), std::string::npos) << text;
}

std::vector<std::string> logged(std::string const& message) {
    testing::internal::CaptureStderr();
    Logger{config::Options{}, 3}.warn(message);
    std::istringstream text{testing::internal::GetCapturedStderr()};
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
        lines.push_back(line);
    }
    return lines;
}

TEST(Logger, EveryLineOfAMessageSaysWhoseItIs) {
    auto const lines = logged("one\n\ntwo\n");
    ASSERT_EQ(lines.size(), 3U);
    for (auto const& line : lines) {
        EXPECT_EQ(line.rfind("[WARN:3:", 0), 0U) << line;
    }
    EXPECT_TRUE(lines[0].ends_with("] one"));
    EXPECT_TRUE(lines[1].ends_with("] "));
    EXPECT_TRUE(lines[2].ends_with("] two"));
    EXPECT_EQ(logged("").size(), 1U);
}

// A pipe takes PIPE_BUF bytes as a whole.
TEST(Logger, LongMessagesAreCutToWhatAPipeTakesAsAWhole) {
    std::string const message(3 * PIPE_BUF, 'x');
    std::size_t written = 0;
    for (auto const& line : logged(message)) {
        EXPECT_LT(line.size(), std::size_t{PIPE_BUF});
        written += static_cast<std::size_t>(std::count(line.begin(), line.end(), 'x'));
    }
    EXPECT_EQ(written, message.size());
}

}  // namespace
}  // namespace rapidsmpf
