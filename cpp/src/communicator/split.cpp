#include <rapidsmpf/communicator/split.hpp>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include <rapidsmpf/communicator/detail/lifetime.hpp>
#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/error.hpp>

#include "communicator/split_state.hpp"
#include "communicator/sub_communicator.hpp"

namespace rapidsmpf {

namespace {

using detail::ContextSet;
using detail::SplitState;

// What a rank says in the first round: where it wants to be, and which contexts are taken in its process.
struct SplitRequest {
    std::optional<std::int32_t> color;
    std::int32_t key{0};
    ContextSet taken;

    [[nodiscard]] std::vector<std::uint8_t> encode() const {
        ByteWriter writer;
        writer.integer(color.value_or(-1)).integer(key);
        for (std::size_t word = 0; word < taken.size(); word += 64) {
            std::uint64_t bits = 0;
            for (std::size_t bit = 0; bit < 64; ++bit) {
                bits |= std::uint64_t{taken[word + bit]} << bit;
            }
            writer.integer(bits);
        }
        return writer.take();
    }

    [[nodiscard]] static SplitRequest decode(std::vector<std::uint8_t> const& bytes) {
        ByteReader reader{bytes};
        SplitRequest request;
        auto const color = reader.integer<std::int32_t>();
        request.color = color < 0 ? std::nullopt : std::optional{color};
        request.key = reader.integer<std::int32_t>();
        for (std::size_t word = 0; word < request.taken.size(); word += 64) {
            auto const bits = reader.integer<std::uint64_t>();
            for (std::size_t bit = 0; bit < 64; ++bit) {
                request.taken[word + bit] = ((bits >> bit) & 1U) != 0;
            }
        }
        reader.end();
        return request;
    }
};
static_assert(ContextSet{}.size() % 64 == 0);

// A free context; context 0 is the transport's. Splits of different communicators begin to look at different
// places, so that they seldom want the same.
ContextId choose(ContextSet const& taken, std::uint64_t start) {
    constexpr std::size_t count = Tag::max_context;
    for (std::size_t i = 0; i < count; ++i) {
        auto const context = 1 + (start + i) % count;
        if (!taken[context]) {
            return static_cast<ContextId>(context);
        }
    }
    throw std::runtime_error{
        "there are too many communicators of this transport (" + std::to_string(count)
        + "): destroy those that are not needed any more"};
}

// Releases the context unless the caller has called use().
class Reservation {
  public:
    Reservation(std::shared_ptr<SplitState> state, ContextId context)
        : state_{std::move(state)}, context_{context}, held_{state_->reserve(context)} {}
    ~Reservation() {
        if (held_) {
            state_->release(context_, SplitState::Used::no);
        }
    }
    Reservation(Reservation const&) = delete;
    Reservation& operator=(Reservation const&) = delete;
    [[nodiscard]] bool succeeded() const noexcept { return held_; }
    [[nodiscard]] ContextId use() noexcept {
        held_ = false;
        return context_;
    }

  private:
    std::shared_ptr<SplitState> state_;
    ContextId context_;
    bool held_;
};

}  // namespace

std::shared_ptr<Communicator> split(
    std::shared_ptr<Communicator> const& parent, std::optional<std::int32_t> color, std::int32_t key,
    std::optional<std::chrono::milliseconds> timeout, std::stop_token const& stop) {
    RAPIDSMPF_EXPECTS(parent != nullptr, "split() needs a communicator", std::invalid_argument);
    SplitState::Deadline deadline;
    if (timeout) {
        deadline = std::chrono::steady_clock::now() + *timeout;
    }
    auto const* const parent_view = dynamic_cast<detail::SubCommunicator const*>(parent.get());
    auto const transport = parent_view != nullptr ? parent_view->transport() : parent;
    auto const context_of_parent = parent_view != nullptr ? parent_view->context() : ContextId{0};
    auto const state = parent->split_state();
    auto const contexts = transport->split_state();
    if (color && *color < 0) {
        color.reset();
    }

    MutexLock const turn{state->turn()};
    parent->check();
    if (auto const left = parent->first_closed()) {
        throw RankFailedError{
            *left, "", 0, "it has closed its communicator, which cannot be split without it"};
    }
    auto start = std::uint64_t{context_of_parent} * 521 + state->next_split();
    for (;; start += 37) {
        SplitRequest mine;
        mine.color = color;
        mine.key = key;
        mine.taken = contexts->taken();
        std::vector<std::tuple<std::int32_t, Rank>> group;  // key, rank in the parent
        ContextSet taken;
        auto const requests = state->gather(*parent, mine.encode(), deadline, stop);
        for (std::size_t rank = 0; rank < requests.size(); ++rank) {
            auto const request = SplitRequest::decode(requests[rank]);
            taken |= request.taken;
            if (color && request.color == color) {
                group.emplace_back(request.key, static_cast<Rank>(rank));
            }
        }
        // One context for all colours: they have no member in common.
        Reservation reservation{contexts, choose(taken, start)};
        // Meanwhile another thread may have taken it on some rank: all have to have it.
        auto const answers = state->gather(*parent, {std::uint8_t{reservation.succeeded()}}, deadline, stop);
        if (std::any_of(
                answers.begin(), answers.end(), [](auto const& answer) { return answer.at(0) == 0; })) {
            continue;
        }
        if (!color) {
            return nullptr;
        }
        std::sort(group.begin(), group.end());
        std::vector<Rank> members;
        Rank rank = -1;
        for (auto const& [member_key, parent_rank] : group) {
            if (parent_rank == parent->rank()) {
                rank = static_cast<Rank>(members.size());
            }
            members.push_back(parent_view != nullptr ? parent_view->member(parent_rank) : parent_rank);
        }
        return detail::make_communicator<detail::SubCommunicator>(
            transport, std::move(members), rank, reservation.use());
    }
}

}  // namespace rapidsmpf
