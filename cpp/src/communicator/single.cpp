#include <rapidsmpf/communicator/single.hpp>

#include <stdexcept>
#include <string>
#include <utility>

namespace rapidsmpf {

namespace {
[[noreturn]] void no_such_rank(Rank rank) {
    throw std::invalid_argument{
        "rank " + std::to_string(rank) + " cannot be reached: this communicator has one rank, and a rank sends no"
        " messages to itself"};
}
}  // namespace

SingleCommunicator::SingleCommunicator(
    config::Options options, std::shared_ptr<ProgressThread> progress_thread)
    : Communicator{std::move(options), std::move(progress_thread)} {
    logger_.set_rank(0);
}

SingleCommunicator::~SingleCommunicator() {
    retire();
}

std::unique_ptr<Communicator::Request> SingleCommunicator::send(
    std::vector<std::uint8_t> /*message*/, Rank destination, Tag /*tag*/) {
    no_such_rank(destination);
}

std::unique_ptr<Communicator::Request> SingleCommunicator::send(
    std::shared_ptr<Buffer const> /*buffer*/, std::size_t /*offset*/, std::size_t /*size*/, Rank destination,
    Tag /*tag*/) {
    no_such_rank(destination);
}

std::unique_ptr<Communicator::Request> SingleCommunicator::recv(
    std::shared_ptr<Buffer> /*buffer*/, std::size_t /*offset*/, std::size_t /*size*/, Rank source,
    Tag /*tag*/) {
    no_such_rank(source);
}

}  // namespace rapidsmpf
