#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/memory_reservation.hpp>

#include "memory/spill/arbiter.hpp"

namespace rapidsmpf {

MemoryRequest::MemoryRequest(
    std::shared_ptr<detail::Arbiter> arbiter, MemoryType type, std::size_t size, AllowOverbooking allow,
    Clock::duration timeout, std::function<void()> on_done)
    : arbiter_{std::move(arbiter)},
      type_{type},
      size_{size},
      allow_{allow},
      timeout_{timeout},
      on_done_{std::move(on_done)},
      since_{Clock::now()} {}

MemoryRequest::~MemoryRequest() {
    arbiter_->withdraw(*this);
}

bool MemoryRequest::is_done() const {
    MutexLock const lock{arbiter_->mutex_};
    return done_;
}

MemoryReservation MemoryRequest::take() {
    UniqueLock lock{arbiter_->mutex_};
    arbiter_->served_.wait(lock, [&] { return done_; });
    if (error_) {
        std::rethrow_exception(error_);
    }
    RAPIDSMPF_EXPECTS(
        reservation_.has_value(), "the reservation of a memory request is taken once", std::logic_error);
    auto reservation = std::move(*reservation_);
    reservation_.reset();
    return reservation;
}

}  // namespace rapidsmpf
