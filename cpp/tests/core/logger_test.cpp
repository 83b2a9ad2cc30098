#include <rapidsmpf/core/logger.hpp>

#include <stdexcept>

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

}  // namespace
}  // namespace rapidsmpf
