#include "memory/spill/spill_registry.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/detail/prefetch.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/detail/tier_copier.hpp>
#include <rapidsmpf/memory/disk_space.hpp>

namespace rapidsmpf::detail {

void SpillRegistry::list(SpillEntry& entry) {
    if (entry.pins == 0 && !entry.awaited && entry.held > 0 && entry.buffer->mem_type() != MemoryType::DISK) {
        entry.home = entry.buffer->mem_type();
        auto& home = tier(entry.home);
        home.victims.insert(entry);
        home.holdings.spillable += static_cast<std::int64_t>(entry.held);
        entry.listed = true;
    }
}

void SpillRegistry::unlist(SpillEntry& entry) {
    if (entry.listed) {
        auto& home = tier(entry.home);
        home.victims.erase(entry);
        home.holdings.spillable -= static_cast<std::int64_t>(entry.held);
        entry.listed = false;
    }
}

bool SpillRegistry::add(SpillEntry& entry) {
    MutexLock const lock{mutex_};
    bool const first = tier(entry.buffer->mem_type()).victims.empty();
    list(entry);
    return first && entry.listed;
}

void SpillRegistry::drop(EntryPtr const& entry) {
    std::unique_ptr<Buffer> buffer;
    std::unique_ptr<Buffer> lower;
    std::vector<SpillPart> parts;
    MutexLock const lock{mutex_};  // unlocked before the buffers go: they were declared first
    entry->dropped = true;
    if (!entry->moving) {
        parts = std::move(entry->parts);
    }
    if (entry->buffer && !entry->moving && entry->pins == 0) {
        unlist(*entry);
        buffer = std::move(entry->buffer);
        lower = std::move(entry->lower);
    }
}

void SpillRegistry::set_next_use(SpillEntry& entry, SpillableBuffer::NextUse next_use) {
    MutexLock const lock{mutex_};
    bool const was_listed = entry.listed;
    unlist(entry);
    entry.next_use = next_use;
    if (was_listed) {
        list(entry);
    }
}

MemoryType SpillRegistry::mem_type(SpillEntry const& entry) const {
    MutexLock const lock{mutex_};
    RAPIDSMPF_EXPECTS(entry.buffer != nullptr, "the buffer has been taken", std::logic_error);
    return entry.buffer->mem_type();
}

bool SpillRegistry::try_pin(SpillEntry& entry) {
    MutexLock const lock{mutex_};
    if (entry.error) {
        std::rethrow_exception(entry.error);
    }
    RAPIDSMPF_EXPECTS(entry.buffer != nullptr, "the buffer has been taken", std::logic_error);
    if (entry.moving || entry.buffer->mem_type() == MemoryType::DISK) {
        entry.refused = true;
        return false;
    }
    unlist(entry);
    if (entry.pins++ == 0) {
        tier(entry.buffer->mem_type()).holdings.pinned += static_cast<std::int64_t>(entry.size);
    }
    return true;
}

void SpillRegistry::unpin(SpillEntry& entry) noexcept {
    std::unique_ptr<Buffer> buffer;
    std::unique_ptr<Buffer> lower;
    MutexLock const lock{mutex_};
    if (--entry.pins > 0) {
        return;
    }
    tier(entry.buffer->mem_type()).holdings.pinned -= static_cast<std::int64_t>(entry.size);
    if (entry.dropped) {
        buffer = std::move(entry.buffer);
        lower = std::move(entry.lower);
    } else {
        list(entry);
    }
}

std::unique_ptr<Buffer> SpillRegistry::take(SpillEntry& entry) {
    std::unique_ptr<Buffer> lower;
    UniqueLock lock{mutex_};
    moved_.wait(lock, [&] { return !entry.moving; });
    RAPIDSMPF_EXPECTS(entry.buffer != nullptr, "the buffer has been taken", std::logic_error);
    RAPIDSMPF_EXPECTS(
        entry.pins == 0, "the buffer cannot be taken while somebody reads it", std::logic_error);
    unlist(entry);
    lower = std::move(entry.lower);
    auto buffer = std::move(entry.buffer);
    lock.unlock();
    return buffer;
}

std::vector<std::unique_ptr<Buffer>> SpillRegistry::take_parts(
    std::span<SpillableParts::PartHandle const> wanted) {
    constexpr std::size_t line = 64;
    // They have lain here for long: all that is read of them is loaded at once, not by a walk for each.
    for (auto const& each : wanted) {
        auto const* const entry = reinterpret_cast<std::byte const*>(each.entry_);
        prefetch_to_write(entry);
        prefetch_to_write(entry + line);
        prefetch_to_write(each.part_);
        prefetch_to_write(each.buffer_);
    }
    std::vector<std::unique_ptr<Buffer>> taken;
    taken.reserve(wanted.size());
    UniqueLock lock{mutex_};
    for (auto const& each : wanted) {
        if (each.entry_->buffer) {
            prefetch_owner(*each.entry_->buffer);
        }
    }
    for (auto const& each : wanted) {
        taken.push_back(take_part(lock, *each.entry_, *each.part_));
    }
    return taken;
}

std::unique_ptr<Buffer> SpillRegistry::take_part(UniqueLock& lock, SpillEntry& entry, SpillPart& part) {
    moved_.wait(lock, [&] { return !entry.moving; });
    RAPIDSMPF_EXPECTS(!part.taken, "the part has been taken", std::logic_error);
    part.taken = true;
    if (part.stored) {
        return std::move(part.stored);
    }
    auto bytes = entry.buffer->split_off(part.offset, part.size);
    entry.held -= part.size;
    if (entry.listed) {
        tier(entry.home).holdings.spillable -= static_cast<std::int64_t>(part.size);
        if (entry.held == 0) {
            unlist(entry);
        }
    }
    return bytes;
}

void SpillRegistry::wait_while_moving(SpillEntry const& entry) {
    UniqueLock lock{mutex_};
    moved_.wait(lock, [&] { return !entry.moving; });
}

bool SpillRegistry::is_at_rest_on_disk(SpillEntry const& entry) noexcept {
    return entry.buffer && !entry.moving && entry.buffer->mem_type() == MemoryType::DISK;
}

bool SpillRegistry::is_on_disk(SpillEntry const& entry) const {
    MutexLock const lock{mutex_};
    return is_at_rest_on_disk(entry);
}

bool SpillRegistry::rests_on_disk(SpillEntry& entry) {
    MutexLock const lock{mutex_};
    if (!is_at_rest_on_disk(entry)) {
        return false;
    }
    entry.refused = false;
    return true;
}

void SpillRegistry::fetch(std::vector<std::pair<EntryPtr, MemoryReservation>> wanted, BufferResource& br) {
    std::vector<TierCopier::ReadBack> reads;
    reads.reserve(wanted.size());
    for (auto& [entry, memory] : wanted) {
        // The resource is kept alive until the entry is done with.
        auto done = [this, entry, resource = br.shared_from_this()](
                        std::unique_ptr<Buffer> fetched, std::exception_ptr error) {
            finish_fetch(entry, std::move(fetched), std::move(error));
        };
        reads.push_back({nullptr, std::move(memory), std::move(done)});
    }
    {
        MutexLock const lock{mutex_};
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            auto& entry = *wanted[i].first;
            if (is_at_rest_on_disk(entry)) {
                entry.moving = true;
                entry.error = nullptr;
                reads[i].buffer = entry.buffer.get();  // no other thread replaces it while it is moving
            }
        }
    }
    std::erase_if(reads, [](auto const& read) { return read.buffer == nullptr; });
    br.copier().read_back(std::move(reads));
}

void SpillRegistry::await(SpillEntry& entry) {
    MutexLock const lock{mutex_};
    entry.awaited = true;
    unlist(entry);
}

void SpillRegistry::end_move(SpillEntry& entry, std::vector<std::shared_ptr<MoveListener>>& listeners) {
    entry.moving = false;
    if (std::exchange(entry.refused, false) && !entry.dropped) {
        if (auto listener = entry.listener.lock()) {
            listeners.push_back(std::move(listener));
        }
    }
}

void SpillRegistry::finish_fetch(
    EntryPtr const& entry, std::unique_ptr<Buffer> fetched, std::exception_ptr error) {
    std::vector<std::shared_ptr<MoveListener>> listeners;
    std::unique_ptr<Buffer> buffer;
    std::unique_ptr<Buffer> lower;
    {
        MutexLock const lock{mutex_};
        entry->error = std::move(error);
        if (fetched) {
            entry->lower = std::exchange(entry->buffer, std::move(fetched));
        }
        end_move(*entry, listeners);
        if (entry->dropped) {
            buffer = std::move(entry->buffer);
            lower = std::move(entry->lower);
        } else {
            list(*entry);
        }
    }
    moved_.notify_all();
    for (auto const& listener : listeners) {
        listener->moved();
    }
}

std::vector<SpillRegistry::EntryPtr> SpillRegistry::choose(MemoryType type, std::size_t amount) {
    std::vector<EntryPtr> chosen;
    MutexLock const lock{mutex_};
    auto& home = tier(type);
    for (std::size_t bytes = 0; bytes < amount && !home.victims.empty();) {
        auto& entry = home.victims.first();
        unlist(entry);
        entry.moving = true;
        bytes += entry.held;
        home.holdings.moving += static_cast<std::int64_t>(entry.held);
        chosen.push_back(entry.shared_from_this());
    }
    return chosen;
}

bool SpillRegistry::Move::has_all() const noexcept {
    return copy != nullptr
           || (!stored.empty() && std::none_of(stored.begin(), stored.end(), [](auto const& part) {
                  return part == nullptr;
              }));
}

void SpillRegistry::copy_down(
    BufferResource& br, MemoryType type, std::vector<EntryPtr> const& victims, std::vector<Move>& moves) {
    for (auto const target : br.spill_targets(type)) {
        std::vector<Buffer const*> sources;
        std::vector<std::unique_ptr<Buffer>*> copies;
        for (std::size_t i = 0; i < victims.size(); ++i) {
            auto const& entry = *victims[i];
            auto& move = moves[i];
            if (entry.lower || move.has_all()) {
                continue;
            }
            if (entry.parts.empty() || target != MemoryType::DISK) {
                sources.push_back(entry.buffer.get());
                copies.push_back(&move.copy);
                continue;
            }
            for (auto const& part : entry.parts) {
                if (!part.taken) {
                    move.views.push_back(entry.buffer->view(part.offset, part.size));
                }
            }
            move.stored.resize(move.views.size());
            for (std::size_t k = 0; k < move.views.size(); ++k) {
                sources.push_back(move.views[k].get());
                copies.push_back(&move.stored[k]);
            }
        }
        if (sources.empty()) {
            continue;
        }
        auto below = target == MemoryType::DISK ? br.copier().write_to_disk(sources)
                                                : br.copier().copy_while_there_is_room(sources, target);
        for (std::size_t k = 0; k < copies.size(); ++k) {
            *copies[k] = std::move(below[k]);
        }
    }
}

std::unique_ptr<Buffer> SpillRegistry::replace(SpillEntry& entry, Move& move) {
    if (entry.dropped) {
        return std::move(entry.buffer);
    }
    if (entry.lower) {
        return std::exchange(entry.buffer, std::move(entry.lower));
    }
    if (!move.has_all()) {
        return nullptr;
    }
    if (move.copy) {
        return std::exchange(entry.buffer, std::move(move.copy));
    }
    entry.held = 0;
    auto next = move.stored.begin();
    for (auto& part : entry.parts) {
        if (!part.taken) {
            part.stored = std::move(*next++);
        }
    }
    return std::move(entry.buffer);
}

std::uint64_t SpillRegistry::bytes_spilled(BufferResource const& br) noexcept {
    return br.registry_->bytes_spilled_.load(std::memory_order_relaxed);
}

std::size_t SpillRegistry::spill(BufferResource& br, MemoryType type, std::size_t amount) {
    auto const victims = choose(type, amount);
    if (victims.empty()) {
        return 0;
    }
    std::vector<Move> moves(victims.size());
    std::exception_ptr error;
    try {
        copy_down(br, type, victims, moves);
    } catch (...) {
        error = std::current_exception();
    }
    std::size_t freed = 0;
    std::vector<std::unique_ptr<Buffer>> released;
    std::vector<std::vector<SpillPart>> released_parts;
    std::vector<std::shared_ptr<MoveListener>> listeners;
    {
        MutexLock const lock{mutex_};
        auto& home = tier(type);
        for (std::size_t i = 0; i < victims.size(); ++i) {
            auto& entry = *victims[i];
            auto const held = entry.held;
            home.holdings.moving -= static_cast<std::int64_t>(held);
            if (auto moved = replace(entry, moves[i])) {
                released.push_back(std::move(moved));
                freed += held;
            }
            end_move(entry, listeners);
            if (entry.dropped) {
                released.push_back(std::move(entry.buffer));
                released_parts.push_back(std::move(entry.parts));
            } else {
                list(entry);
            }
        }
    }
    released.clear();
    released_parts.clear();
    moved_.notify_all();
    for (auto const& listener : listeners) {
        listener->moved();
    }
    if (error && freed == 0) {
        std::rethrow_exception(error);
    }
    bytes_spilled_.fetch_add(freed, std::memory_order_relaxed);
    return freed;
}

SpillRegistry::Holdings SpillRegistry::holdings(MemoryType type) const {
    MutexLock const lock{mutex_};
    return tier(type).holdings;
}

bool SpillRegistry::has_victims(MemoryType type) const {
    MutexLock const lock{mutex_};
    return !tier(type).victims.empty();
}

}  // namespace rapidsmpf::detail
