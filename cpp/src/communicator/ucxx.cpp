#include <rapidsmpf/communicator/ucxx.hpp>

#include <cstdlib>
#include <string>
#include <utility>

#include <ucxx/api.h>

#include <rapidsmpf/communicator/detail/lifetime.hpp>
#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>

#include "communicator/ucxx_address.hpp"
#include "communicator/ucxx_impl.hpp"

namespace rapidsmpf {

namespace {

std::chrono::milliseconds join_timeout(config::Options const& options) {
    auto const seconds = config::get_seconds(options, "ucxx_join_timeout");
    return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>{seconds});
}

UcxxReach reach_of(config::Options const& options) {
    return config::get_text(options, "ucxx_reach") == "one-host" ? UcxxReach::one_host : UcxxReach::anywhere;
}

UcxxCommunicator::ProgressMode parse_progress_mode(config::Options& options) {
    auto const mode = options.get<std::string>("ucxx_progress_mode", [](std::string const& text) {
        std::string word = config::Options::normalise(text);
        return word.empty() ? std::string{"thread-blocking"} : word;
    });
    if (mode == "thread-blocking") {
        return UcxxCommunicator::ProgressMode::blocking;
    }
    if (mode == "thread-polling") {
        return UcxxCommunicator::ProgressMode::polling;
    }
    auto const why = mode == "blocking" || mode == "polling"
                         ? " would need a caller that drives the worker, but here the progress thread does"
                         : " is no progress mode";
    throw std::invalid_argument{
        "ucxx_progress_mode: '" + mode + "'" + why + "; use thread-blocking or thread-polling"};
}

ucs_memory_type_t memory_type_of(Buffer const& buffer) {
    return buffer.is_host_accessible() ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_CUDA;
}

void check_nranks(Rank nranks) {
    RAPIDSMPF_EXPECTS(
        nranks >= 1 && nranks <= detail::max_ranks,
        "a communicator has between 1 and " + std::to_string(detail::max_ranks) + " ranks, not "
            + std::to_string(nranks),
        std::invalid_argument);
}

void check_range(Buffer const& buffer, std::size_t offset, std::size_t size) {
    RAPIDSMPF_EXPECTS(
        offset <= buffer.size() && size <= buffer.size() - offset, "a message beyond the end of its buffer",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        buffer.mem_type() != MemoryType::DISK, "bytes on disk cannot be sent or received", std::logic_error);
}

}  // namespace

std::shared_ptr<::ucxx::Worker> make_ucxx_worker(UcxxReach reach) {
    ::ucxx::ConfigMap config;
    if (reach == UcxxReach::one_host) {
        if (std::getenv("UCX_TLS") == nullptr) {
            // TCP is never the fastest way within a host, and UCX would connect every pair of ranks by it all the same,
            // and listen for others.
            config.emplace("TLS", "^tcp");
        } else if (std::getenv("UCX_NET_DEVICES") == nullptr) {
            config.emplace("NET_DEVICES", "lo");
        }
    }
    return ::ucxx::contextBuilder(UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP)
        .configMap(std::move(config))
        .build()
        ->workerBuilder()
        .build();
}

std::vector<std::uint8_t> ucxx_worker_address(::ucxx::Worker& worker) {
    std::shared_ptr<::ucxx::Address> const address = worker.addressBuilder().build();
    auto const bytes = address->getStringView();
    return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
}

UcxxCommunicator::UcxxCommunicator(
    Key /*key*/, config::Options options, std::shared_ptr<ProgressThread> progress_thread)
    : Communicator{options, std::move(progress_thread)}, progress_mode_{parse_progress_mode(options)} {}

bool is_sealed_ucxx_address(std::span<std::uint8_t const> bytes) {
    return detail::is_sealed(bytes);
}

std::shared_ptr<UcxxCommunicator> UcxxCommunicator::connect(
    Rank rank, std::vector<Address> const& addresses, Token const& token,
    std::shared_ptr<::ucxx::Worker> worker, std::unique_ptr<Liveness> liveness, config::Options options,
    std::shared_ptr<ProgressThread> progress_thread) {
    auto const nranks = static_cast<Rank>(addresses.size());
    RAPIDSMPF_EXPECTS(rank >= 0 && rank < nranks, "no address of the rank itself", std::invalid_argument);
    RAPIDSMPF_EXPECTS(worker != nullptr, "a worker is needed", std::invalid_argument);
    check_nranks(nranks);
    auto comm =
        detail::make_communicator<UcxxCommunicator>(Key{}, std::move(options), std::move(progress_thread));
    comm->impl_ = std::make_unique<Impl>(*comm, rank, nranks, token, std::move(worker));
    comm->impl_->connect_all(addresses);
    comm->start(std::move(liveness));
    return comm;
}

std::shared_ptr<UcxxCommunicator> UcxxCommunicator::join(
    Rank nranks, std::shared_ptr<::ucxx::Worker> worker, std::optional<Address> const& root_address,
    config::Options options, std::shared_ptr<ProgressThread> progress_thread, JoinLiveness const& liveness) {
    check_nranks(nranks);
    RAPIDSMPF_EXPECTS(
        !root_address || nranks > 1, "a communicator of one rank has only the root", std::invalid_argument);
    auto const timeout = join_timeout(options);
    if (!worker) {
        worker = make_ucxx_worker(reach_of(options));
    }
    auto const root = root_address ? detail::checked_address(*root_address, ucxx_worker_address(*worker))
                                   : detail::RootAddress{Address{}, Token::random()};
    auto comm =
        detail::make_communicator<UcxxCommunicator>(Key{}, std::move(options), std::move(progress_thread));
    comm->impl_ = std::make_unique<Impl>(
        *comm, root_address ? detail::no_rank : detail::root, nranks, root.token, std::move(worker));
    auto invitation = liveness.invitation;
    if (root_address) {
        invitation = comm->impl_->ask_to_join(root.address, timeout);
    } else {
        comm->impl_->invite_with(invitation);
    }
    comm->start(
        liveness.accept && !invitation.empty() ? liveness.accept(comm->impl_->rank(), invitation) : nullptr);
    return comm;
}

void UcxxCommunicator::start(std::unique_ptr<Liveness> liveness) {
    logger_.set_rank(impl_->rank());
    impl_->start(std::move(liveness));
}

UcxxCommunicator::~UcxxCommunicator() {
    retire();
    if (impl_) {
        impl_->finish();
    }
}

Rank UcxxCommunicator::rank() const noexcept {
    return impl_->rank();
}

Rank UcxxCommunicator::nranks() const noexcept {
    return impl_->nranks();
}

std::string UcxxCommunicator::str() const {
    std::string transports;
    for (auto const& name : impl_->transports()) {
        transports += (transports.empty() ? "" : ", ") + name;
    }
    return "UcxxCommunicator(rank=" + std::to_string(rank()) + ", nranks=" + std::to_string(nranks())
           + ", transports=[" + transports + "])";
}

std::unique_ptr<Communicator::Request> UcxxCommunicator::send(
    std::vector<std::uint8_t> message, Rank destination, Tag tag) {
    auto bytes = std::make_shared<std::vector<std::uint8_t> const>(std::move(message));
    auto const* const data = bytes->data();
    auto const size = bytes->size();
    return impl_->send(data, size, UCS_MEMORY_TYPE_HOST, std::move(bytes), destination, tag);
}

std::unique_ptr<Communicator::Request> UcxxCommunicator::send(
    std::shared_ptr<Buffer const> buffer, std::size_t offset, std::size_t size, Rank destination, Tag tag) {
    check_range(*buffer, offset, size);
    RAPIDSMPF_EXPECTS(buffer->is_ready(), "the buffer to send is still being written", std::logic_error);
    auto const* const data = buffer->data() + offset;
    auto const memory_type = memory_type_of(*buffer);
    return impl_->send(data, size, memory_type, std::move(buffer), destination, tag);
}

std::unique_ptr<Communicator::Request> UcxxCommunicator::recv(
    std::shared_ptr<Buffer> buffer, std::size_t offset, std::size_t size, Rank source, Tag tag) {
    check_range(*buffer, offset, size);
    auto const memory_type = memory_type_of(*buffer);
    std::byte* data = nullptr;
    // UCX writes in its own time: what may still use the bytes has to be over.
    buffer->synchronize();
    buffer->write([&](std::byte* bytes, Stream /*stream*/) { data = bytes + offset; });
    return impl_->receive(data, size, memory_type, std::move(buffer), source, tag);
}

std::optional<Communicator::Arrived> UcxxCommunicator::recv_any(Tag tag) {
    return impl_->receive_any(tag);
}

bool UcxxCommunicator::progress() {
    return impl_->progress();
}

void UcxxCommunicator::report_protocol_violation(Rank culprit, std::string const& reason) {
    impl_->report_protocol_violation(culprit, reason);
}

void UcxxCommunicator::abort(std::string const& reason) {
    impl_->abort(reason);
}

void UcxxCommunicator::barrier(
    std::optional<std::chrono::milliseconds> timeout, std::stop_token const& stop) {
    impl_->barrier(timeout, stop);
}

UcxxCommunicator::Address UcxxCommunicator::worker_address() const {
    return detail::seal_address(ucxx_worker_address(*impl_->transport().worker()), impl_->token());
}

std::shared_ptr<::ucxx::Worker> UcxxCommunicator::worker() const {
    return impl_->transport().worker();
}

}  // namespace rapidsmpf
