#include <rapidsmpf/streaming/context.hpp>

#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::streaming {

Context::Context(
    config::Options options, std::shared_ptr<Communicator> communicator,
    std::shared_ptr<BufferResource> resource, std::shared_ptr<Executor> executor)
    : options_{std::move(options)},
      communicator_{std::move(communicator)},
      resource_{std::move(resource)},
      executor_{std::move(executor)} {
    RAPIDSMPF_EXPECTS(resource_ != nullptr, "a context needs a buffer resource", std::invalid_argument);
    if (!executor_) {
        executor_ = Executor::from_options(options_);
    }
}

std::shared_ptr<Communicator> const& Context::communicator() const {
    RAPIDSMPF_EXPECTS(
        communicator_ != nullptr, "this context was made without a communicator", std::logic_error);
    return communicator_;
}

ChannelPtr Context::create_channel(ChannelCapacity capacity) const {
    return std::make_shared<Channel>(executor_, capacity, resource_);
}

}  // namespace rapidsmpf::streaming
