#include <rapidsmpf/streaming/message.hpp>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include <cxxabi.h>

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
