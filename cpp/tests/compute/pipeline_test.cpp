// The scheduler of pipelines with sources, steps and sinks that hold nothing.
#include "compute/pipeline.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/compute/detail/runtime.hpp>

namespace rapidsmpf::compute {
namespace {

constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

// Gives so many chunks; throws in place of one of them.
class CountingSource final : public ChunkSource {
  public:
    explicit CountingSource(std::uint64_t chunks, std::uint64_t fails_at = never)
        : chunks_{chunks}, fails_at_{fails_at} {}

    [[nodiscard]] std::optional<Chunk> next(Work& /*work*/) override {
        inside_.fetch_add(1);
        auto const number = next_.fetch_add(1);
        if (number == fails_at_) {
            inside_.fetch_sub(1);
            throw std::runtime_error{"the source failed"};
        }
        std::optional<Chunk> chunk;
        if (number < chunks_) {
            chunk = Chunk{nullptr, number};
        }
        inside_.fetch_sub(1);
        return chunk;
    }

    void close() noexcept override {
        closed_ += 1;
        closed_while_inside_ = closed_while_inside_ || inside_.load() > 0;
    }

    [[nodiscard]] std::uint64_t asked() const { return next_.load(); }
    [[nodiscard]] int closed() const { return closed_; }
    [[nodiscard]] bool was_closed_while_inside() const { return closed_while_inside_; }

  private:
    std::uint64_t chunks_;
    std::uint64_t fails_at_;
    std::atomic<std::uint64_t> next_{0};
    std::atomic<int> inside_{0};
    int closed_{0};
    bool closed_while_inside_{false};
};

// Adds to the sequence, so that the sink sees that each chunk came through all steps.
class AddingStep final : public ChunkStep {
  public:
    explicit AddingStep(std::uint64_t add, std::uint64_t fails_at = never) : add_{add}, fails_at_{fails_at} {}

    [[nodiscard]] Chunk apply(Chunk chunk, Work& /*work*/) const override {
        if (chunk.sequence == fails_at_) {
            throw std::invalid_argument{"the step failed"};
        }
        chunk.sequence += add_;
        return chunk;
    }

  private:
    std::uint64_t add_;
    std::uint64_t fails_at_;
};

class CollectingSink final : public ChunkSink {
  public:
    void take(Chunk chunk, Work& /*work*/) override {
        std::lock_guard const lock{mutex_};
        EXPECT_EQ(finished_, 0);
        if (chunk.sequence == fails_at) {
            throw std::logic_error{"the sink failed"};
        }
        taken_.insert(chunk.sequence);
        threads_.insert(std::this_thread::get_id());
        if (on_take) {
            on_take();
        }
    }
    void finish(Work& /*work*/) override {
        ++finished_;
        if (fails_to_finish) {
            throw std::logic_error{"the end failed"};
        }
    }
    [[nodiscard]] bool has_enough() const override {
        std::lock_guard const lock{mutex_};
        return taken_.size() >= enough;
    }

    [[nodiscard]] std::multiset<std::uint64_t> const& taken() const { return taken_; }
    [[nodiscard]] int finished() const { return finished_; }
    [[nodiscard]] std::size_t threads() const { return threads_.size(); }

    std::uint64_t fails_at{never};
    std::size_t enough{never};
    bool fails_to_finish{false};
    std::function<void()> on_take;

  private:
    std::mutex mutable mutex_;
    std::multiset<std::uint64_t> taken_;
    std::set<std::thread::id> threads_;
    int finished_{0};
};

std::vector<Work> some_work(std::size_t threads) {
    return std::vector<Work>(threads, Work{cudaStream_t{}});
}

template <typename Error>
std::string message_of(std::function<void()> const& act) {
    try {
        act();
    } catch (Error const& error) {
        return error.what();
    }
    return "nothing was thrown";
}

class PipelineTest : public ::testing::TestWithParam<std::size_t> {
  protected:
    PipelineCounts run(ChunkSource& source, ChunkSink& sink) {
        Crew crew{some_work(GetParam()), {}};
        return run_pipeline(source, steps_, sink, crew, stop_);
    }

    std::vector<std::unique_ptr<ChunkStep>> steps_;
    StopFlag stop_;
};

INSTANTIATE_TEST_SUITE_P(Threads, PipelineTest, ::testing::Values(1, 2, 8, 32));

TEST_P(PipelineTest, EveryChunkGoesThroughAllStepsOnce) {
    CountingSource source{1000};
    CollectingSink sink;
    steps_.push_back(std::make_unique<AddingStep>(10));
    steps_.push_back(std::make_unique<AddingStep>(90));
    auto const counts = run(source, sink);
    EXPECT_EQ(counts.chunks, 1000);
    ASSERT_EQ(sink.taken().size(), 1000U);
    EXPECT_EQ(*sink.taken().begin(), 100U);
    EXPECT_EQ(*sink.taken().rbegin(), 1099U);
    EXPECT_EQ(std::set<std::uint64_t>(sink.taken().begin(), sink.taken().end()).size(), 1000U);
    EXPECT_EQ(sink.finished(), 1);
    EXPECT_EQ(source.closed(), 1);
    EXPECT_FALSE(source.was_closed_while_inside());
}

TEST_P(PipelineTest, NothingComesOutOfNothing) {
    CountingSource source{0};
    CollectingSink sink;
    EXPECT_EQ(run(source, sink).chunks, 0);
    EXPECT_TRUE(sink.taken().empty());
    EXPECT_EQ(sink.finished(), 1);
}

TEST_P(PipelineTest, ErrorOfTheSourceEndsIt) {
    CountingSource source{never, 50};
    CollectingSink sink;
    EXPECT_EQ(message_of<std::runtime_error>([&] { run(source, sink); }), "the source failed");
    EXPECT_EQ(sink.finished(), 0);
    EXPECT_EQ(source.closed(), 1);
    EXPECT_FALSE(source.was_closed_while_inside());
}

TEST_P(PipelineTest, ErrorOfAStepEndsIt) {
    CountingSource source{never};
    CollectingSink sink;
    steps_.push_back(std::make_unique<AddingStep>(0, 50));
    EXPECT_EQ(message_of<std::invalid_argument>([&] { run(source, sink); }), "the step failed");
    EXPECT_EQ(sink.finished(), 0);
    EXPECT_EQ(source.closed(), 1);
}

TEST_P(PipelineTest, ErrorOfTheSinkEndsIt) {
    CountingSource source{never};
    CollectingSink sink;
    sink.fails_at = 50;
    EXPECT_EQ(message_of<std::logic_error>([&] { run(source, sink); }), "the sink failed");
    EXPECT_EQ(sink.finished(), 0);
    EXPECT_EQ(source.closed(), 1);
}

TEST_P(PipelineTest, ErrorAtTheEndIsThrown) {
    CountingSource source{10};
    CollectingSink sink;
    sink.fails_to_finish = true;
    EXPECT_EQ(message_of<std::logic_error>([&] { run(source, sink); }), "the end failed");
    EXPECT_EQ(source.closed(), 1);
}

TEST_P(PipelineTest, ASinkThatHasEnoughEndsTheSource) {
    CountingSource source{never};
    CollectingSink sink;
    sink.enough = 100;
    run(source, sink);
    EXPECT_GE(sink.taken().size(), 100U);
    // Each thread may have had a chunk under way.
    EXPECT_LE(sink.taken().size(), 100U + GetParam());
    EXPECT_EQ(sink.finished(), 1);
    EXPECT_EQ(source.closed(), 1);
}

TEST_P(PipelineTest, CancellationEndsWithinAChunk) {
    CountingSource source{never};
    CollectingSink sink;
    std::uint64_t asked_when_stopped{0};
    sink.on_take = [&] {
        if (!stop_.is_stopped() && source.asked() > 100) {
            stop_.stop();
            asked_when_stopped = source.asked();
        }
    };
    EXPECT_THROW(run(source, sink), Cancelled);
    EXPECT_EQ(sink.finished(), 0);
    EXPECT_EQ(source.closed(), 1);
    EXPECT_LE(source.asked(), asked_when_stopped + 2 * GetParam());
}

TEST_P(PipelineTest, WhatIsStoppedBeforeItBeginsDoesNothing) {
    CountingSource source{10};
    CollectingSink sink;
    stop_.stop();
    EXPECT_THROW(run(source, sink), Cancelled);
    EXPECT_EQ(source.asked(), 0U);
}

TEST(CrewTest, AllThreadsWorkAtTheSameTime) {
    // Each waits until all have come, which ends only if there are as many threads.
    constexpr std::size_t threads{6};
    Crew crew{some_work(threads), {}};
    std::mutex mutex;
    std::condition_variable changed;
    for (int round = 0; round < 3; ++round) {
        std::size_t there{0};
        crew.run(
            [&](std::size_t, Work&) {
                std::unique_lock lock{mutex};
                ++there;
                changed.notify_all();
                ASSERT_TRUE(
                    changed.wait_for(lock, std::chrono::seconds{60}, [&] { return there == threads; }));
            },
            {});
        EXPECT_EQ(there, threads);
    }
}

TEST(CrewTest, HooksAreAroundTheTasksOfEachThread) {
    std::atomic<int> started{0};
    std::atomic<int> after{0};
    Crew crew{some_work(4), {[&] { ++started; }, [&](Work&) { ++after; }, {}}};
    crew.run([](std::size_t, Work&) {}, {});
    EXPECT_EQ(started, 4);
    EXPECT_EQ(after, 4);
    EXPECT_THROW(crew.run([](std::size_t, Work&) { throw std::runtime_error{"x"}; }, {}), std::runtime_error);
    EXPECT_EQ(started, 4);
    EXPECT_EQ(after, 8);
}

TEST(CrewTest, AThreadThatCannotStartIsAnErrorOfEachTask) {
    Crew crew{some_work(3), {[] { throw std::runtime_error{"no device"}; }, {}, {}}};
    std::atomic<int> done{0};
    auto const task = [&](std::size_t, Work&) { ++done; };
    EXPECT_EQ(message_of<std::runtime_error>([&] { crew.run(task, {}); }), "no device");
    EXPECT_EQ(message_of<std::runtime_error>([&] { crew.run(task, {}); }), "no device");
    EXPECT_EQ(done, 0);
}

TEST(CrewTest, AnErrorAfterTheTaskIsThrownUnlessThereWasOneBefore) {
    Crew crew{some_work(2), {{}, [](Work&) { throw std::runtime_error{"the device is lost"}; }, {}}};
    EXPECT_EQ(
        message_of<std::runtime_error>([&] { crew.run([](std::size_t, Work&) {}, {}); }),
        "the device is lost");
}

TEST(CrewTest, OnErrorIsCalledOnce) {
    Crew crew{some_work(8), {}};
    std::atomic<int> calls{0};
    EXPECT_THROW(
        crew.run([](std::size_t, Work&) { throw std::runtime_error{"x"}; }, [&] { ++calls; }),
        std::runtime_error);
    EXPECT_EQ(calls, 1);
    crew.run([](std::size_t, Work&) {}, [&] { ++calls; });
    EXPECT_EQ(calls, 1);
}

TEST(CrewTest, WhatThePollThrowsEndsTheRun) {
    CountingSource source{never};
    CollectingSink sink;
    StopFlag stop;
    Crew crew{some_work(4), {{}, {}, [] { throw std::out_of_range{"interrupted"}; }}};
    EXPECT_THROW(run_pipeline(source, {}, sink, crew, stop), std::out_of_range);
    EXPECT_EQ(source.closed(), 1);
    EXPECT_EQ(sink.finished(), 0);
}

TEST(CrewTest, PollIsCalledInTheWaitingThread) {
    auto const caller = std::this_thread::get_id();
    std::atomic<int> polls{0};
    std::atomic<bool> elsewhere{false};
    Crew crew{some_work(1), {{}, {}, [&] {
                                 ++polls;
                                 elsewhere = elsewhere || std::this_thread::get_id() != caller;
                             }}};
    // Ends when there have been two polls: no time is measured.
    std::mutex mutex;
    std::condition_variable never_notified;
    crew.run_once([&](Work&) {
        std::unique_lock lock{mutex};
        for (int i = 0; i < 6000 && polls < 2; ++i) {
            never_notified.wait_for(lock, std::chrono::milliseconds{10});
        }
    });
    EXPECT_GE(polls, 2);
    EXPECT_FALSE(elsewhere);
}

}  // namespace
}  // namespace rapidsmpf::compute
