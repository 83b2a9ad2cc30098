#include "exchange/closing_state.hpp"

#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {

bool ClosingState::abandon(Final last_message, std::exception_ptr error) {
    if (stage_ != Stage::open) {
        return false;
    }
    stage_ = Stage::abandoned;
    last_message_ = std::move(last_message);
    error_ = std::move(error);
    return true;
}

bool ClosingState::cut_off(RankFailure const& failure) {
    if (stage_ == Stage::cut_off) {
        return false;
    }
    stage_ = Stage::cut_off;
    failure_ = failure;
    return true;
}

bool ClosingState::release() noexcept {
    return !std::exchange(is_released_, true);
}

void ClosingState::check(
    Communicator const& comm, std::string const& name, std::string const& rank_name) const {
    if (failure_) {
        failure_->raise();
    }
    comm.check();  // an operation that is closed hears of no failure
    RAPIDSMPF_EXPECTS(!is_shut_down_, rank_name + " has been shut down", std::logic_error);
    if (error_) {
        std::rethrow_exception(error_);
    }
    if (last_message_) {
        auto const what =
            last_message_->kind == FinalKind::abandoned ? "it abandoned " + name + ": " : std::string{};
        throw RankFailedError{last_message_->origin, "", 0, what + last_message_->reason};
    }
}

}  // namespace rapidsmpf::exchange
