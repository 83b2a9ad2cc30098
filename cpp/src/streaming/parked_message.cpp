#include "streaming/parked_message.hpp"

#include <array>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/detail/tier_copier.hpp>

namespace rapidsmpf::streaming {

ParkedMessage::ParkedMessage(PackedData packed, NextUse next_use, std::weak_ptr<MoveListener> listener)
    : metadata_{std::move(packed.metadata)}, listener_{std::move(listener)} {
    data_.emplace(std::move(packed.data), next_use, listener_);
}

std::unique_ptr<ParkedMessage> ParkedMessage::park(
    Message& message, NextUse next_use, std::weak_ptr<MoveListener> listener) {
    if (message.packing() != Packing::moves) {
        return nullptr;
    }
    return std::make_unique<ParkedMessage>(message.pack(), next_use, std::move(listener));
}

std::unique_ptr<ParkedMessage> ParkedMessage::pack_below(
    Message& message, BufferResource& resource, NextUse next_use, std::weak_ptr<MoveListener> listener) {
    if (message.packing() != Packing::copies) {
        return nullptr;
    }
    std::optional<PackedData> made;
    try {
        made.emplace(message.packed_copy(resource));
    } catch (ReservationError const&) {
        return nullptr;  // not even memory to pack it in
    }
    auto& packed = *made;
    auto const type = packed.data->mem_type();
    for (auto const lower : resource.spill_targets(type)) {
        if (lower == MemoryType::DISK) {
            std::array<Buffer const*, 1> const one{packed.data.get()};
            packed.data = std::move(resource.copier().write_to_disk(one).front());
        } else {
            auto reservation = resource.reserve(lower, packed.data->size(), AllowOverbooking::no).first;
            if (reservation.size() < packed.data->size()) {
                continue;
            }
            packed.data = resource.move(std::move(packed.data), reservation);
        }
        message.drop_value();
        return std::make_unique<ParkedMessage>(std::move(packed), next_use, std::move(listener));
    }
    return nullptr;
}

bool ParkedMessage::try_restore(Message& message) {
    for (;;) {
        data_->set_next_use(SpillableBuffer::soon);
        data_->fetch(AllowOverbooking::yes);
        if (data_->try_pin() == nullptr) {
            if (data_->rests_on_disk()) {
                continue;  // it was on its way there when fetch() looked, so nothing brings it back yet
            }
            return false;
        }
        auto buffer = data_->take();
        if (buffer->mem_type() != MemoryType::DISK) {
            message.unpack(PackedData{std::move(metadata_), std::move(buffer)});
            return true;
        }
        // It was moved in that moment.
        data_.emplace(std::move(buffer), SpillableBuffer::soon, listener_);
    }
}

void ParkedMessage::prefetch() {
    data_->fetch(AllowOverbooking::no);
}

}  // namespace rapidsmpf::streaming
