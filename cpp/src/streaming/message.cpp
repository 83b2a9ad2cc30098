#include <rapidsmpf/streaming/message.hpp>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include <cxxabi.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/table/packed.hpp>

namespace rapidsmpf::streaming {

namespace {
std::string type_name(std::type_info const& type) {
    int status = 0;
    std::unique_ptr<char, decltype(&std::free)> name{
        abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free};
    return status == 0 ? name.get() : type.name();
}
}  // namespace

namespace {

ContentDescription describe_buffer(Buffer const& buffer, std::uint64_t rows = 0) noexcept {
    auto const type = buffer.mem_type();
    return {type, buffer.size(), type == MemoryType::DISK ? Spillable::no : Spillable::yes, rows};
}

std::size_t spill_buffer(std::unique_ptr<Buffer>& buffer) {
    auto const size = buffer->size();
    if (size == 0) {
        return 0;
    }
    auto const resource = buffer->resource();
    for (auto const type : resource->spill_targets(buffer->mem_type())) {
        auto reservation = resource->reserve(type, size, AllowOverbooking::no).first;
        if (reservation.size() == size) {
            // A copy, not a move: if it fails the payload is as it was.
            buffer = resource->copy(*buffer, 0, size, reservation);
            return size;
        }
    }
    return 0;
}

}  // namespace

ContentDescription PayloadTraits<PackedData>::describe(PackedData const& payload) noexcept {
    return describe_buffer(*payload.data, packed_rows(payload.metadata));
}

std::size_t PayloadTraits<PackedData>::spill(PackedData& payload) {
    return spill_buffer(payload.data);
}

ContentDescription PayloadTraits<std::unique_ptr<Buffer>>::describe(
    std::unique_ptr<Buffer> const& payload) noexcept {
    return payload ? describe_buffer(*payload) : ContentDescription{};
}

std::size_t PayloadTraits<std::unique_ptr<Buffer>>::spill(std::unique_ptr<Buffer>& payload) {
    return payload ? spill_buffer(payload) : 0;
}

std::size_t PayloadTraits<std::unique_ptr<Buffer>>::copy_cost(
    std::unique_ptr<Buffer> const& payload) noexcept {
    return payload ? payload->size() : 0;
}

std::unique_ptr<Buffer> PayloadTraits<std::unique_ptr<Buffer>>::copy(
    std::unique_ptr<Buffer> const& payload, MemoryReservation& reservation) {
    return payload ? payload->resource()->copy(*payload, 0, payload->size(), reservation) : nullptr;
}

Packing PayloadTraits<std::unique_ptr<Buffer>>::packing(std::unique_ptr<Buffer> const& payload) noexcept {
    return payload ? Packing::moves : Packing::never;
}

PackedData PayloadTraits<std::unique_ptr<Buffer>>::pack(std::unique_ptr<Buffer>&& payload) {
    return PackedData{std::vector<std::uint8_t>(1), std::move(payload)};
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

void Message::throw_not_packed(std::type_info const& type) {
    throw std::logic_error{"a message of " + type_name(type) + " is not packed while it waits"};
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
