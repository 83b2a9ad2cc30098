#include <rapidsmpf/streaming/lineariser.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/streaming/synchronisation.hpp>
#include <rapidsmpf/streaming/when_all.hpp>

namespace rapidsmpf::streaming {

// Whose turn it is. One message at a time is under way to the output.
class Lineariser::Order {
  public:
    Order(std::shared_ptr<Executor> executor, std::size_t num_producers)
        : executor_{std::move(executor)}, producers_(num_producers) {}

    class TurnAwaiter {
      public:
        TurnAwaiter(Order& order, std::size_t producer, std::uint64_t sequence) noexcept
            : order_{&order}, producer_{producer}, sequence_{sequence} {}
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        [[gnu::noinline]] bool await_suspend(std::coroutine_handle<> coroutine) {
            parked_.coroutine = coroutine;
            return order_->wait(producer_, sequence_, parked_);
        }
        void await_resume() {
            if (parked_.error) {
                std::rethrow_exception(std::exchange(parked_.error, nullptr));
            }
        }

      private:
        Order* order_;
        std::size_t producer_;
        std::uint64_t sequence_;
        detail::Parked parked_;
    };

    // co_await: until the message with this number is the next one. Throws what fail() was given.
    [[nodiscard]] TurnAwaiter turn(std::size_t producer, std::uint64_t sequence) noexcept {
        return TurnAwaiter{*this, producer, sequence};
    }

    // The message whose turn it was has been sent.
    void sent(std::size_t producer) {
        MutexLock const lock{mutex_};
        next_ = *producers_[producer].last + 1;
        sending_ = false;
        pass_on();
    }

    // This one has no more messages.
    void finish(std::size_t producer) {
        MutexLock const lock{mutex_};
        producers_[producer].finished = true;
        pass_on();
    }

    void fail(std::exception_ptr error) {
        MutexLock const lock{mutex_};
        if (error_) {
            return;
        }
        error_ = std::move(error);
        for (auto& producer : producers_) {
            if (auto* waiting = std::exchange(producer.waiting, nullptr)) {
                waiting->error = error_;
                executor_->post(waiting->coroutine);
            }
        }
    }

  private:
    struct Producer {
        std::optional<std::uint64_t> last;  // number of the message that waits, or was sent last
        detail::Parked* waiting{nullptr};
        bool finished{false};
    };

    // Whether the coroutine has to wait.
    [[nodiscard]] bool wait(std::size_t index, std::uint64_t sequence, detail::Parked& parked) {
        MutexLock const lock{mutex_};
        if (error_) {
            parked.error = error_;
            return false;
        }
        auto& producer = producers_[index];
        if (producer.last && sequence <= *producer.last) {
            parked.error = std::make_exception_ptr(
                std::invalid_argument{
                    "producer " + std::to_string(index) + " of a lineariser sent message "
                    + std::to_string(sequence) + " after " + std::to_string(*producer.last)
                    + ": its numbers must grow"});
            return false;
        }
        producer.last = sequence;
        producer.waiting = &parked;
        if (next_to_send() == &producer) {
            sending_ = true;
            producer.waiting = nullptr;
            return false;
        }
        pass_on();  // this number may be what another one's turn depended on
        return true;
    }

    // Null: no producer yet.
    [[nodiscard]] Producer* next_to_send() RAPIDSMPF_REQUIRES(mutex_) {
        if (sending_) {
            return nullptr;
        }
        Producer* first = nullptr;
        bool all = true;
        for (auto& producer : producers_) {
            if (producer.waiting == nullptr) {
                all = all && producer.finished;
            } else if (first == nullptr || *producer.last < *first->last) {
                first = &producer;
            }
        }
        // Below the next number: a gap that came late, or the same number twice; it waits no longer either.
        return first != nullptr && (all || *first->last <= next_) ? first : nullptr;
    }

    void pass_on() RAPIDSMPF_REQUIRES(mutex_) {
        if (auto* const first = next_to_send()) {
            sending_ = true;
            executor_->post(std::exchange(first->waiting, nullptr)->coroutine);
        }
    }

    std::shared_ptr<Executor> executor_;
    Mutex mutex_;
    std::vector<Producer> producers_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t next_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    bool sending_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
};

Lineariser::Lineariser(
    Context const& context, ChannelPtr out, std::size_t num_producers, ChannelCapacity capacity)
    : out_{std::move(out)}, order_{std::make_shared<Order>(context.executor(), num_producers)} {
    RAPIDSMPF_EXPECTS(num_producers > 0, "a lineariser needs at least one producer", std::invalid_argument);
    RAPIDSMPF_EXPECTS(out_ != nullptr, "a lineariser needs an output", std::invalid_argument);
    for (std::size_t i = 0; i < num_producers; ++i) {
        producers_.push_back(context.create_channel(capacity));
    }
}

Task<void> Lineariser::pump(
    std::shared_ptr<Order> order, std::size_t producer, std::vector<ChannelPtr> const& producers,
    ChannelPtr out) {
    auto const& in = producers[producer];
    std::exception_ptr error;
    try {
        bool wanted = true;
        while (wanted) {
            auto message = co_await in->receive();
            if (!message) {
                break;
            }
            co_await order->turn(producer, message->sequence());
            wanted = co_await out->send(std::move(*message));
            order->sent(producer);
        }
        if (!wanted) {
            for (auto const& channel : producers) {
                channel->shutdown();
            }
        }
    } catch (...) {
        error = std::current_exception();
    }
    if (error) {
        order->fail(error);
        for (auto const& channel : producers) {
            channel->cancel(error);  // for pumps that wait for their producers rather than for their turn
        }
        std::rethrow_exception(std::move(error));
    }
    order->finish(producer);
}

Task<void> Lineariser::run(std::shared_ptr<Order> order, std::vector<ChannelPtr> producers, ChannelPtr out) {
    std::vector<Task<void>> pumps;
    for (std::size_t i = 0; i < producers.size(); ++i) {
        pumps.push_back(pump(order, i, producers, out));
    }
    co_await when_all(std::move(pumps));
}

Actor Lineariser::actor() {
    RAPIDSMPF_EXPECTS(order_ != nullptr, "a lineariser has one actor", std::logic_error);
    auto task = run(std::move(order_), producers_, out_);
    return Actor{"lineariser", std::move(task), producers_, {out_}};
}

}  // namespace rapidsmpf::streaming
