#include <rapidsmpf/streaming/message.hpp>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include <cxxabi.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf::streaming {

namespace {
std::string type_name(std::type_info const& type) {
    int status = 0;
    std::unique_ptr<char, decltype(&std::free)> name{
        abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free};
    return status == 0 ? name.get() : type.name();
}
}  // namespace

ContentDescription PayloadTraits<PackedData>::describe(PackedData const& payload) noexcept {
    auto const type = payload.data->mem_type();
    return {type, payload.data->size(), type == MemoryType::DEVICE ? Spillable::yes : Spillable::no};
}

std::size_t PayloadTraits<PackedData>::spill(PackedData& payload) {
    auto const size = payload.data->size();
    if (payload.data->mem_type() != MemoryType::DEVICE || size == 0) {
        return 0;
    }
    auto const resource = payload.data->resource();
    for (auto const type : resource->spill_targets(MemoryType::DEVICE)) {
        auto reservation = resource->reserve(type, size, AllowOverbooking::no).first;
        if (reservation.size() == size) {
            // A copy, not a move: if it fails the payload is as it was.
            payload.data = resource->copy(*payload.data, 0, size, reservation);
            return size;
        }
    }
    return 0;
}

std::size_t PayloadTraits<PackedData>::copy_cost(PackedData const& payload) noexcept {
    return payload.data->size();
}

PackedData PayloadTraits<PackedData>::copy(PackedData const& payload, MemoryReservation& reservation) {
    return PackedData{
        payload.metadata,
        payload.data->resource()->copy(*payload.data, 0, payload.data->size(), reservation)};
}

ForeignPayload ForeignPayload::copy() const {
    RAPIDSMPF_EXPECTS(
        is_copyable(), "this foreign payload says nothing about how to copy it", std::invalid_argument);
    retain_(object_.get());
    return ForeignPayload{object_.get(), object_.get_deleter(), retain_};
}

std::size_t Message::copy_cost() const {
    check_not_empty();
    return payload_->copy_cost();
}

Message Message::copy(MemoryReservation& reservation) const {
    check_not_empty();
    Message message;
    message.description_ = description_;
    message.payload_ = payload_->copy(reservation, message.description_);
    message.sequence_ = sequence_;
    return message;
}

void Message::throw_not_copyable(std::type_info const& type) {
    throw std::invalid_argument{"a message of " + type_name(type) + " cannot be copied"};
}

void Message::check_not_empty() const {
    RAPIDSMPF_EXPECTS(
        payload_ != nullptr, "the message is empty: its payload was never set or has been taken",
        std::invalid_argument);
}

std::size_t Message::spill() {
    if (payload_ == nullptr || !description_.spillable()) {
        return 0;
    }
    return payload_->spill(description_);
}

void Message::check(std::type_info const& wanted) const {
    if (payload_ == nullptr) {
        throw std::invalid_argument{
            "the message is empty: its payload was never set or has been taken, cannot get a "
            + type_name(wanted)};
    }
    if (payload_->type() != wanted) {
        throw std::invalid_argument{
            "the message holds a " + type_name(payload_->type()) + ", not a " + type_name(wanted)};
    }
}

}  // namespace rapidsmpf::streaming
