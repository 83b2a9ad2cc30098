// Random networks of counting actors: everything is delivered once, in the order that its path promises, or the injected error
// comes out; nothing is lost, nothing leaks, nothing hangs. RAPIDSMPF_NETWORKS says how many; `make test-long` runs thousands.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/streaming/actor.hpp>
#include <rapidsmpf/streaming/actors.hpp>
#include <rapidsmpf/streaming/lineariser.hpp>
#include <rapidsmpf/streaming/memory_wait.hpp>
#include <rapidsmpf/streaming/network.hpp>
#include <rapidsmpf/streaming/synchronisation.hpp>
#include <rapidsmpf/streaming/throttle.hpp>

namespace rapidsmpf::streaming {
namespace {

constexpr std::uint64_t not_ever = ~std::uint64_t{0};
constexpr std::size_t model_bytes = 512;

struct Boom : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Parcel {
    Parcel(std::uint64_t from_, std::uint64_t number_) noexcept : from{from_}, number{number_} {}
    std::uint64_t from;
    std::uint64_t number;
};

// A payload in memory of the resource that says who made it.
Task<Message> make_parcel(Context context, Parcel parcel) {
    auto reservation = co_await reserve_memory(context, model_bytes);
    auto buffer = context.resource()->allocate(model_bytes, reservation);
    auto const bytes = buffer->mutable_host_bytes();
    std::memset(bytes.data(), static_cast<int>(parcel.number % 251), bytes.size());
    std::memcpy(bytes.data(), &parcel.from, sizeof parcel.from);
    std::memcpy(bytes.data() + sizeof parcel.from, &parcel.number, sizeof parcel.number);
    std::vector<std::uint8_t> metadata(1);
    co_return Message{parcel.number, PackedData{std::move(metadata), std::move(buffer)}};
}

// What a sink saw. Copies of one parcel arrive once at each sink group.
struct Seen {
    std::mutex mutex;
    std::map<std::pair<std::uint64_t, std::uint64_t>, int> times;
    std::string wrong;
    void see(Message const& message) {
        auto const& packed = message.get<PackedData>();
        auto const bytes = packed.data->host_bytes();
        std::uint64_t from = 0;
        std::uint64_t number = 0;
        std::memcpy(&from, bytes.data(), sizeof from);
        std::memcpy(&number, bytes.data() + sizeof from, sizeof number);
        bool const is_whole = std::all_of(bytes.begin() + 2 * sizeof from, bytes.end(), [&](std::byte byte) {
            return byte == static_cast<std::byte>(number % 251);
        });
        std::lock_guard const lock{mutex};
        ++times[{from, number}];
        if (!is_whole || number != message.sequence()) {
            wrong =
                "parcel " + std::to_string(number) + " of " + std::to_string(from) + " is not what was sent";
        }
    }
};

Task<void> model_source(
    Context context, std::vector<ChannelPtr> outs, std::vector<std::shared_ptr<Throttle>> throttles,
    std::uint64_t id, std::vector<std::uint64_t> numbers, std::uint64_t fail_at) {
    std::uint64_t sent = 0;
    for (auto const number : numbers) {
        if (sent == fail_at) {
            throw Boom{"source"};
        }
        auto const index = sent++ % outs.size();
        Parcel parcel{id, number};
        if (throttles[index]) {
            auto ticket = co_await throttles[index]->acquire();
            auto message = co_await make_parcel(context, parcel);
            if (!co_await ticket.send(std::move(message))) {
                co_return;
            }
        } else {
            auto message = co_await make_parcel(context, parcel);
            if (!co_await outs[index]->send(std::move(message))) {
                co_return;
            }
        }
    }
}

Task<void> model_middle(
    Context context, ChannelPtr in, std::vector<ChannelPtr> outs, std::uint64_t fail_at, bool pauses) {
    std::uint64_t taken = 0;
    while (auto message = co_await in->receive()) {
        if (taken == fail_at) {
            throw Boom{"middle"};
        }
        if (pauses && taken % 8 == 0) {
            std::chrono::microseconds const pause{50};
            co_await sleep_for(context.executor(), pause);
        }
        auto const& out = outs[taken++ % outs.size()];
        if (!co_await out->send(std::move(*message))) {
            co_return;
        }
    }
}

Task<void> model_sink(
    ChannelPtr in, Seen* seen, std::vector<std::uint64_t>* order, std::uint64_t limit,
    std::uint64_t fail_at) {
    std::uint64_t taken = 0;
    while (taken < limit) {
        auto message = co_await in->receive();
        if (!message) {
            co_return;
        }
        if (taken++ == fail_at) {
            throw Boom{"sink"};
        }
        if (order != nullptr) {
            order->push_back(message->sequence());
        }
        seen->see(*message);
    }
}

class Model {
  public:
    explicit Model(std::uint64_t seed) : random_{seed} {
        BufferResource::Settings settings;
        // Some run in a budget of a few parcels, so that what waits is spilled and memory is waited for.
        is_tight_ = pick(3) == 0;
        if (is_tight_) {
            budget_ = (2 + pick(6)) * model_bytes;
            settings.limits[0] = static_cast<std::int64_t>(budget_);
            settings.available[0] = [] { return BufferResource::unlimited; };
            settings.reserve_timeout = std::chrono::milliseconds{2};
        }
        resource_ = BufferResource::make(std::move(settings));
        context_.emplace(config::Options{}, nullptr, resource_, std::make_shared<Executor>(1 + pick(4)));
        is_bad_ = pick(3) == 0;
        is_early_ = !is_bad_ && pick(4) == 0;
    }

    enum class End { delivered, failed, cut_short };

    [[nodiscard]] std::shared_ptr<Executor> const& executor() const { return context_->executor(); }
    // How it ended; throws std::logic_error when something is wrong.
    End run() {
        build();
        End end = is_early_ ? End::cut_short : End::delivered;
        try {
            run_actor_network(*context_->executor(), std::move(actors_));
        } catch (Boom const&) {
            check(is_bad_, "an error that nobody injected");
            end = End::failed;
        }
        for (auto& group : groups_) {
            check(group->seen.wrong.empty(), group->seen.wrong);
            for (auto const& [parcel, times] : group->seen.times) {
                check(times == 1, "a parcel came twice");
            }
            if (end == End::delivered) {
                check(group->seen.times.size() == sent_, "parcels are missing");
                check(
                    !group->is_ordered || std::is_sorted(group->order.begin(), group->order.end()),
                    "parcels came in another order");
            }
        }
        channels_.clear();
        if (is_tight_) {
            // What is on its way to the disk is free when it has arrived.
            auto const all = resource_->reserve_or_wait(
                MemoryType::DEVICE, budget_, AllowOverbooking::no, std::chrono::seconds{10});
        }
        for (auto const type : {MemoryType::DEVICE, MemoryType::PINNED_HOST, MemoryType::HOST}) {
            check(resource_->memory_used(type) == 0, "memory is left");
            check(resource_->memory_reserved(type) == 0, "a reservation is left");
        }
        return end;
    }

  private:
    // Sinks that see every parcel once together.
    struct Group {
        Seen seen;
        std::vector<std::uint64_t> order;
        bool is_ordered{false};
    };

    [[nodiscard]] std::uint64_t pick(std::uint64_t below) { return random_() % below; }
    [[nodiscard]] ChannelPtr channel() {
        channels_.push_back(context_->create_channel(ChannelCapacity{1 + pick(5)}));
        return channels_.back();
    }
    [[nodiscard]] std::uint64_t failure(std::uint64_t odds) {
        return is_bad_ && pick(odds) == 0 ? pick(40) : not_ever;
    }
    static void check(bool holds, std::string const& what) {
        if (!holds) {
            throw std::logic_error{what};
        }
    }

    void build() {
        bool is_ordered = false;
        auto layer = pick(3) == 0 ? ordered_sources(is_ordered) : sources();
        for (std::uint64_t depth = pick(3); depth > 0; --depth) {
            if (pick(3) == 0) {
                fan_out(layer, is_ordered);
                return;
            }
            layer = middle(layer);
            is_ordered = false;
        }
        sinks(layer, is_ordered);
    }

    std::vector<ChannelPtr> sources() {
        std::vector<ChannelPtr> layer;
        for (std::uint64_t i = 1 + pick(3); i > 0; --i) {
            layer.push_back(channel());
        }
        std::vector<std::shared_ptr<Throttle>> throttles;
        for (auto const& out : layer) {
            throttles.push_back(pick(2) == 0 ? std::make_shared<Throttle>(out, 1 + pick(3)) : nullptr);
        }
        for (std::uint64_t id = 0, count = 1 + pick(5); id < count; ++id) {
            std::vector<std::uint64_t> numbers(pick(40));
            for (std::size_t i = 0; i < numbers.size(); ++i) {
                numbers[i] = i;
            }
            sent_ += numbers.size();
            actors_.emplace_back(
                "source", model_source(*context_, layer, throttles, id, std::move(numbers), failure(4)),
                std::vector<ChannelPtr>{}, layer);
        }
        return layer;
    }

    // Sources whose numbers one lineariser puts in order.
    std::vector<ChannelPtr> ordered_sources(bool& is_ordered) {
        auto const out = channel();
        auto const count = 1 + pick(4);
        Lineariser lineariser{*context_, out, count};
        std::vector<std::vector<std::uint64_t>> numbers(count);
        for (std::uint64_t i = pick(80); i > 0; --i) {
            numbers[pick(count)].push_back(sent_++);
        }
        for (std::uint64_t id = 0; id < count; ++id) {
            std::vector<ChannelPtr> const outs{lineariser.producers()[id]};
            std::vector<std::shared_ptr<Throttle>> throttles(1);
            actors_.emplace_back(
                "source", model_source(*context_, outs, throttles, 0, numbers[id], failure(4)),
                std::vector<ChannelPtr>{}, outs);
        }
        actors_.push_back(lineariser.actor());
        is_ordered = true;
        return {out};
    }

    std::vector<ChannelPtr> middle(std::vector<ChannelPtr> const& layer) {
        std::vector<ChannelPtr> next;
        for (std::uint64_t i = 1 + pick(3); i > 0; --i) {
            next.push_back(channel());
        }
        for (auto const& in : layer) {
            for (std::uint64_t i = 1 + pick(2); i > 0; --i) {
                actors_.emplace_back(
                    "middle", model_middle(*context_, in, next, failure(6), pick(6) == 0), std::vector{in},
                    next);
            }
        }
        return next;
    }

    // Every parcel to two groups of sinks.
    void fan_out(std::vector<ChannelPtr> const& layer, bool is_ordered) {
        auto const policy = pick(2) == 0 ? FanoutPolicy::bounded : FanoutPolicy::unbounded;
        std::vector<ChannelPtr> left;
        std::vector<ChannelPtr> right;
        for (auto const& in : layer) {
            left.push_back(channel());
            right.push_back(channel());
            actors_.push_back(fanout(*context_, in, {left.back(), right.back()}, policy));
        }
        sinks(left, is_ordered);
        sinks(right, is_ordered);
    }

    void sinks(std::vector<ChannelPtr> const& layer, bool is_ordered) {
        groups_.push_back(std::make_unique<Group>());
        auto& group = *groups_.back();
        auto const each = is_ordered ? 1 : 1 + pick(3);
        group.is_ordered = is_ordered && layer.size() == 1;
        for (auto const& in : layer) {
            for (std::uint64_t i = 0; i < each; ++i) {
                actors_.emplace_back(
                    "sink",
                    model_sink(
                        in, &group.seen, group.is_ordered ? &group.order : nullptr,
                        is_early_ ? pick(20) : not_ever, failure(6)),
                    std::vector{in}, std::vector<ChannelPtr>{});
            }
        }
    }

    std::mt19937_64 random_;
    std::shared_ptr<BufferResource> resource_;
    std::optional<Context> context_;
    std::vector<Actor> actors_;
    std::vector<ChannelPtr> channels_;
    std::vector<std::unique_ptr<Group>> groups_;
    std::size_t sent_{0};
    std::size_t budget_{0};
    bool is_tight_{false};
    bool is_bad_{false};
    bool is_early_{false};
};

// Ends the program with a picture of the network when it stands still.
class Watch {
  public:
    Watch(std::uint64_t seed, Executor const& executor)
        : thread_{[this, seed, &executor] {
              std::unique_lock lock{mutex_};
              if (!changed_.wait_for(lock, std::chrono::seconds{20}, [this] { return is_over_; })) {
                  std::cerr << "network " << seed << " does not end:\n"
                            << describe_networks(executor) << std::endl;
                  std::abort();
              }
          }} {}
    Watch(Watch const&) = delete;
    Watch& operator=(Watch const&) = delete;
    ~Watch() {
        {
            std::lock_guard const lock{mutex_};
            is_over_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_over_{false};
    std::thread thread_;
};

std::uint64_t number_from_environment(char const* name, std::uint64_t otherwise) {
    auto const* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::stoull(text);
}

TEST(NetworkModel, RandomNetworksDeliverEachParcelOnceOrEndWithTheInjectedError) {
    auto const first = number_from_environment("RAPIDSMPF_NETWORKS_FIRST", 0);
    auto const count = number_from_environment("RAPIDSMPF_NETWORKS", 150);
    std::map<Model::End, int> ends;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        try {
            Model model{seed};
            Watch const watch{seed, *model.executor()};
            ++ends[model.run()];
        } catch (std::exception const& error) {
            FAIL() << "network " << seed << ": " << error.what();
        }
    }
    if (count >= 100) {
        EXPECT_GT(ends[Model::End::delivered], 0);
        EXPECT_GT(ends[Model::End::failed], 0);
        EXPECT_GT(ends[Model::End::cut_short], 0);
    }
}

}  // namespace
}  // namespace rapidsmpf::streaming
