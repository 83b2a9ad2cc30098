#include <rapidsmpf/memory/detail/spillable_parts.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/detail/prefetch.hpp>
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
    where_ = buffer.get();
    entry_ = std::make_shared<detail::SpillEntry>();
    entry_->size = buffer->size();
    entry_->held = buffer->size();
    entry_->buffer = std::move(buffer);
    entry_->next_use = next_use;
    entry_->parts = std::make_unique<detail::SpillParts>(parts);
    if (resource_->registry().add(*entry_)) {
        resource_->note_spillable();
    }
}

SpillableParts::~SpillableParts() {
    resource_->registry().drop(entry_);
}

std::unique_ptr<Buffer> SpillableParts::take(std::size_t index) {
    Wanted const wanted{this, index};
    return std::move(take_all({&wanted, 1}).front());
}

std::vector<std::unique_ptr<Buffer>> SpillableParts::take_all(std::span<Wanted const> wanted) {
    if (wanted.empty()) {
        return {};
    }
    std::vector<detail::SpillRegistry::TakenPart> parts;
    parts.reserve(wanted.size());
    auto const& resource = wanted.front().of->resource_;
    for (auto const& [of, index] : wanted) {
        RAPIDSMPF_EXPECTS(of->resource_ == resource, "parts of several buffer resources", std::logic_error);
        parts.push_back({of->entry_.get(), index});
    }
    return resource->registry().take_parts(parts);
}

void SpillableParts::prefetch_far() const noexcept {
    constexpr std::size_t line = 64;
    auto const* const entry = reinterpret_cast<std::byte const*>(entry_.get());
    prefetch_to_write(entry);
    prefetch_to_write(entry + line);
}

void SpillableParts::prefetch_near(std::size_t index) const noexcept {
    prefetch_to_write(where_);
    prefetch_to_write(entry_->parts->ranges.data() + index);
}

}  // namespace rapidsmpf
