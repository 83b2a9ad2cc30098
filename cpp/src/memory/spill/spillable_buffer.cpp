#include <rapidsmpf/memory/spillable_buffer.hpp>

#include <stdexcept>
#include <utility>
#include <vector>

#include <rapidsmpf/core/detail/prefetch.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "memory/spill/spill_registry.hpp"

namespace rapidsmpf {

SpillableBuffer::SpillableBuffer(
    std::unique_ptr<Buffer> buffer, NextUse next_use, std::weak_ptr<MoveListener> listener) {
    RAPIDSMPF_EXPECTS(buffer != nullptr, "a spillable buffer needs a buffer", std::invalid_argument);
    resource_ = buffer->resource();
    entry_ = std::make_shared<detail::SpillEntry>();
    entry_->size = buffer->size();
    entry_->held = buffer->size();
    entry_->buffer = std::move(buffer);
    entry_->next_use = next_use;
    entry_->listener = std::move(listener);
    if (resource_->registry().add(*entry_)) {
        resource_->note_spillable();
    }
}

SpillableBuffer::~SpillableBuffer() {
    resource_->registry().drop(entry_);
}

std::size_t SpillableBuffer::size() const noexcept {
    return entry_->size;
}

MemoryType SpillableBuffer::mem_type() const {
    return resource_->registry().mem_type(*entry_);
}

void SpillableBuffer::set_next_use(NextUse next_use) {
    resource_->registry().set_next_use(*entry_, next_use);
}

void SpillableBuffer::prefetch() const noexcept {
    auto const* const entry = reinterpret_cast<std::byte const*>(entry_.get());
    constexpr std::size_t line = 64;
    for (std::size_t at = 0; at < sizeof(detail::SpillEntry); at += line) {
        prefetch_to_write(entry + at);
    }
}

std::shared_ptr<Buffer const> SpillableBuffer::pinned() {
    // The resource is named before the entry: it must outlive what unpinning touches.
    return {entry_->buffer.get(), [resource = resource_, entry = entry_](Buffer const* /*buffer*/) {
                resource->registry().unpin(*entry);
            }};
}

std::shared_ptr<Buffer const> SpillableBuffer::try_pin() {
    return resource_->registry().try_pin(*entry_) ? pinned() : nullptr;
}

bool SpillableBuffer::rests_on_disk() {
    return resource_->registry().rests_on_disk(*entry_);
}

std::shared_ptr<Buffer const> SpillableBuffer::pin() {
    auto& registry = resource_->registry();
    for (;;) {
        registry.wait_while_moving(*entry_);
        if (registry.is_on_disk(*entry_)) {
            auto memory =
                resource_->reserve_or_wait(resource_->type_to_read_into(), size(), AllowOverbooking::yes);
            std::vector<std::pair<std::shared_ptr<detail::SpillEntry>, MemoryReservation>> wanted;
            wanted.emplace_back(entry_, std::move(memory));
            registry.fetch(std::move(wanted), *resource_);
            registry.wait_while_moving(*entry_);
        }
        if (registry.try_pin(*entry_)) {
            return pinned();
        }
    }
}

void SpillableBuffer::fetch(AllowOverbooking allow) {
    auto* const self = this;
    fetch_all({&self, 1}, allow);
}

void SpillableBuffer::fetch_all(std::span<SpillableBuffer* const> buffers, AllowOverbooking allow) {
    std::vector<std::pair<std::shared_ptr<detail::SpillEntry>, MemoryReservation>> wanted;
    for (auto const* const each : buffers) {
        auto& resource = *each->resource_;
        if (resource.registry().is_on_disk(*each->entry_)) {
            auto memory = resource.reserve(resource.type_to_read_into(), each->size(), allow).first;
            if (memory.size() < each->size()) {
                break;
            }
            wanted.emplace_back(each->entry_, std::move(memory));
        }
    }
    if (!wanted.empty()) {
        auto& resource = *buffers.front()->resource_;
        resource.registry().fetch(std::move(wanted), resource);
    }
}

void SpillableBuffer::keep_to_take() {
    resource_->registry().await(*entry_);
}

std::unique_ptr<Buffer> SpillableBuffer::take() {
    return resource_->registry().take(*entry_);
}

}  // namespace rapidsmpf
