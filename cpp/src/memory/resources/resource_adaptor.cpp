#include <rapidsmpf/memory/resource_adaptor.hpp>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

namespace {

constexpr auto relaxed = std::memory_order_relaxed;

void raise_to(std::atomic<std::int64_t>& peak, std::int64_t value) noexcept {
    auto seen = peak.load(relaxed);
    while (seen < value && !peak.compare_exchange_weak(seen, value, relaxed)) {
    }
}

std::size_t index_of(AllocType type) noexcept {
    return static_cast<std::size_t>(type);
}

}  // namespace

void RmmResourceAdaptor::Level::add(std::int64_t bytes) noexcept {
    raise_to(window_peak_, current_.fetch_add(bytes, relaxed) + bytes);
}

std::int64_t RmmResourceAdaptor::Level::peak() const noexcept {
    return std::max(window_peak_.load(relaxed), past_peak_.load(relaxed));
}

std::int64_t RmmResourceAdaptor::Level::begin_window() noexcept {
    auto const peak = window_peak_.exchange(current(), relaxed);
    raise_to(past_peak_, peak);
    raise_to(window_peak_, current());  // what was added since is in the new window
    return peak;
}

RmmResourceAdaptor::RmmResourceAdaptor(
    std::shared_ptr<MemoryResource> upstream, std::shared_ptr<MemoryResource> fallback)
    : upstream_{std::move(upstream)}, fallback_{std::move(fallback)} {
    RAPIDSMPF_EXPECTS(
        upstream_ != nullptr, "a resource adaptor needs an upstream resource", std::invalid_argument);
}

RmmResourceAdaptor::~RmmResourceAdaptor() = default;

std::size_t RmmResourceAdaptor::shard_of_thread() noexcept {
    return std::hash<std::thread::id>{}(std::this_thread::get_id()) % shards;
}

RmmResourceAdaptor::Blocks& RmmResourceAdaptor::blocks_of(void const* pointer) noexcept {
    // Blocks are aligned, so their low bits say nothing.
    auto const address = reinterpret_cast<std::uintptr_t>(pointer) / Device::alignment;
    return blocks_[(address * 0x9E37'79B9'7F4A'7C15U >> 32U) % shards];
}

bool RmmResourceAdaptor::is_host_accessible() const noexcept {
    return upstream_->is_host_accessible() && (!fallback_ || fallback_->is_host_accessible());
}

bool RmmResourceAdaptor::is_device_accessible() const noexcept {
    return upstream_->is_device_accessible() && (!fallback_ || fallback_->is_device_accessible());
}

void* RmmResourceAdaptor::allocate(std::size_t bytes, Stream stream) {
    void* pointer{nullptr};
    auto type = AllocType::PRIMARY;
    try {
        pointer = upstream_->allocate(bytes, stream);
    } catch (OutOfMemory const& first) {
        if (!fallback_) {
            throw;
        }
        try {
            pointer = fallback_->allocate(bytes, stream);
        } catch (OutOfMemory const& second) {
            throw OutOfMemory{std::string{first.what()} + "; the fallback: " + second.what()};
        }
        type = AllocType::FALLBACK;
    }
    try {
        record(pointer, bytes, type);
    } catch (...) {
        (type == AllocType::PRIMARY ? upstream_ : fallback_)->deallocate(pointer, bytes, stream);
        throw;
    }
    return pointer;
}

void RmmResourceAdaptor::record(void* pointer, std::size_t bytes, AllocType type) {
    auto const size = static_cast<std::int64_t>(bytes);
    auto const shard = shard_of_thread();
    auto scope = innermost_scope(shard);
    // What can throw comes first, so that nothing is counted that the caller does not get.
    if ((scope || type == AllocType::FALLBACK) && pointer != nullptr) {
        auto& blocks = blocks_of(pointer);
        MutexLock lock{blocks.mutex};
        blocks.by_address.insert_or_assign(pointer, Block{type, scope});
        remembered_.fetch_add(1, relaxed);
    }
    for (auto* outer = scope.get(); outer != nullptr; outer = outer->parent.get()) {
        MutexLock lock{outer->mutex};
        outer->record.record_allocation(type, size);
    }
    auto& totals = totals_[shard].of[index_of(type)];
    totals.allocations.fetch_add(1, relaxed);
    totals.bytes.fetch_add(size, relaxed);
    all_.add(size);
    if (fallback_) {
        levels_[index_of(type)].add(size);
    }
}

void RmmResourceAdaptor::deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept {
    auto const size = static_cast<std::int64_t>(bytes);
    // Forgotten first: as soon as this thread has released it, another may get the same address.
    auto const block = forget(pointer);
    (block.type == AllocType::PRIMARY ? upstream_ : fallback_)->deallocate(pointer, bytes, stream);
    for (auto* scope = block.scope.get(); scope != nullptr; scope = scope->parent.get()) {
        MutexLock lock{scope->mutex};
        if (scope->open) {
            scope->record.record_deallocation(block.type, size);
        }
    }
    totals_[shard_of_thread()].of[index_of(block.type)].deallocations.fetch_add(1, std::memory_order_release);
    all_.subtract(size);
    if (fallback_) {
        levels_[index_of(block.type)].subtract(size);
    }
}

RmmResourceAdaptor::Block RmmResourceAdaptor::forget(void* pointer) noexcept {
    Block block{AllocType::PRIMARY, nullptr};
    // The block was handed to this thread after it was allocated, so its own entry is seen here.
    if (pointer == nullptr || remembered_.load(relaxed) == 0) {
        return block;
    }
    auto& blocks = blocks_of(pointer);
    MutexLock lock{blocks.mutex};
    if (auto const entry = blocks.by_address.find(pointer); entry != blocks.by_address.end()) {
        block = std::move(entry->second);
        blocks.by_address.erase(entry);
        remembered_.fetch_sub(1, relaxed);
    }
    return block;
}

std::int64_t RmmResourceAdaptor::current_allocated() const noexcept {
    return all_.current();
}

ScopedMemoryRecord RmmResourceAdaptor::get_main_record() const noexcept {
    ScopedMemoryRecord record;
    auto& both = record.of(AllocType::ALL);
    for (auto const type : {AllocType::PRIMARY, AllocType::FALLBACK}) {
        auto& tally = record.of(type);
        // All deallocations first: one that is counted then has its allocation counted too, whose thread may
        // have been another.
        for (auto const& totals : totals_) {
            tally.live -= totals.of[index_of(type)].deallocations.load(std::memory_order_acquire);
        }
        for (auto const& totals : totals_) {
            tally.allocations += totals.of[index_of(type)].allocations.load(relaxed);
            tally.total += totals.of[index_of(type)].bytes.load(relaxed);
        }
        tally.live += tally.allocations;
        both.live += tally.live;
        both.allocations += tally.allocations;
        both.total += tally.total;
    }
    both.current = all_.current();
    both.peak = all_.peak();
    for (auto const type : {AllocType::PRIMARY, AllocType::FALLBACK}) {
        auto const& level = fallback_ ? levels_[index_of(type)] : all_;
        if (fallback_ || type == AllocType::PRIMARY) {
            record.of(type).current = level.current();
            record.of(type).peak = level.peak();
        }
    }
    return record;
}

std::shared_ptr<RmmResourceAdaptor::Scope> RmmResourceAdaptor::innermost_scope(std::size_t shard) {
    auto& scopes = scopes_[shard];
    if (scopes.open.load(relaxed) == 0) {  // this thread sees the scopes that it has opened itself
        return nullptr;
    }
    MutexLock lock{scopes.mutex};
    auto const entry = scopes.innermost.find(std::this_thread::get_id());
    return entry == scopes.innermost.end() ? nullptr : entry->second;
}

void RmmResourceAdaptor::begin_window_locked() noexcept {
    auto const peak = all_.begin_window();
    for (auto* const scope : open_scopes_) {
        scope->global_peak = std::max(scope->global_peak, peak);
    }
}

void RmmResourceAdaptor::begin_scoped_memory_record() {
    auto& scopes = scopes_[shard_of_thread()];
    MutexLock lock{scopes.mutex};
    auto& innermost = scopes.innermost[std::this_thread::get_id()];  // null if it has none yet
    auto scope = std::make_shared<Scope>(innermost);
    {
        MutexLock windows_lock{windows_mutex_};
        open_scopes_.push_back(scope.get());
        begin_window_locked();
        scope->global_peak = 0;  // the window that has just ended was before it
    }
    innermost = std::move(scope);
    scopes.open.fetch_add(1, relaxed);
}

ScopeMeasurement RmmResourceAdaptor::end_scope() {
    auto& scopes = scopes_[shard_of_thread()];
    MutexLock lock{scopes.mutex};
    auto const entry = scopes.innermost.find(std::this_thread::get_id());
    RAPIDSMPF_EXPECTS(
        entry != scopes.innermost.end() && entry->second != nullptr,
        "this thread has no scope to end: scopes end in the thread that began them", std::logic_error);
    auto const scope = entry->second;
    if (scope->parent) {
        entry->second = scope->parent;
    } else {
        scopes.innermost.erase(entry);
    }
    scopes.open.fetch_sub(1, relaxed);
    {
        MutexLock windows_lock{windows_mutex_};
        begin_window_locked();
        open_scopes_.erase(std::find(open_scopes_.begin(), open_scopes_.end(), scope.get()));
    }
    MutexLock scope_lock{scope->mutex};
    scope->open = false;
    return {scope->record, scope->global_peak};
}

}  // namespace rapidsmpf
