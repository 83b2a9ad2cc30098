// Scans of later pipelines start when those of earlier ones have been read.
#include "compute/scans_ahead.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>  // libcudf's headers need it first

#include <gtest/gtest.h>

namespace rapidsmpf::compute {
namespace {

// What happened, in order: "make 1", "start 1", "close 1".
struct Log {
    std::mutex mutex;
    std::vector<std::string> events;
    std::map<std::size_t, std::function<void()>> when_read;
    std::atomic<bool> fails_to_start{false};
    void add(std::string event) {
        std::lock_guard const lock{mutex};
        events.push_back(std::move(event));
    }
    void read(std::size_t pipeline) {
        std::function<void()> call;
        {
            std::lock_guard const lock{mutex};
            call = when_read.at(pipeline);
        }
        call();
    }
};

class FakeSource final : public ChunkSource {
  public:
    FakeSource(Log& log, std::size_t pipeline, bool is_empty)
        : log_{log}, pipeline_{pipeline}, is_empty_{is_empty} {
        log_.add("make " + std::to_string(pipeline_));
    }
    void start(std::function<void()> when_read) override {
        log_.add("start " + std::to_string(pipeline_));
        if (log_.fails_to_start.exchange(false)) {
            throw std::runtime_error{"no thread"};
        }
        if (is_empty_) {
            when_read();
            return;
        }
        std::lock_guard const lock{log_.mutex};
        log_.when_read[pipeline_] = std::move(when_read);
    }
    std::optional<Chunk> next(Work& /*work*/) override { return std::nullopt; }
    void close() noexcept override { log_.add("close " + std::to_string(pipeline_)); }

  private:
    Log& log_;
    std::size_t pipeline_;
    bool is_empty_;
};

using Events = std::vector<std::string>;

class Ahead {
  public:
    explicit Ahead(std::vector<std::size_t> pipelines)
        : scans{
              std::in_place, std::move(pipelines),
              [this](std::size_t pipeline) -> std::unique_ptr<ChunkSource> {
                  if (pipeline == broken) {
                      throw std::runtime_error{"no file"};
                  }
                  return std::make_unique<FakeSource>(log, pipeline, pipeline == empty);
              },
              [this] { return room.load(); }, ScansAhead::Makers{}} {}

    Log log;
    std::optional<std::size_t> broken;
    std::optional<std::size_t> empty;
    std::atomic<bool> room{true};
    std::optional<ScansAhead> scans;
};

TEST(ScansAhead, StartWhenTheOneBeforeHasBeenRead) {
    Ahead ahead{{0, 2, 3}};
    ahead.scans->advance();
    ahead.scans->advance();
    EXPECT_EQ(ahead.log.events, (Events{"make 0", "start 0"}));
    auto const first = ahead.scans->take(0);
    ahead.log.read(0);
    EXPECT_EQ(ahead.log.events, (Events{"make 0", "start 0", "make 2", "start 2"}));
    auto const second = ahead.scans->take(2);
    auto const third = ahead.scans->take(3);  // before the second has been read
    EXPECT_EQ(ahead.log.events, (Events{"make 0", "start 0", "make 2", "start 2", "make 3", "start 3"}));
    ahead.log.read(2);
    ahead.log.read(3);
    EXPECT_EQ(ahead.log.events.size(), 6U);
}

TEST(ScansAhead, DoNotStartWithoutRoom) {
    Ahead ahead{{0, 1}};
    ahead.room = false;
    ahead.scans->advance();
    EXPECT_TRUE(ahead.log.events.empty());
    auto const first = ahead.scans->take(0);
    ahead.log.read(0);
    EXPECT_EQ(ahead.log.events, (Events{"make 0", "start 0"}));
    ahead.room = true;
    ahead.scans->end(0);
    EXPECT_EQ(ahead.log.events, (Events{"make 0", "start 0", "make 1", "start 1"}));
}

TEST(ScansAhead, GoOnWhenASourceEndsEarly) {
    Ahead ahead{{0, 1}};
    auto const first = ahead.scans->take(0);
    ahead.scans->end(0);
    EXPECT_EQ(ahead.log.events, (Events{"make 0", "start 0", "make 1", "start 1"}));
}

TEST(ScansAhead, PassOverWhatHasNothingToRead) {
    Ahead ahead{{0, 1}};
    ahead.empty = 0;
    ahead.scans->advance();
    EXPECT_EQ(ahead.log.events, (Events{"make 0", "start 0", "make 1", "start 1"}));
}

TEST(ScansAhead, PassOverATakenSourceThatHasNothingToRead) {
    Ahead ahead{{0, 1}};
    ahead.empty = 0;
    auto const first = ahead.scans->take(0);
    EXPECT_EQ(ahead.log.events, (Events{"make 0", "start 0", "make 1", "start 1"}));
}

TEST(ScansAhead, GiveAnErrorToTheThreadThatTakesTheSource) {
    Ahead ahead{{0, 1}};
    ahead.broken = 1;
    auto const first = ahead.scans->take(0);
    ahead.log.read(0);
    EXPECT_THROW((void)ahead.scans->take(1), std::runtime_error);
}

TEST(ScansAhead, AreMadeAnewIfTheyCouldNotStart) {
    Ahead ahead{{0, 1}};
    ahead.log.fails_to_start = true;
    ahead.scans->advance();
    auto const first = ahead.scans->take(0);
    EXPECT_EQ(ahead.log.events, (Events{"make 0", "start 0", "make 0", "start 0"}));
    ahead.log.read(0);
    EXPECT_EQ(ahead.log.events.back(), "start 1");
}

TEST(ScansAhead, AreClosedIfNobodyTakesThem) {
    Ahead ahead{{0, 1, 2}};
    auto const first = ahead.scans->take(0);
    ahead.log.read(0);
    ahead.scans.reset();
    EXPECT_EQ(ahead.log.events, (Events{"make 0", "start 0", "make 1", "start 1", "close 1"}));
    ahead.log.read(1);  // too late
    EXPECT_EQ(ahead.log.events.size(), 5U);
}

TEST(ScansAhead, MayEndWhileAThreadStartsTheNext) {
    for (int i = 0; i < 200; ++i) {
        Ahead ahead{{0, 1, 2}};
        auto const first = ahead.scans->take(0);
        std::jthread const reader{[&] { ahead.log.read(0); }};
        ahead.scans.reset();
    }
}

}  // namespace
}  // namespace rapidsmpf::compute
