// What the ranks and the coordinator say to each other over TCP.
//
// A frame is a 32-bit little-endian size, one byte of message type, and the message. A rank opens a connection
// with Hello and waits for Welcome or Rejected. Everything that is read is checked: decoding throws FormatError
// and never reads beyond its bytes, and a frame larger than the limit is refused from its size alone.
// Knows no sockets and owns nothing; used by the client (Coordinator), the server and rrun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rapidsmpf/core/detail/token.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::bootstrap {

using Bytes = std::vector<std::uint8_t>;

inline constexpr std::uint32_t protocol_magic = 0x4e52'5652;  // "RVRN"
inline constexpr std::uint16_t protocol_version = 4;
// The largest frame of a peer that has not shown the token, and of one that has.
inline constexpr std::size_t max_hello_size = 1024;
inline constexpr std::size_t max_frame_size = std::size_t{256} << 20;
inline constexpr std::size_t max_key_size = 1024;
inline constexpr std::size_t max_value_size = std::size_t{16} << 20;
inline constexpr std::size_t max_reason_size = 4096;
inline constexpr std::size_t max_host_size = 255;

enum class MessageType : std::uint8_t {
    // rank to coordinator
    hello = 1,
    put = 2,
    get = 3,
    gather = 4,
    bye = 5,
    abort = 6,
    pong = 9,
    // node to head, see node_protocol.hpp
    rank_ended = 7,
    node_failed = 8,
    // coordinator to rank
    welcome = 32,
    rejected = 33,
    reply = 34,
    failure = 35,
    left = 36,
    ping = 41,
    // head to node
    begin = 37,
    pass_signal = 38,
    stop = 39,
    finish = 40,
};

// Whether a connection takes part as a rank's communicator, only reports something, or is a launcher on another host
// (then `rank` and `nranks` of its Hello are its number and the number of its ranks).
enum class Role : std::uint8_t { member = 0, reporter = 1, node = 2 };

struct Hello {
    Hello(
        Token const& token_, Role role_, std::int32_t rank_, std::int32_t nranks_, std::int64_t pid_,
        std::string host_)
        : token{token_}, role{role_}, rank{rank_}, nranks{nranks_}, pid{pid_}, host{std::move(host_)} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Hello decode(std::span<std::uint8_t const> payload);

    Token token;
    Role role;
    std::int32_t rank;
    std::int32_t nranks;
    std::int64_t pid;
    std::string host;
};

// The member is in: it belongs to the rank's n-th session, whose keys and gathers it shares with the n-th
// sessions of the other ranks. The coordinator sends a Ping every `ping_ms` milliseconds (0: never), which the member
// answers with a Pong.
struct Welcome {
    Welcome(std::uint32_t session_, std::uint32_t ping_ms_) : session{session_}, ping_ms{ping_ms_} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Welcome decode(std::span<std::uint8_t const> payload);

    std::uint32_t session;
    std::uint32_t ping_ms;
};

struct Rejected {
    explicit Rejected(std::string reason_) : reason{std::move(reason_)} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Rejected decode(std::span<std::uint8_t const> payload);

    std::string reason;
};

struct Put {
    Put(std::string key_, Bytes value_) : key{std::move(key_)}, value{std::move(value_)} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Put decode(std::span<std::uint8_t const> payload);

    std::string key;
    Bytes value;
};

// Answered by a Reply with the same request number, at the latest after timeout_ms (0: at once).
struct Get {
    Get(std::uint64_t request_, std::string key_, std::uint32_t timeout_ms_)
        : request{request_}, key{std::move(key_)}, timeout_ms{timeout_ms_} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Get decode(std::span<std::uint8_t const> payload);

    std::uint64_t request;
    std::string key;
    std::uint32_t timeout_ms;
};

// The value of one rank; the Reply carries those of all ranks. The n-th gathers of all ranks belong together.
struct Gather {
    Gather(std::uint64_t request_, Bytes value_, std::uint32_t timeout_ms_)
        : request{request_}, value{std::move(value_)}, timeout_ms{timeout_ms_} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Gather decode(std::span<std::uint8_t const> payload);

    std::uint64_t request;
    Bytes value;
    std::uint32_t timeout_ms;
};

struct Reply {
    enum class Status : std::uint8_t { ok = 0, timeout = 1, impossible = 2 };
    Reply(std::uint64_t request_, std::vector<Bytes> values_)
        : request{request_}, status{Status::ok}, values{std::move(values_)} {}
    Reply(std::uint64_t request_, Status status_, std::string error_)
        : request{request_}, status{status_}, error{std::move(error_)} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Reply decode(std::span<std::uint8_t const> payload);

    std::uint64_t request;
    Status status;
    std::string error;          // when not ok: what is missing
    std::vector<Bytes> values;  // when ok: one for get, one per rank for gather
};

// The rank closes this connection in good order.
struct Bye {
    [[nodiscard]] static Bytes encode();
    static void decode(std::span<std::uint8_t const> payload);
};

// Who does not answer several of them in turn is not there any more, or cannot run.
inline constexpr int pings_in_silence = 6;
inline constexpr std::string_view silent_coordinator{"the coordinator has not been heard of"};
struct Ping {
    [[nodiscard]] static Bytes encode();
    static void decode(std::span<std::uint8_t const> payload);
};
struct Pong {
    [[nodiscard]] static Bytes encode();
    static void decode(std::span<std::uint8_t const> payload);
};

// The rank gives up: itself, or another that has broken the protocol between them.
struct Abort {
    static constexpr std::int32_t myself = -1;
    explicit Abort(std::string reason_, std::int32_t culprit_ = myself)
        : culprit{culprit_}, reason{std::move(reason_)} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Abort decode(std::span<std::uint8_t const> payload);

    std::int32_t culprit;
    std::string reason;
};

// A rank died or gave up: nothing that waits for it can finish.
struct Failure {
    Failure(std::int32_t rank_, std::string host_, std::int64_t pid_, std::string reason_)
        : rank{rank_}, host{std::move(host_)}, pid{pid_}, reason{std::move(reason_)} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Failure decode(std::span<std::uint8_t const> payload);

    std::int32_t rank;
    std::string host;
    std::int64_t pid;
    std::string reason;
};

// A rank said Bye in this session.
struct Left {
    explicit Left(std::int32_t rank_) : rank{rank_} {}
    [[nodiscard]] Bytes encode() const;
    [[nodiscard]] static Left decode(std::span<std::uint8_t const> payload);

    std::int32_t rank;
};

struct Frame {
    Frame(MessageType type_, Bytes payload_) : type{type_}, payload{std::move(payload_)} {}
    MessageType type;
    Bytes payload;
};

// Splits a byte stream into frames.
class FrameBuffer {
  public:
    explicit FrameBuffer(std::size_t max_size) : max_size_{max_size} {}

    void set_max_size(std::size_t max_size) noexcept { max_size_ = max_size; }
    void append(std::span<std::uint8_t const> bytes);
    // The next whole frame. Throws FormatError when its size is zero or over the limit.
    [[nodiscard]] std::optional<Frame> next();

  private:
    std::size_t max_size_;
    Bytes bytes_;
    std::size_t consumed_{0};
};

// "rank 1", "ranks 1, 2 and 5"; at most ten ranks, then "and 7 more".
[[nodiscard]] std::string list_ranks(std::vector<std::int32_t> const& ranks);

}  // namespace rapidsmpf::bootstrap
