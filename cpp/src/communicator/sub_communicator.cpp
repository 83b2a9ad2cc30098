#include "communicator/sub_communicator.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>

#include "communicator/split_state.hpp"

namespace rapidsmpf::detail {

namespace {

constexpr std::uint32_t goodbye_stage = 2;

Tag goodbye_tag() {
    return Tag{Tag::max_op_id, goodbye_stage};
}

config::Options same_options(Communicator const& comm) {
    auto options = comm.options().get_strings();
    options["log"] = std::string{to_string(comm.logger().verbosity_level())};
    return config::Options{std::move(options)};
}

}  // namespace

SubCommunicator::SubCommunicator(
    std::shared_ptr<Communicator> transport, std::vector<Rank> members, Rank rank, ContextId context)
    : Communicator{same_options(*transport), transport->progress_thread()},
      transport_{std::move(transport)},
      members_{std::move(members)},
      rank_{rank},
      context_{context} {
    logger_.set_rank(rank);
    listener_ = transport_->add_failure_listener([this](RankFailure const& why) { fail(translate(why)); });
    function_ = progress_thread()->add_function(
        [this] { return ProgressThread::TickResult::busy_if(take_goodbyes()); });
}

SubCommunicator::~SubCommunicator() {
    retire();
    progress_thread()->remove_function(function_);
    transport_->remove_failure_listener(listener_);
    try {
        if (!failure()) {
            for (auto const member : members_) {
                if (member != transport_->rank() && !transport_->has_closed(member)) {
                    static_cast<void>(transport_->send(
                        std::vector<std::uint8_t>{1}, member, goodbye_tag().in_context(context_)));
                }
            }
        }
    } catch (std::exception const& error) {
        logger().warn(std::string{"while a communicator of a split was destroyed: "} + error.what());
    }
    transport_->split_state()->release(context_, SplitState::Used::yes);
}

std::string SubCommunicator::str() const {
    return "SubCommunicator(rank=" + std::to_string(rank_) + ", nranks=" + std::to_string(nranks())
           + ", context=" + std::to_string(context_) + ", of=" + transport_->str() + ")";
}

Rank SubCommunicator::peer(Rank rank) const {
    RAPIDSMPF_EXPECTS(
        rank >= 0 && rank < nranks() && rank != rank_,
        "rank " + std::to_string(rank) + " is not another rank of a communicator of "
            + std::to_string(nranks()) + ", of which this is rank " + std::to_string(rank_),
        std::invalid_argument);
    return member(rank);
}

std::optional<Rank> SubCommunicator::rank_of(Rank member) const {
    auto const found = std::find(members_.begin(), members_.end(), member);
    return found == members_.end() ? std::nullopt
                                   : std::optional{static_cast<Rank>(found - members_.begin())};
}

RankFailure SubCommunicator::translate(RankFailure const& failure) const {
    if (auto const rank = rank_of(failure.rank)) {
        return RankFailure{*rank, failure.host, failure.pid, failure.reason};
    }
    auto const who = failure.rank < 0 ? std::string{}
                                      : "rank " + std::to_string(failure.rank)
                                            + " of the communicator that this one was split from: ";
    return RankFailure{-1, failure.host, failure.pid, who + failure.reason};
}

std::unique_ptr<Communicator::Request> SubCommunicator::send(
    std::vector<std::uint8_t> message, Rank destination, Tag tag) {
    return transport_->send(std::move(message), peer(destination), tag.in_context(context_));
}

std::unique_ptr<Communicator::Request> SubCommunicator::send(
    std::shared_ptr<Buffer const> buffer, std::size_t offset, std::size_t size, Rank destination, Tag tag) {
    return transport_->send(std::move(buffer), offset, size, peer(destination), tag.in_context(context_));
}

std::unique_ptr<Communicator::Request> SubCommunicator::recv(
    std::shared_ptr<Buffer> buffer, std::size_t offset, std::size_t size, Rank source, Tag tag) {
    return transport_->recv(std::move(buffer), offset, size, peer(source), tag.in_context(context_));
}

std::optional<Communicator::Arrived> SubCommunicator::recv_any(Tag tag) {
    auto arrived = transport_->recv_any(tag.in_context(context_));
    if (arrived) {
        auto const source = rank_of(arrived->source);
        if (!source) {
            transport_->report_protocol_violation(
                arrived->source, "it sent a message in a communicator that it is no member of");
            return std::nullopt;
        }
        arrived->source = *source;
    }
    return arrived;
}

// The transport knows first; what is thrown for its failure has to find this communicator failed.
std::optional<RankFailure> SubCommunicator::failure() const {
    if (auto failed = Communicator::failure()) {
        return failed;
    }
    auto const failed = transport_->failure();
    return failed ? std::optional{translate(*failed)} : std::nullopt;
}

void SubCommunicator::abort(std::string const& reason) {
    transport_->abort(reason);
}

void SubCommunicator::report_protocol_violation(Rank culprit, std::string const& reason) {
    transport_->report_protocol_violation(member(culprit), reason);
}

bool SubCommunicator::has_closed(Rank rank) const {
    return Communicator::has_closed(rank) || transport_->has_closed(member(rank));
}

std::optional<Rank> SubCommunicator::first_closed() const {
    if (auto const left = Communicator::first_closed()) {
        return left;
    }
    if (transport_->first_closed()) {
        for (Rank rank = 0; rank < nranks(); ++rank) {
            if (transport_->has_closed(member(rank))) {
                return rank;
            }
        }
    }
    return std::nullopt;
}

bool SubCommunicator::take_goodbyes() {
    bool any = false;
    while (auto const arrived = recv_any(goodbye_tag())) {
        note_closed(arrived->source);
        any = true;
    }
    return any;
}

}  // namespace rapidsmpf::detail
