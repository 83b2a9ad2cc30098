// A rank has sent what cannot be: the error, and which rank.
#pragma once

#include <stdexcept>
#include <string>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {

class PeerError : public std::runtime_error {
  public:
    PeerError(Rank peer, std::string const& what) : std::runtime_error{what}, peer_{peer} {}
    [[nodiscard]] Rank peer() const noexcept { return peer_; }

  private:
    Rank peer_;
};

// Runs body(), which handles what `peer` has sent: a FormatError becomes a PeerError.
template <typename Body>
decltype(auto) on_behalf_of(Rank peer, Body&& body) {
    try {
        return body();
    } catch (FormatError const& error) {
        throw PeerError{peer, error.what()};
    }
}

}  // namespace rapidsmpf::exchange
