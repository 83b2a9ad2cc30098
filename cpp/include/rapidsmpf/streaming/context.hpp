// What the nodes of a query need to run: options, the ranks, memory, threads, statistics.
//
// A Context shares all of them; it is cheap to copy around by shared_ptr and its methods are thread-safe.
#pragma once

#include <memory>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/statistics.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/streaming/channel.hpp>
#include <rapidsmpf/streaming/executor.hpp>

namespace rapidsmpf::streaming {

class Context {
  public:
    // `communicator` may be null when no node talks to other ranks; without an executor one is made from the
    // options. Statistics are those of the resource. Throws std::invalid_argument when the resource is null.
    Context(
        config::Options options, std::shared_ptr<Communicator> communicator,
        std::shared_ptr<BufferResource> resource, std::shared_ptr<Executor> executor = nullptr);

    [[nodiscard]] config::Options const& options() const noexcept { return options_; }
    // Throws std::logic_error when there is none.
    [[nodiscard]] std::shared_ptr<Communicator> const& communicator() const;
    [[nodiscard]] std::shared_ptr<BufferResource> const& resource() const noexcept { return resource_; }
    [[nodiscard]] std::shared_ptr<Executor> const& executor() const noexcept { return executor_; }
    [[nodiscard]] std::shared_ptr<Statistics> const& statistics() const noexcept {
        return resource_->statistics();
    }

    // A channel whose waiters run on this executor and whose messages are spilled by this resource.
    [[nodiscard]] ChannelPtr create_channel(ChannelCapacity capacity = ChannelCapacity{}) const;

    // Ends the executor's threads; idempotent, on any thread. No network may be running.
    void shutdown() noexcept { executor_->shutdown(); }

  private:
    config::Options options_;
    std::shared_ptr<Communicator> communicator_;
    std::shared_ptr<BufferResource> resource_;
    std::shared_ptr<Executor> executor_;
};

}  // namespace rapidsmpf::streaming
