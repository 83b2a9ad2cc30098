#include <rapidsmpf/memory/detail/spillable_parts.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

#include "memory/spill/spill_registry.hpp"

namespace rapidsmpf {

SpillableParts::SpillableParts(
    std::unique_ptr<Buffer> buffer, std::vector<Part> const& parts, NextUse next_use) {
    RAPIDSMPF_EXPECTS(buffer != nullptr, "spillable parts need a buffer", std::invalid_argument);
    auto const is_inside = [size = buffer->size()](Part const& part) {
        return part.offset <= size && part.size <= size - part.offset;
    };
    RAPIDSMPF_EXPECTS(
        std::all_of(parts.begin(), parts.end(), is_inside), "a part is not in its buffer",
        std::invalid_argument);
    resource_ = buffer->resource();
    buffer_ = buffer.get();
    entry_ = std::make_shared<detail::SpillEntry>();
    entry_->size = buffer->size();
    entry_->held = buffer->size();
    entry_->buffer = std::move(buffer);
    entry_->next_use = next_use;
    entry_->parts.reserve(parts.size());
    for (auto const& part : parts) {
        entry_->parts.push_back({part.offset, part.size, nullptr});
    }
    if (resource_->registry().add(*entry_)) {
        resource_->note_spillable();
    }
}

SpillableParts::~SpillableParts() {
    resource_->registry().drop(entry_);
}

std::unique_ptr<Buffer> SpillableParts::take(std::size_t index) {
    auto const wanted = handle(index);
    return std::move(take_all({&wanted, 1}).front());
}

SpillableParts::PartHandle SpillableParts::handle(std::size_t index) const {
    PartHandle handle;
    handle.registry_ = &resource_->registry();
    handle.entry_ = entry_.get();
    handle.part_ = &entry_->parts.at(index);
    handle.buffer_ = buffer_;
    return handle;
}

std::vector<std::unique_ptr<Buffer>> SpillableParts::take_all(std::span<PartHandle const> wanted) {
    if (wanted.empty()) {
        return {};
    }
    auto* const registry = wanted.front().registry_;
    auto const is_elsewhere = [&](PartHandle const& each) { return each.registry_ != registry; };
    RAPIDSMPF_EXPECTS(
        std::none_of(wanted.begin(), wanted.end(), is_elsewhere), "parts of several buffer resources",
        std::logic_error);
    return registry->take_parts(wanted);
}

}  // namespace rapidsmpf
