#include <rapidsmpf/memory/memory_reservation.hpp>

#include <utility>

#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf {

MemoryReservation::MemoryReservation(
    std::shared_ptr<BufferResource> resource, MemoryType type, std::size_t size) noexcept
    : resource_{std::move(resource)}, type_{type}, size_{size} {}

MemoryReservation::MemoryReservation(MemoryReservation&& other) noexcept
    : resource_{std::move(other.resource_)}, type_{other.type_}, size_{std::exchange(other.size_, 0)} {}

MemoryReservation& MemoryReservation::operator=(MemoryReservation&& other) noexcept {
    if (this != &other) {
        clear();
        resource_ = std::move(other.resource_);
        type_ = other.type_;
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

MemoryReservation::~MemoryReservation() {
    clear();
}

void MemoryReservation::clear() noexcept {
    if (size_ > 0) {
        resource_->return_reserved(type_, std::exchange(size_, 0));
    }
}

}  // namespace rapidsmpf
