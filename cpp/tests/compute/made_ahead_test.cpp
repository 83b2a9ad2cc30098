// Chunks that other threads make before the pipeline asks for them.
#include "compute/made_ahead.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <variant>  // libcudf's headers need it first
#include <vector>

#include <gtest/gtest.h>

#include "compute/scans_ahead.hpp"

namespace rapidsmpf::compute {
namespace {

using namespace std::chrono_literals;

// Gives so many chunks without rows; those that are made ahead take a moment.
class FakeScan final : public ChunkSource {
  public:
    explicit FakeScan(std::uint64_t count) : count_{count} {}

    void start(std::function<void()> when_read) override { when_read(); }
    std::optional<Chunk> next(Work& /*work*/) override { return take(); }
    std::optional<Chunk> next_ahead(Work& /*work*/) override {
        ++ahead;
        std::this_thread::sleep_for(delay);
        if (fails) {
            throw std::runtime_error{"damaged"};
        }
        return take();
    }
    void close() noexcept override { is_closed = true; }

    std::chrono::milliseconds delay{0};
    std::atomic<bool> fails{false};
    std::atomic<int> ahead{0};
    std::atomic<bool> is_closed{false};

  private:
    std::optional<Chunk> take() {
        auto const number = next_.fetch_add(1);
        return number < count_ && !is_closed ? std::optional{Chunk{nullptr, number}} : std::nullopt;
    }
    std::uint64_t const count_;
    std::atomic<std::uint64_t> next_{0};
};

struct Handed {
    std::atomic<int> finished{0};
    std::atomic<int> adopted{0};
    Handover handover{
        .finish = [this](Work&) { ++finished; },
        .adopt =
            [this](Chunk chunk, Work&) {
                ++adopted;
                return chunk;
            }};
};

class MadeAheadTest : public ::testing::Test {
  protected:
    MadeAhead& make(std::uint64_t count, std::size_t most) {
        auto scan = std::make_unique<FakeScan>(count);
        scan_ = scan.get();
        source_ = std::make_unique<MadeAhead>(std::move(scan), most, handed_.handover);
        return *source_;
    }
    std::multiset<std::uint64_t> all(MadeAhead& source) {
        std::multiset<std::uint64_t> found;
        Work work{nullptr};
        while (auto chunk = source.next(work)) {
            found.insert(chunk->sequence);
        }
        return found;
    }
    static std::multiset<std::uint64_t> up_to(std::uint64_t count) {
        std::multiset<std::uint64_t> numbers;
        for (std::uint64_t i = 0; i < count; ++i) {
            numbers.insert(i);
        }
        return numbers;
    }

    Handed handed_;
    FakeScan* scan_{nullptr};
    std::unique_ptr<MadeAhead> source_;
    Work work_{nullptr};
};

TEST_F(MadeAheadTest, GivesWhatWasMadeAndTheRest) {
    auto& source = make(5, 2);
    EXPECT_TRUE(source.make_one(work_));
    EXPECT_TRUE(source.make_one(work_));
    EXPECT_FALSE(source.make_one(work_));  // enough wait
    EXPECT_EQ(scan_->ahead, 2);
    EXPECT_EQ(all(source), up_to(5));
    EXPECT_EQ(handed_.finished, 2);
    EXPECT_EQ(handed_.adopted, 2);
    EXPECT_FALSE(source.make_one(work_));  // the end
    source.close();
}

TEST_F(MadeAheadTest, WaitsForWhatIsBeingMade) {
    auto& source = make(1, 2);
    scan_->delay = 30ms;
    std::jthread const maker{[&] {
        Work work{nullptr};
        (void)source.make_one(work);
    }};
    while (scan_->ahead == 0) {
        std::this_thread::yield();
    }
    auto const found = all(source);
    EXPECT_EQ(found, up_to(1));
    source.close();
}

TEST_F(MadeAheadTest, ThrowsWhatWasThrownAhead) {
    auto& source = make(3, 2);
    scan_->fails = true;
    EXPECT_FALSE(source.make_one(work_));
    EXPECT_FALSE(source.make_one(work_));
    EXPECT_EQ(scan_->ahead, 1);
    EXPECT_THROW((void)source.next(work_), std::runtime_error);
    source.close();
}

TEST_F(MadeAheadTest, ClosingWaitsAndDropsWhatWasMade) {
    auto& source = make(3, 2);
    scan_->delay = 20ms;
    EXPECT_TRUE(source.make_one(work_));
    std::jthread const maker{[&] {
        Work work{nullptr};
        (void)source.make_one(work);
    }};
    while (scan_->ahead < 2) {
        std::this_thread::yield();
    }
    source.close();
    EXPECT_EQ(handed_.finished, 2);
    EXPECT_FALSE(source.make_one(work_));
}

// Pipelines of several scans, with threads that work ahead: each chunk comes once, from whichever thread makes it.
TEST(ScansMadeAhead, GiveEachChunkOnce) {
    for (int round = 0; round < 50; ++round) {
        Handed handed;
        std::atomic<bool> room{true};
        ScansAhead scans{
            {0, 1, 2, 3},
            [](std::size_t pipeline) -> std::unique_ptr<ChunkSource> {
                return std::make_unique<FakeScan>(3 * pipeline);
            },
            [&] { return room.load(); },
            ScansAhead::Makers{
                .works = {Work{nullptr}, Work{nullptr}},
                .enter = [] {},
                .handover = handed.handover,
                .most_chunks = 2}};
        scans.advance();
        for (std::size_t pipeline = 0; pipeline < 4; ++pipeline) {
            room = (round + static_cast<int>(pipeline)) % 3 != 0;
            auto const source = scans.take(pipeline);
            std::mutex mutex;
            std::multiset<std::uint64_t> found;
            {
                std::vector<std::jthread> crew;
                for (int thread = 0; thread < 3; ++thread) {
                    crew.emplace_back([&] {
                        Work work{nullptr};
                        while (auto chunk = source->next(work)) {
                            std::lock_guard const lock{mutex};
                            found.insert(chunk->sequence);
                        }
                    });
                }
            }
            source->close();
            scans.end(pipeline);
            EXPECT_EQ(found.size(), 3 * pipeline);
            EXPECT_EQ(std::set(found.begin(), found.end()).size(), 3 * pipeline);
        }
    }
}

}  // namespace
}  // namespace rapidsmpf::compute
