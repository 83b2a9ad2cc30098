// UCX tags of UcxxCommunicator, and the messages that it sends on its own account: joining, barrier, abort.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/detail/token.hpp>

namespace rapidsmpf::detail {

// The rank that takes the others in, and the rank of a process that has none yet.
inline constexpr Rank root = 0;
inline constexpr Rank no_rank = -1;

// A 64-bit UCX tag: one bit that marks control messages, our Tag, and the sender's rank.
inline constexpr std::uint64_t control_bit = std::uint64_t{1} << 63;
inline constexpr int tag_shift = 63 - Tag::bits;
inline constexpr std::uint64_t sender_mask = (std::uint64_t{1} << tag_shift) - 1;
inline constexpr std::uint64_t tag_mask = ~sender_mask;
// A sender without a rank has all bits set.
inline constexpr Rank max_ranks = static_cast<Rank>(sender_mask);

[[nodiscard]] inline std::uint64_t ucx_tag(Tag tag, Rank sender) noexcept {
    return (tag.value() << tag_shift) | (static_cast<std::uint64_t>(sender) & sender_mask);
}
[[nodiscard]] constexpr std::uint64_t ucx_control_tag(Rank sender) noexcept {
    return control_bit | (static_cast<std::uint64_t>(sender) & sender_mask);
}
[[nodiscard]] constexpr Rank sender_of(std::uint64_t ucx_tag) noexcept {
    return (ucx_tag & sender_mask) == sender_mask ? no_rank : static_cast<Rank>(ucx_tag & sender_mask);
}

// What every UCX tag of a job is combined with (by exclusive or). Who does not know the job's token cannot name a tag
// that one of its ranks waits for: UCX keeps such a message to itself, and nothing of ours ever reads it.
[[nodiscard]] inline std::uint64_t ucx_tag_key(Token const& token) noexcept {
    std::uint64_t key = 0;
    for (std::size_t i = 0; i < sizeof(key); ++i) {
        key = (key << 8) | token.bytes()[i];
    }
    return key;
}

enum class ControlKind : std::uint8_t {
    join = 1,     // to the root: let me in
    assign = 2,   // from the root: your rank
    refuse = 3,   // from the root: no
    table = 4,    // from the root: everyone's address
    arrive = 5,   // to the root: I have reached a barrier
    release = 6,  // from the root: all have
    abort = 7,    // to all: a rank gives up
};

// Throws FormatError when it is none, or empty.
[[nodiscard]] ControlKind control_kind(std::span<std::uint8_t const> message);

// The decoders expect a message of their kind and throw FormatError on anything malformed.
struct JoinMessage {
    JoinMessage(Rank nranks_, std::vector<std::uint8_t> address_)
        : nranks{nranks_}, address{std::move(address_)} {}
    // The token comes first, and is compared before anything behind it is looked at: UCX would believe any address.
    [[nodiscard]] std::vector<std::uint8_t> encode(Token const& token) const;
    [[nodiscard]] static JoinMessage decode(std::span<std::uint8_t const> message, Token const& token);
    Rank nranks;
    std::vector<std::uint8_t> address;
};

struct AssignMessage {
    AssignMessage(Rank rank_, std::vector<std::uint8_t> invitation_)
        : rank{rank_}, invitation{std::move(invitation_)} {}
    [[nodiscard]] std::vector<std::uint8_t> encode() const;
    [[nodiscard]] static AssignMessage decode(std::span<std::uint8_t const> message);
    Rank rank;
    std::vector<std::uint8_t> invitation;  // see JoinLiveness
};

struct RefuseMessage {
    explicit RefuseMessage(std::string reason_) : reason{std::move(reason_)} {}
    [[nodiscard]] std::vector<std::uint8_t> encode() const;
    [[nodiscard]] static RefuseMessage decode(std::span<std::uint8_t const> message);
    std::string reason;
};

struct TableMessage {
    explicit TableMessage(std::vector<std::vector<std::uint8_t>> addresses_)
        : addresses{std::move(addresses_)} {}
    [[nodiscard]] std::vector<std::uint8_t> encode() const;
    [[nodiscard]] static TableMessage decode(std::span<std::uint8_t const> message);
    std::vector<std::vector<std::uint8_t>> addresses;  // by rank
};

// For arrive and release: the barriers of a communicator are numbered from 1.
struct BarrierMessage {
    BarrierMessage(ControlKind kind_, std::uint64_t number_) : kind{kind_}, number{number_} {}
    [[nodiscard]] std::vector<std::uint8_t> encode() const;
    [[nodiscard]] static BarrierMessage decode(std::span<std::uint8_t const> message);
    ControlKind kind;
    std::uint64_t number;
};

struct AbortMessage {
    explicit AbortMessage(RankFailure failure_) : failure{std::move(failure_)} {}
    [[nodiscard]] std::vector<std::uint8_t> encode() const;
    [[nodiscard]] static AbortMessage decode(std::span<std::uint8_t const> message);
    RankFailure failure;
};

}  // namespace rapidsmpf::detail
