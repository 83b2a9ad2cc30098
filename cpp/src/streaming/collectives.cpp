#include <rapidsmpf/streaming/collectives.hpp>

#include <coroutine>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>

#include "streaming/activity.hpp"
#include "streaming/settled_once.hpp"

namespace rapidsmpf::streaming {

namespace {

// Until the collective calls what `tell` hands it.
class ToldAwaiter {
  public:
    using Tell = std::function<void(std::function<void()>)>;

    ToldAwaiter(Executor const& executor, Tell tell, CancellationToken cancellation)
        : state_{std::make_shared<SettledOnce>(executor)},
          tell_{std::move(tell)},
          cancellation_{std::move(cancellation)} {}
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <typename Promise>
    [[gnu::noinline]] bool await_suspend(std::coroutine_handle<Promise> coroutine) {
        auto const state = state_;
        state->set_coroutine(coroutine);
        if (auto error = wait_of_actor_.begin(
                detail::actor_part_of(coroutine).activity, detail::WaitKind::ranks, state->canceller())) {
            state->settle(std::move(error));
            return state->suspended();
        }
        tell_([state] { state->settle(); });
        registration_ =
            cancellation_.on_cancel([state](std::exception_ptr error) { state->settle(std::move(error)); });
        return state->suspended();
    }
    void await_resume() {
        registration_.reset();
        wait_of_actor_.end();
        state_->rethrow();
    }

  private:
    std::shared_ptr<SettledOnce> state_;
    Tell tell_;
    CancellationToken cancellation_;
    CancellationToken::Registration registration_;
    detail::ActivityWait wait_of_actor_;
};

// What does not wait once it was told. Other coroutines may have been faster: then it is told again.
constexpr std::chrono::milliseconds at_once{0};

Task<void> told(std::shared_ptr<Executor> executor, ToldAwaiter::Tell tell, CancellationToken cancellation) {
    cancellation.throw_if_cancelled();
    ToldAwaiter awaiter{*executor, std::move(tell), std::move(cancellation)};
    co_await awaiter;
}

// For collectives that are told of as a whole.
template <typename Collective>
Task<void> told_of(
    std::shared_ptr<Executor> executor, std::shared_ptr<Collective> collective,
    CancellationToken cancellation) {
    auto tell = [collective](std::function<void()> call) { collective->tell_when_complete(std::move(call)); };
    return told(std::move(executor), std::move(tell), std::move(cancellation));
}

}  // namespace

Task<coll::PartitionId> async_wait_any(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::Shuffler> shuffler,
    CancellationToken cancellation) {
    for (;;) {
        ToldAwaiter::Tell tell = [shuffler](std::function<void()> call) {
            shuffler->tell_when_any(std::move(call));
        };
        co_await told(executor, std::move(tell), cancellation);
        std::optional<coll::PartitionId> partition;
        try {
            partition = shuffler->wait_any(at_once);
        } catch (TimeoutError const&) {
            // Another coroutine has taken it.
        }
        if (partition) {
            co_return *partition;
        }
    }
}

Task<void> async_wait_on(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::Shuffler> shuffler, coll::PartitionId partition,
    CancellationToken cancellation) {
    ToldAwaiter::Tell tell = [shuffler, partition](std::function<void()> call) {
        shuffler->tell_when_complete(partition, std::move(call));
    };
    co_await told(std::move(executor), std::move(tell), std::move(cancellation));
    shuffler->wait_on(partition, at_once);
}

Task<std::vector<PackedData>> async_wait_and_extract(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::AllGather> allgather, coll::Ordered ordered,
    CancellationToken cancellation) {
    co_await told_of(std::move(executor), allgather, std::move(cancellation));
    co_return allgather->wait_and_extract(ordered, at_once);
}

Task<std::vector<std::byte>> async_wait_and_extract(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::AllReduce> allreduce,
    CancellationToken cancellation) {
    ToldAwaiter::Tell tell = [allreduce](std::function<void()> call) {
        allreduce->tell_when_values_are_there(std::move(call));
    };
    co_await told(executor, std::move(tell), cancellation);
    allreduce->reduce_here();
    co_await told_of(std::move(executor), allreduce, std::move(cancellation));
    co_return allreduce->wait_and_extract(at_once);
}

Task<std::vector<std::uint8_t>> async_wait_and_extract(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::Broadcast> broadcast,
    CancellationToken cancellation) {
    co_await told_of(std::move(executor), broadcast, std::move(cancellation));
    co_return broadcast->wait_and_extract(at_once);
}

Task<void> async_wait(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::SparseAlltoall> alltoall,
    CancellationToken cancellation) {
    co_await told_of(std::move(executor), alltoall, std::move(cancellation));
    alltoall->wait(at_once);
}

Task<void> async_wait(
    std::shared_ptr<Executor> executor, std::shared_ptr<coll::Barrier> barrier,
    CancellationToken cancellation) {
    co_await told_of(std::move(executor), barrier, std::move(cancellation));
    barrier->wait(at_once);
}

std::string reason_of(std::exception_ptr const& error) {
    std::string const cause = describe_error(error);
    return cause.empty() ? "its network failed" : "its network failed: " + cause;
}

namespace {
template <typename Collective>
CancellationToken::Registration give_up_on_cancel(
    CancellationToken const& cancellation, std::shared_ptr<Collective> collective) {
    return cancellation.on_cancel([collective = std::move(collective)](std::exception_ptr const& error) {
        collective->give_up(reason_of(error));
    });
}
}  // namespace

CancellationToken::Registration give_up_with(
    CancellationToken const& cancellation, std::shared_ptr<coll::Shuffler> shuffler) {
    return give_up_on_cancel(cancellation, std::move(shuffler));
}

CancellationToken::Registration give_up_with(
    CancellationToken const& cancellation, std::shared_ptr<coll::AllGather> allgather) {
    return give_up_on_cancel(cancellation, std::move(allgather));
}

}  // namespace rapidsmpf::streaming
