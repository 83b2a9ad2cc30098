// Combines one value of each rank (a scalar, an array, any bytes) into one that every rank gets.
//
// How it works: every rank sends its value to the rank that reduces it, which combines them in the order of the
// ranks, ((v0 + v1) + v2) ..., and sends the result to all. So there is one result, the same bytes on every rank,
// also for functions that are not commutative and for floating point, and a function that throws does so on one
// rank. That takes two messages one after the other, whatever the number of ranks; recursive doubling would take
// log2(ranks). Small values travel inside the messages that begin and end the operation: there are no others. Large
// arrays are divided into a segment for each rank, which reduces it, so that each rank sends and receives about twice
// its array (a reduce-scatter, then an all-gather), and all ranks work.
//
// The function runs on the communicator's progress thread, as soon as the values are there, whether or not anyone
// waits: any order of waits is fine. It should be quick, and must not use the communicator. One that may not run there
// (Python, whose garbage collector may destroy anything anywhere) runs in wait_and_extract() of the rank that reduces:
// then the others wait for that call.
//
// Ownership: the input is copied by the constructor. Life time and errors are those of the Shuffler (see there);
// when the handle of the rank that reduces is destroyed before the operation is done, the others raise an error.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::coll {

// Who calls the function.
enum class RunsOn : std::uint8_t { progress_thread, waiting_thread };

struct Reduction {
    // combine(sum, next): sum becomes sum + next, whatever + is; both have the same size and are aligned for any
    // scalar.
    std::function<void(std::span<std::byte>, std::span<std::byte const>)> combine;
    // The value is an array of elements of this size that may be combined one by one; 0: only as a whole.
    std::size_t element_size{0};
    RunsOn runs_on{RunsOn::progress_thread};

    Reduction(
        std::function<void(std::span<std::byte>, std::span<std::byte const>)> combine_,
        std::size_t element_size_ = 0, RunsOn runs_on_ = RunsOn::progress_thread)
        : combine{std::move(combine_)}, element_size{element_size_}, runs_on{runs_on_} {}
};

// Arrays of T, combined by function(T sum, T next) -> T for each element.
template <typename T, typename Function>
[[nodiscard]] Reduction elementwise(Function function) {
    static_assert(std::is_trivially_copyable_v<T>);
    return Reduction{
        [function = std::move(function)](std::span<std::byte> sum, std::span<std::byte const> next) {
            for (std::size_t at = 0; at < sum.size(); at += sizeof(T)) {
                T left;
                T right;
                std::memcpy(&left, sum.data() + at, sizeof(T));
                std::memcpy(&right, next.data() + at, sizeof(T));
                left = function(left, right);
                std::memcpy(sum.data() + at, &left, sizeof(T));
            }
        },
        sizeof(T)};
}

class AllReduce {
  public:
    // `input` has the same size on every rank, a multiple of the element size, and every rank gives the same
    // reduction. `br`: where the memory comes from, and whose budget it counts in; null: a resource of its own, without
    // a limit. Throws std::invalid_argument when the size is no such multiple, or the operation id is in use on this
    // rank or out of range.
    AllReduce(
        std::shared_ptr<Communicator> comm, OpId op, std::span<std::byte const> input, Reduction reduction,
        exchange::Settings const& settings = exchange::Settings::for_device(Device::current()),
        std::shared_ptr<BufferResource> br = nullptr);
    ~AllReduce();
    AllReduce(AllReduce const&) = delete;
    AllReduce& operator=(AllReduce const&) = delete;

    // Waits for the result and takes it out, once: throws std::logic_error after that. The operation id is free
    // then. Throws what the function threw if that was on this rank, std::runtime_error with its text if it was on
    // another; std::invalid_argument or, on other ranks, std::runtime_error when the ranks gave values of different
    // sizes; TimeoutError naming the ranks that are missing (it may be called again).
    [[nodiscard]] std::vector<std::byte> wait_and_extract(Timeout timeout = {});
    // Calls `told` once, when wait_and_extract() would not wait any more, be it for an error; at once if that is so. On any thread,
    // with locks held: it must only wake somebody. For those who wait without a thread (streaming/collectives.hpp).
    void tell_when_complete(std::function<void()> told);
    // The same for reduce_here(): when the values are there that this rank reduces, if it does.
    void tell_when_values_are_there(std::function<void()> told);
    // Does what wait_and_extract() does first, so that it need not wait for it: reduces with a function that runs on the waiting
    // thread, if that is left to this rank. The values must be there.
    void reduce_here();
    // Whether the result is there.
    [[nodiscard]] bool finished() const;

    [[nodiscard]] std::shared_ptr<Communicator> const& comm() const noexcept { return comm_; }
    [[nodiscard]] OpId op() const noexcept { return op_; }

  private:
    std::shared_ptr<Communicator> comm_;
    OpId op_;
    std::shared_ptr<BufferResource> br_;
    std::size_t size_;
    Mutex mutex_;
    std::function<void(exchange::Operation&)> reduce_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::atomic<bool> extracted_{false};
    std::shared_ptr<exchange::Operation> operation_;  // last: goes before what its callbacks use
};

// The same in one call, for arrays and for one value of T.
template <typename T, typename Function>
[[nodiscard]] std::vector<T> allreduce(
    std::shared_ptr<Communicator> const& comm, OpId op, std::span<T const> values, Function function,
    Timeout timeout = {}) {
    AllReduce reduce{comm, op, std::as_bytes(values), elementwise<T>(std::move(function))};
    auto const bytes = reduce.wait_and_extract(timeout);
    std::vector<T> result(values.size());
    if (!bytes.empty()) {
        std::memcpy(result.data(), bytes.data(), bytes.size());
    }
    return result;
}

template <typename T, typename Function>
    requires std::is_arithmetic_v<T>
[[nodiscard]] T allreduce(
    std::shared_ptr<Communicator> const& comm, OpId op, T value, Function function, Timeout timeout = {}) {
    return allreduce<T>(comm, op, std::span<T const>{&value, 1}, std::move(function), timeout).front();
}

}  // namespace rapidsmpf::coll

namespace rapidsmpf {
using coll::AllReduce;
}  // namespace rapidsmpf
