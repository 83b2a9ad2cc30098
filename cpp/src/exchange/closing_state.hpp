// Whether an operation goes on, and if not, why: what users are told, and what peers are.
//
// Not thread-safe: the mutex of OperationState guards it.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include <rapidsmpf/communicator/communicator.hpp>

#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

class ClosingState {
  public:
    enum class Stage : std::uint8_t {
        open,       // goes on, or is finished
        abandoned,  // nothing comes of it; last messages say so
        cut_off,    // the communicator has failed or goes: no messages any more
    };
    [[nodiscard]] Stage stage() const noexcept { return stage_; }

    // Nothing comes of the operation, for the reason that its last messages give; `error` is why, if it was an exception
    // here. Returns false if that was settled before.
    bool abandon(Final last_message, std::exception_ptr error);
    bool cut_off(RankFailure const& failure);
    // Its user wants nothing more of it.
    void shut_down() noexcept { is_shut_down_ = true; }
    [[nodiscard]] bool is_shut_down() const noexcept { return is_shut_down_; }
    // Its handle goes. Returns false if it went before.
    bool release() noexcept;
    [[nodiscard]] bool is_released() const noexcept { return is_released_; }

    // Of what was abandoned.
    [[nodiscard]] std::optional<Final> const& last_message() const noexcept { return last_message_; }
    // Of the communicator.
    [[nodiscard]] std::optional<RankFailure> const& failure() const noexcept { return failure_; }
    // Whether results are gone, complete or not.
    [[nodiscard]] bool is_discarded() const noexcept { return last_message_ || is_shut_down_; }
    // Whether nothing that a user may wait for will come.
    [[nodiscard]] bool ends_waits() const noexcept { return failure_ || is_discarded(); }

    // Throws what users of the operation get to hear; `name` and `rank_name` are what it is called, the latter with its rank.
    void check(Communicator const& comm, std::string const& name, std::string const& rank_name) const;

  private:
    Stage stage_{Stage::open};
    std::optional<Final> last_message_;
    std::exception_ptr error_;
    std::optional<RankFailure> failure_;
    bool is_shut_down_{false};
    bool is_released_{false};
};

}  // namespace rapidsmpf::exchange
