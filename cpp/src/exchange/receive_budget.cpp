#include "exchange/receive_budget.hpp"

#include <algorithm>

namespace rapidsmpf::exchange {

ReceiveBudget::Ticket ReceiveBudget::draw(std::size_t bytes) {
    MutexLock lock{mutex_};
    waiting_.insert(next_number_);
    return Ticket{*this, next_number_++, bytes};
}

std::size_t ReceiveBudget::in_flight() const {
    MutexLock lock{mutex_};
    return in_flight_;
}

std::size_t ReceiveBudget::peak() const {
    MutexLock lock{mutex_};
    return peak_;
}

std::size_t ReceiveBudget::waiting() const {
    MutexLock lock{mutex_};
    return waiting_.size();
}

ReceiveBudget::Ticket& ReceiveBudget::Ticket::operator=(Ticket&& other) noexcept {
    if (this != &other) {
        drop();
        budget_ = std::exchange(other.budget_, nullptr);
        number_ = other.number_;
        bytes_ = other.bytes_;
        granted_ = other.granted_;
    }
    return *this;
}

bool ReceiveBudget::Ticket::try_grant(std::size_t limit) {
    auto& budget = *budget_;
    MutexLock const lock{budget.mutex_};
    if (granted_) {
        return true;
    }
    bool const fits =
        budget.in_flight_ == 0 || (budget.in_flight_ <= limit && bytes_ <= limit - budget.in_flight_);
    if (*budget.waiting_.begin() != number_ || !fits) {
        return false;
    }
    budget.waiting_.erase(budget.waiting_.begin());
    budget.in_flight_ += bytes_;
    budget.peak_ = std::max(budget.peak_, budget.in_flight_);
    granted_ = true;
    return true;
}

void ReceiveBudget::Ticket::drop() noexcept {
    if (budget_ == nullptr) {
        return;
    }
    MutexLock lock{budget_->mutex_};
    if (granted_) {
        budget_->in_flight_ -= bytes_;
    } else {
        budget_->waiting_.erase(number_);
    }
    budget_ = nullptr;
}

}  // namespace rapidsmpf::exchange
