// The same chain as actor_chain of streaming_channel.cpp, with coroutines and channels of asio: ten actors, channels of four
// messages.
// `hop` is the time of a message from one actor to the next. Built where asio is (Debian: libasio-dev).
#if __has_include(<asio.hpp>)
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/channel.hpp>
#include <asio/experimental/concurrent_channel.hpp>
#include <benchmark/benchmark.h>

namespace {

constexpr std::size_t num_actors = 10;
constexpr std::size_t capacity = 4;
constexpr auto as_result = asio::experimental::as_tuple(asio::use_awaitable);

template <typename Channel>
asio::awaitable<void> produce(Channel& to, std::uint64_t count) {
    asio::error_code const none;
    for (std::uint64_t i = 0; i < count; ++i) {
        co_await to.async_send(none, i, asio::use_awaitable);
    }
    to.close();
}

template <typename Channel>
asio::awaitable<void> pass_on(Channel& from, Channel& to) {
    asio::error_code const none;
    for (;;) {
        auto [error, value] = co_await from.async_receive(as_result);
        if (error) {
            break;
        }
        co_await to.async_send(none, value, asio::use_awaitable);
    }
    to.close();
}

template <typename Channel>
asio::awaitable<void> consume(Channel& from) {
    for (;;) {
        auto [error, value] = co_await from.async_receive(as_result);
        if (error) {
            break;
        }
        benchmark::DoNotOptimize(value);
    }
}

template <typename Channel, typename Run>
void chain(benchmark::State& state, Run const& run) {
    constexpr std::uint64_t messages = 1'000'000;
    for (auto _ : state) {
        run([](auto executor) {
            std::vector<std::shared_ptr<Channel>> channels;
            for (std::size_t i = 0; i + 1 < num_actors; ++i) {
                channels.push_back(std::make_shared<Channel>(executor, capacity));
            }
            auto const kept = [channels](auto&&...) {};
            asio::co_spawn(executor, produce(*channels.front(), messages), kept);
            for (std::size_t i = 0; i + 1 < channels.size(); ++i) {
                asio::co_spawn(executor, pass_on(*channels[i], *channels[i + 1]), kept);
            }
            asio::co_spawn(executor, consume(*channels.back()), kept);
        });
    }
    auto const hops =
        static_cast<double>(messages * (num_actors - 1)) * static_cast<double>(state.iterations());
    state.counters["hop"] =
        benchmark::Counter(hops, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void asio_chain(benchmark::State& state) {
    using Signature = void(asio::error_code, std::uint64_t);
    if (auto const threads = static_cast<std::size_t>(state.range(0)); threads == 1) {
        chain<asio::experimental::channel<Signature>>(state, [](auto const& start) {
            asio::io_context context{1};
            start(context.get_executor());
            context.run();
        });
    } else {
        chain<asio::experimental::concurrent_channel<Signature>>(state, [threads](auto const& start) {
            asio::thread_pool pool{threads};
            start(pool.get_executor());
            pool.join();
        });
    }
}
BENCHMARK(asio_chain)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
#endif
