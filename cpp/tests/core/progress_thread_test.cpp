#include <rapidsmpf/core/progress_thread.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>

namespace rapidsmpf {
namespace {

using TickResult = ProgressThread::TickResult;

TEST(ProgressThread, RunsAFunctionUntilItIsDone) {
    ProgressThread thread;
    std::promise<int> finished;
    int calls = 0;
    thread.add_function([&] {
        if (++calls == 10) {
            finished.set_value(calls);
            return TickResult::done();
        }
        return TickResult::busy();
    });
    EXPECT_EQ(finished.get_future().get(), 10);
}

TEST(ProgressThread, WakeEndsAPark) {
    ProgressThread thread;
    std::atomic<bool> go{false};
    std::promise<void> seen;
    thread.add_function([&] {
        if (go) {
            seen.set_value();
            return TickResult::done();
        }
        return TickResult::idle();
    });
    go = true;
    thread.wake();
    seen.get_future().get();
}

TEST(ProgressThread, RemovedFunctionIsNotCalledAgain) {
    ProgressThread thread;
    std::atomic<int> calls{0};
    auto const id = thread.add_function([&] {
        ++calls;
        return TickResult::busy();
    });
    thread.remove_function(id);
    int const after = calls;
    std::promise<void> later;
    int rounds = 0;
    thread.add_function([&] {
        if (++rounds == 1000) {
            later.set_value();
            return TickResult::done();
        }
        return TickResult::busy();
    });
    later.get_future().get();
    EXPECT_EQ(calls, after);
}

TEST(ProgressThread, AFunctionMayAddAndRemoveOthers) {
    ProgressThread thread;
    std::atomic<int> other_calls{0};
    auto const other = thread.add_function([&] {
        ++other_calls;
        return TickResult::busy();
    });
    std::promise<void> added_ran;
    thread.add_function([&] {
        thread.remove_function(other);
        thread.add_function([&] {
            added_ran.set_value();
            return TickResult::done();
        });
        return TickResult::done();
    });
    added_ran.get_future().get();
}

TEST(ProgressThread, EventSourceIsArmedBeforeAParkAndEndsIt) {
    ProgressThread thread;
    EventDescriptor event;
    std::promise<void> armed;
    std::atomic<bool> first{true};
    std::atomic<bool> happened{false};
    std::promise<void> seen;
    auto const source = thread.add_event_source(event.get(), [&] {
        if (first.exchange(false)) {
            armed.set_value();
        }
        return true;
    });
    thread.add_function([&] {
        if (!happened) {
            return TickResult::idle();
        }
        seen.set_value();
        return TickResult::done();
    });
    armed.get_future().get();
    happened = true;
    event.signal();
    seen.get_future().get();
    thread.remove_event_source(source);
}

// How many rounds without work a thread goes before it parks, when one function says `first` and another `second`.
int rounds_before_park(TickResult first, TickResult second) {
    EventDescriptor event;
    std::promise<int> parked;
    bool worked = false;
    int rounds = 0;
    bool told = false;
    ProgressThread thread;  // stops before what it works on goes
    auto const source = thread.add_event_source(event.get(), [&] {
        if (worked && !told) {
            told = true;
            parked.set_value(rounds);
        }
        return true;
    });
    thread.add_function([&] { return second; });
    thread.add_function([&] {
        if (!worked) {
            worked = true;
            return TickResult::busy();
        }
        ++rounds;
        return first;
    });
    auto const count = parked.get_future().get();
    thread.remove_event_source(source);
    return count;
}

TEST(ProgressThread, LooksForMoreBeforeAParkUnlessNobodyWaitsForIt) {
    EXPECT_GE(rounds_before_park(TickResult::idle(), TickResult::idle()), 50);
    EXPECT_LT(rounds_before_park(TickResult::idle(TickResult::Waits::relaxed), TickResult::idle()), 50);
    EXPECT_GE(
        rounds_before_park(
            TickResult::idle(TickResult::Waits::relaxed), TickResult::idle(TickResult::Waits::urgent)),
        50);
}

TEST(ProgressThread, LooksAgainWhenItWasAskedTo) {
    ProgressThread thread;
    int rounds = 0;
    std::promise<void> often;
    // Were it to park for as long as it may, this would take as long as ten thousand times the longest park.
    thread.add_function([&] {
        if (++rounds == 10'000) {
            often.set_value();
            return TickResult::done();
        }
        auto result = TickResult::idle(TickResult::Waits::relaxed);
        result.wake_at = ProgressThread::Clock::now() + std::chrono::microseconds{1};
        return result;
    });
    often.get_future().get();
}

TEST(ProgressThread, SourceThatHasSomethingToDoPreventsThePark) {
    ProgressThread thread;
    EventDescriptor event;
    std::atomic<int> asked{0};
    std::promise<void> asked_often;
    // Were it to park in between, a thousand rounds would take as many times the longest park.
    auto const source = thread.add_event_source(event.get(), [&] {
        if (++asked == 1000) {
            asked_often.set_value();
        }
        return false;
    });
    asked_often.get_future().get();
    thread.remove_event_source(source);
    auto const count = asked.load();
    std::promise<void> alive;
    thread.add_function([&] {
        alive.set_value();
        return TickResult::done();
    });
    alive.get_future().get();
    EXPECT_EQ(asked.load(), count) << "a removed source was asked";
}

TEST(ProgressThread, MayBeDestroyedByItsOwnFunction) {
    auto thread = std::make_shared<ProgressThread>();
    std::weak_ptr<ProgressThread> const weak = thread;
    std::promise<void> alone;
    auto const destroyed = std::make_shared<std::promise<void>>();  // this test may end while it is being set
    auto* const raw = thread.get();
    // The function holds the last reference, and drops it while it runs.
    raw->add_function([destroyed, held = std::move(thread), gone = alone.get_future().share()]() mutable {
        gone.wait();
        held.reset();
        destroyed->set_value();
        return TickResult::done();
    });
    alone.set_value();
    destroyed->get_future().get();
    EXPECT_TRUE(weak.expired());
}

TEST(ProgressThread, MayBeDestroyedWithItsOwnFunction) {
    auto thread = std::make_shared<ProgressThread>();
    std::promise<void> alone;
    auto const destroyed = std::make_shared<std::promise<void>>();  // this test may end while it is being set
    auto* const raw = thread.get();
    // The function holds the last reference and is dropped because it is done; then what it holds goes, the last first.
    std::shared_ptr<void> last{nullptr, [destroyed](void* /*nothing*/) { destroyed->set_value(); }};
    raw->add_function(
        [held = std::pair{std::move(last), std::move(thread)}, gone = alone.get_future().share()] {
            gone.wait();
            return TickResult::done();
        });
    alone.set_value();
    destroyed->get_future().get();
}

TEST(ProgressThread, StopIsIdempotent) {
    ProgressThread thread;
    thread.stop();
    thread.stop();
    EXPECT_FALSE(thread.is_running());
}

}  // namespace
}  // namespace rapidsmpf
