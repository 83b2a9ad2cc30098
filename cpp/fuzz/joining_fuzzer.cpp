// What comes first on a connection between ranks over UCX, before either knows the other: the communicator's own messages
// and the addresses of roots.
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>

#include "communicator/ucxx_address.hpp"
#include "communicator/ucxx_control.hpp"
#include "fuzzer.hpp"

namespace rapidsmpf::fuzz {

namespace {

using namespace rapidsmpf::detail;

enum class Kind : std::uint8_t { message, address };
constexpr std::uint8_t kinds = 2;

// As UCX writes it: a version, the worker's number, a transport.
Bytes const own_address{0x91, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};

Token const token{std::array<std::uint8_t, Token::size>{7, 1, 2}};

void decode_join(std::span<std::uint8_t const> message) {
    // As one that shows the token does: without it nothing behind it is read.
    auto shown = copied(message);
    std::copy(
        token.bytes().begin(),
        token.bytes().begin() + static_cast<std::ptrdiff_t>(std::min(shown.size() - 1, Token::size)),
        shown.begin() + 1);
    Bytes again;
    if (takes([&] { again = JoinMessage::decode(shown, token).encode(token); })) {
        require(again == shown, "a message says the same again");
    }
    Token const other{std::array<std::uint8_t, Token::size>{8}};
    require(
        !takes([&] { static_cast<void>(JoinMessage::decode(shown, other)); }),
        "another job's process stays out");
}

template <typename Message>
void decode(std::span<std::uint8_t const> message) {
    Bytes again;
    if (takes([&] { again = Message::decode(message).encode(); })) {
        require(again == copied(message), "a message says the same again");
    }
}

void read_control_message(std::span<std::uint8_t const> input) {
    auto const message = copied(input);
    std::optional<ControlKind> kind;
    if (!takes([&] { kind = control_kind(message); })) {
        return;
    }
    switch (*kind) {
        case ControlKind::join:
            return decode_join(message);
        case ControlKind::assign:
            return decode<AssignMessage>(message);
        case ControlKind::refuse:
            return decode<RefuseMessage>(message);
        case ControlKind::table:
            return decode<TableMessage>(message);
        case ControlKind::arrive:
        case ControlKind::release:
            return decode<BarrierMessage>(message);
        case ControlKind::abort:
            return decode<AbortMessage>(message);
    }
}

void read_address(std::span<std::uint8_t const> input) {
    // Sealed as ours are, so that more than the seal is looked at; or as it came.
    bool const seal = !input.empty() && (input[0] & 1) != 0;
    auto const bytes = input.empty() ? Bytes{} : copied(input.subspan(1));
    auto const address = seal ? seal_address(bytes, token) : bytes;
    Bytes ucx;
    if (takes<std::invalid_argument>([&] { ucx = checked_address(address, own_address).address; })) {
        require(!seal || (is_sealed(address) && ucx == bytes), "what was sealed is what comes out");
    }
}

}  // namespace

void read_input(std::span<std::uint8_t const> bytes) {
    Input input{bytes};
    if (static_cast<Kind>(input.byte() % kinds) == Kind::message) {
        read_control_message(input.rest());
    } else {
        read_address(input.rest());
    }
}

std::vector<Bytes> seeds() {
    std::vector<Bytes> all;
    for (auto const& message :
         {JoinMessage{3, own_address}.encode(token), AssignMessage{2, Bytes(100, 7)}.encode(),
          RefuseMessage{"all 3 ranks have joined already"}.encode(),
          TableMessage{{own_address, own_address, own_address}}.encode(),
          BarrierMessage{ControlKind::arrive, 1}.encode(), BarrierMessage{ControlKind::release, 1}.encode(),
          AbortMessage{RankFailure{1, "node7.cluster", 4711, "killed by signal 9"}}.encode()}) {
        all.push_back(with_kind(static_cast<std::uint8_t>(Kind::message), message));
    }
    auto const add_address = [&](std::uint8_t seal, Bytes const& address) {
        all.push_back(with_kind(static_cast<std::uint8_t>(Kind::address), with_kind(seal, address)));
    };
    add_address(0, own_address);
    add_address(1, own_address);
    add_address(0, seal_address(own_address, token));
    return all;
}

}  // namespace rapidsmpf::fuzz
