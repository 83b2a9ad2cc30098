#include <rapidsmpf/streaming/memory_wait.hpp>

#include <coroutine>
#include <utility>

#include <rapidsmpf/core/detail/option_table.hpp>

#include "streaming/activity.hpp"
#include "streaming/settled_once.hpp"

namespace rapidsmpf::streaming {

namespace {

// One wait in the line; the request, the canceller and the coroutine share its state.
class ReserveAwaiter {
  public:
    ReserveAwaiter(
        Executor const& executor, std::shared_ptr<BufferResource> resource, std::size_t size, MemoryType type,
        AllowOverbooking allow, MemoryWait wait)
        : state_{std::make_shared<SettledOnce>(executor)},
          resource_{std::move(resource)},
          size_{size},
          type_{type},
          allow_{allow},
          wait_{std::move(wait)} {}

    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <typename Promise>
    [[gnu::noinline]] bool await_suspend(std::coroutine_handle<Promise> coroutine) {
        auto const state = state_;
        state->set_coroutine(coroutine);
        if (auto error = wait_of_actor_.begin(
                detail::actor_part_of(coroutine).activity, detail::WaitKind::memory, state->canceller())) {
            state->settle(std::move(error));
            return state->suspended();
        }
        auto on_done = [state] { state->settle(); };
        request_ = resource_->request(type_, size_, allow_, std::move(on_done), wait_.timeout);
        registration_ = wait_.cancellation.on_cancel(
            [state](std::exception_ptr error) { state->settle(std::move(error)); });
        // From here on only `state` is ours.
        return state->suspended();
    }
    [[nodiscard]] MemoryReservation await_resume() {
        registration_.reset();
        wait_of_actor_.end();
        state_->rethrow();  // the request goes with the awaiter, and its place in the line with it
        return request_->take();
    }

  private:
    std::shared_ptr<SettledOnce> state_;
    std::shared_ptr<BufferResource> resource_;
    std::size_t size_;
    MemoryType type_;
    AllowOverbooking allow_;
    MemoryWait wait_;
    std::shared_ptr<MemoryRequest> request_;
    CancellationToken::Registration registration_;
    detail::ActivityWait wait_of_actor_;
};

Task<MemoryReservation> wait_for_memory(
    std::shared_ptr<Executor> executor, std::shared_ptr<BufferResource> resource, std::size_t size,
    MemoryType type, AllowOverbooking allow, MemoryWait wait) {
    wait.cancellation.throw_if_cancelled();
    // Nothing comes back when others wait: then this one has to stand in line.
    if (auto now = resource->reserve(type, size, AllowOverbooking::no).first; now.size() == size) {
        co_return std::move(now);
    }
    ReserveAwaiter awaiter{*executor, std::move(resource), size, type, allow, std::move(wait)};
    co_return co_await awaiter;
}

}  // namespace

Task<MemoryReservation> reserve_memory(
    Context const& context, std::size_t size, MemoryType type, MemoryWait wait) {
    auto const by_default = config::get_bool(context.options(), "allow_overbooking_by_default")
                                ? AllowOverbooking::yes
                                : AllowOverbooking::no;
    auto const allow = wait.allow.value_or(by_default);
    return wait_for_memory(context.executor(), context.resource(), size, type, allow, std::move(wait));
}

}  // namespace rapidsmpf::streaming
