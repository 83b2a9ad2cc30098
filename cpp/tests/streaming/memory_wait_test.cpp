#include <rapidsmpf/streaming/memory_wait.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/sync_wait.hpp>

namespace rapidsmpf::streaming {
namespace {

constexpr std::int64_t budget = 1000;

Context small_context(std::string const& allow, std::chrono::milliseconds timeout) {
    BufferResource::Settings settings;
    settings.limits[static_cast<std::size_t>(MemoryType::HOST)] = budget;
    settings.reserve_timeout = timeout;
    config::Options options{{{"allow_overbooking_by_default", allow}}};
    return Context{
        options, nullptr, BufferResource::make(std::move(settings)), std::make_shared<Executor>(1)};
}

TEST(ReserveMemory, ComesAtOnceWhenThereIsSome) {
    auto const context = small_context("false", std::chrono::hours{1});
    auto const reservation = sync_wait(reserve_memory(context, 600, MemoryType::HOST));
    EXPECT_EQ(reservation.size(), 600);
    EXPECT_EQ(context.resource()->memory_reserved(MemoryType::HOST), 600);
}

TEST(ReserveMemory, WaitsForOthersWithoutKeepingTheThread) {
    auto const context = small_context("false", std::chrono::hours{1});
    auto held = std::make_optional(sync_wait(reserve_memory(context, 600, MemoryType::HOST)));
    auto future = context.executor()->spawn([](Context on) -> Task<void> {
        auto const reservation = co_await reserve_memory(on, 700, MemoryType::HOST);
        EXPECT_EQ(reservation.size(), 700);
    }(context));
    // The executor's only thread is free.
    context.executor()
        ->spawn([](Context on) -> Task<void> { co_await on.executor()->schedule(); }(context))
        .get();
    EXPECT_EQ(future.wait_for(std::chrono::seconds{0}), std::future_status::timeout);
    held.reset();
    future.get();
    EXPECT_EQ(context.resource()->memory_reserved(MemoryType::HOST), 0);
}

TEST(ReserveMemory, OverbooksOrThrowsAfterTheTimeoutAsTheOptionsSay) {
    for (auto const* allow : {"true", "false"}) {
        auto const context = small_context(allow, std::chrono::milliseconds{1});
        auto const held = sync_wait(reserve_memory(context, 600, MemoryType::HOST));
        auto const is_allowed = std::string{allow} == "true";
        if (is_allowed) {
            EXPECT_EQ(sync_wait(reserve_memory(context, 700, MemoryType::HOST)).size(), 700);
        } else {
            EXPECT_THROW((void)sync_wait(reserve_memory(context, 700, MemoryType::HOST)), ReservationError);
        }
        // The caller's word counts more.
        MemoryWait wait;
        wait.allow = is_allowed ? AllowOverbooking::no : AllowOverbooking::yes;
        if (is_allowed) {
            EXPECT_THROW(
                (void)sync_wait(reserve_memory(context, 700, MemoryType::HOST, wait)), ReservationError);
        } else {
            EXPECT_EQ(sync_wait(reserve_memory(context, 700, MemoryType::HOST, wait)).size(), 700);
        }
    }
}

TEST(ReserveMemory, CanBeCancelled) {
    auto const context = small_context("true", std::chrono::hours{1});
    auto const held = sync_wait(reserve_memory(context, 600, MemoryType::HOST));
    CancellationSource source;
    MemoryWait wait;
    wait.cancellation = source.token();
    auto future = context.executor()->spawn([](Context on, MemoryWait how) -> Task<void> {
        (void)co_await reserve_memory(on, 700, MemoryType::HOST, std::move(how));
    }(context, wait));
    source.cancel(std::make_exception_ptr(std::domain_error{"no more"}));
    EXPECT_THROW(future.get(), std::domain_error);
    // The place in the line is free again.
    EXPECT_EQ(sync_wait(reserve_memory(context, 400, MemoryType::HOST)).size(), 400);
}

}  // namespace
}  // namespace rapidsmpf::streaming
