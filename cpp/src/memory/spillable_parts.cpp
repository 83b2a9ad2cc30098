#include <rapidsmpf/memory/spillable_parts.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "spill_registry.hpp"

namespace rapidsmpf {

SpillableParts::SpillableParts(std::unique_ptr<Buffer> buffer, std::vector<Part> parts, NextUse next_use) {
    RAPIDSMPF_EXPECTS(buffer != nullptr, "spillable parts need a buffer", std::invalid_argument);
    auto const is_inside = [size = buffer->size()](Part const& part) {
        return part.offset <= size && part.size <= size - part.offset;
    };
    RAPIDSMPF_EXPECTS(
        std::all_of(parts.begin(), parts.end(), is_inside), "a part is not in its buffer",
        std::invalid_argument);
    resource_ = buffer->resource();
    entry_ = std::make_shared<detail::SpillEntry>();
    entry_->size = buffer->size();
    entry_->held = buffer->size();
    entry_->buffer = std::move(buffer);
    entry_->next_use = next_use;
    entry_->parts = std::make_unique<detail::SpillParts>(std::move(parts));
    if (resource_->registry().add(*entry_)) {
        resource_->note_spillable();
    }
}

SpillableParts::~SpillableParts() {
    resource_->registry().drop(entry_);
}

std::unique_ptr<Buffer> SpillableParts::take(std::size_t index) {
    return resource_->registry().take_part(*entry_, index);
}

void SpillableParts::prefetch(std::size_t index) const noexcept {
    __builtin_prefetch(entry_->parts->places.data() + index);
}

}  // namespace rapidsmpf
