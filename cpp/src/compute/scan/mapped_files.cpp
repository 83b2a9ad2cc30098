#include "compute/scan/mapped_files.hpp"

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::compute {

// A range of whole pages of a mapping that was registered, or is about to be, in one call.
struct MappedFiles::Entry {
    enum class Phase : std::uint8_t { waiting, registered, refused };

    Mapping* mapping{nullptr};
    std::uint64_t begin{0};
    std::uint64_t end{0};
    Phase phase{Phase::waiting};
    std::size_t leases{0};
    std::list<Entry*>::iterator idle;  // if there is no lease and it is registered
};

struct MappedFiles::Mapping {
    std::string path;
    FileVersion version;
    char* address{nullptr};
    std::size_t bytes{0};                                     // whole pages
    std::map<std::uint64_t, std::unique_ptr<Entry>> entries;  // by where they begin
    std::size_t leases{0};                                    // taken and not released
    bool stale{false};                                        // the file has changed: no read takes it again
    bool refused{false};                                      // registering failed: it is not tried again
};

struct MappedFiles::State {
    State(ScanSettings const& s, std::unique_ptr<PageRegistrar> r)
        : settings{s}, registrar{std::move(r)}, limit{s.registered_limit} {}

    ScanSettings const settings;
    std::unique_ptr<PageRegistrar> const registrar;
    std::size_t const page{static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))};

    mutable Mutex mutex;
    ConditionVariable work;     // there is something to register, or it ends
    ConditionVariable settled;  // an entry is registered, or refused
    // It guards what mappings and entries hold, too.
    std::map<std::string, std::shared_ptr<Mapping>> mappings RAPIDSMPF_GUARDED_BY(mutex);
    std::list<Entry*> idle RAPIDSMPF_GUARDED_BY(mutex);  // least recently used first
    std::deque<Entry*> queue RAPIDSMPF_GUARDED_BY(mutex);
    std::size_t registered RAPIDSMPF_GUARDED_BY(mutex){0};  // bytes of entries, with those that wait
    std::size_t limit RAPIDSMPF_GUARDED_BY(mutex);
    bool ending RAPIDSMPF_GUARDED_BY(mutex){false};
    std::vector<std::thread> threads RAPIDSMPF_GUARDED_BY(mutex);
    std::vector<void*> slabs RAPIDSMPF_GUARDED_BY(mutex);

    std::shared_ptr<Mapping> mapping_of(DataFile const& file) RAPIDSMPF_REQUIRES(mutex) {
        auto const found = mappings.find(file.path());
        if (found != mappings.end()) {
            if (found->second->version == file.version()) {
                return found->second;
            }
            retire(*found->second);
            mappings.erase(found);
        }
        auto const bytes = (file.size() + page - 1) / page * page;
        auto* const address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
        if (address == MAP_FAILED) {
            return nullptr;
        }
        auto mapping = std::make_shared<Mapping>();
        mapping->path = file.path();
        mapping->version = file.version();
        mapping->address = static_cast<char*>(address);
        mapping->bytes = bytes;
        mappings.emplace(file.path(), mapping);
        return mapping;
    }

    // Pages that the ranges need and that are in no entry yet, neighbours together.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> missing(
        Mapping const& mapping, std::span<FileRange const> ranges) const RAPIDSMPF_REQUIRES(mutex) {
        std::vector<std::pair<std::uint64_t, std::uint64_t>> wanted;
        for (auto const& range : ranges) {
            if (range.bytes > 0) {
                wanted.emplace_back(
                    range.offset / page * page, (range.offset + range.bytes + page - 1) / page * page);
            }
        }
        std::ranges::sort(wanted);
        std::vector<std::pair<std::uint64_t, std::uint64_t>> result;
        for (auto [begin, end] : wanted) {
            auto entry = mapping.entries.upper_bound(begin);
            if (entry != mapping.entries.begin() && std::prev(entry)->second->end > begin) {
                --entry;
            }
            while (begin < end) {
                auto const next = entry == mapping.entries.end() ? end : std::min(end, entry->first);
                if (begin < next) {
                    // What lies between two that are missing is registered with them, if it is little and not there.
                    if (!result.empty() && begin <= result.back().second + settings.register_gap
                        && (entry == mapping.entries.begin()
                            || std::prev(entry)->second->end <= result.back().first)) {
                        result.back().second = std::max(result.back().second, next);
                    } else {
                        result.emplace_back(begin, next);
                    }
                }
                if (entry == mapping.entries.end()) {
                    break;
                }
                begin = std::max(begin, entry->second->end);
                ++entry;
            }
        }
        return result;
    }

    [[nodiscard]] std::size_t most_of_the_memory() const {
        return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) / 10 * 8 * page;
    }

    bool make_room(std::size_t bytes) RAPIDSMPF_REQUIRES(mutex) {
        while (registered + bytes > limit) {
            if (settings.registered_limit == 0 && registered + bytes <= (limit = most_of_the_memory())) {
                break;  // virtual machines may get memory as they use it
            }
            if (idle.empty()) {
                return false;
            }
            drop(*idle.front());
        }
        return true;
    }

    // The entry is gone then.
    void drop(Entry& entry) noexcept RAPIDSMPF_REQUIRES(mutex) {
        auto& mapping = *entry.mapping;
        if (entry.phase == Entry::Phase::registered) {
            idle.erase(entry.idle);
            registrar->remove(mapping.address + entry.begin, entry.end - entry.begin);
        }
        registered -= entry.end - entry.begin;
        mapping.entries.erase(entry.begin);
    }

    void retire(Mapping& mapping) noexcept RAPIDSMPF_REQUIRES(mutex) {
        mapping.stale = true;
        for (auto next = mapping.entries.begin(); next != mapping.entries.end();) {
            auto& entry = *(next++)->second;
            auto const in_the_hands_of_a_thread =
                entry.phase == Entry::Phase::waiting;  // which drops it then
            if (entry.leases == 0 && !in_the_hands_of_a_thread) {
                drop(entry);
            }
        }
        unmap_if_unused(mapping);
    }

    void unmap_if_unused(Mapping& mapping) const noexcept RAPIDSMPF_REQUIRES(mutex) {
        if (mapping.stale && mapping.leases == 0 && mapping.entries.empty() && mapping.address != nullptr) {
            ::munmap(mapping.address, mapping.bytes);
            mapping.address = nullptr;
        }
    }

    void release(Entry& entry) noexcept RAPIDSMPF_REQUIRES(mutex) {
        if (--entry.leases > 0) {
            return;
        }
        if (entry.phase == Entry::Phase::waiting) {
            // No reader needs it now: take it back before a thread registers it, or leave it to that thread.
            if (settings.read_while_registering) {
                return;  // later reads will
            }
            if (auto const queued = std::ranges::find(queue, &entry); queued != queue.end()) {
                queue.erase(queued);
                drop(entry);
            }
        } else if (entry.phase == Entry::Phase::refused || entry.mapping->stale) {
            if (entry.phase == Entry::Phase::registered) {
                entry.idle = idle.insert(idle.end(), &entry);
            }
            drop(entry);
        } else {
            entry.idle = idle.insert(idle.end(), &entry);
        }
    }

    // What each thread does.
    void register_entries() {
        UniqueLock lock{mutex};
        for (;;) {
            work.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex) { return ending || !queue.empty(); });
            if (ending) {
                return;
            }
            auto& entry = *queue.front();
            auto& mapping = *entry.mapping;
            queue.pop_front();
            ++mapping.leases;  // the mapping stays while this thread works on it
            bool done = false;
            if (!mapping.refused) {
                auto* const address = mapping.address + entry.begin;
                lock.unlock();
                done = registrar->add(address, entry.end - entry.begin);
                lock.lock();
            }
            entry.phase = done ? Entry::Phase::registered : Entry::Phase::refused;
            mapping.refused = mapping.refused || !done;
            if (entry.leases == 0) {
                ++entry.leases;
                release(entry);
            }
            --mapping.leases;
            unmap_if_unused(mapping);
            settled.notify_all();
        }
    }
};

MappedFiles::MappedFiles(ScanSettings const& settings, std::unique_ptr<PageRegistrar> registrar)
    : state_{std::make_unique<State>(settings, std::move(registrar))} {}

MappedFiles::~MappedFiles() {
    {
        MutexLock const lock{state_->mutex};
        state_->ending = true;
        state_->work.notify_all();
    }
    for (auto& thread : state_->threads) {
        thread.join();
    }
    // What no reader waited for, and no thread came to.
    for (auto* const entry : state_->queue) {
        state_->drop(*entry);
    }
    state_->queue.clear();
    for (auto& [path, mapping] : state_->mappings) {
        state_->retire(*mapping);
    }
    for (auto* const slab : state_->slabs) {
        state_->registrar->free(slab);
    }
}

std::optional<MappedFiles::Lease> MappedFiles::prepare(
    DataFile const& file, std::span<FileRange const> ranges) {
    auto& state = *state_;
    if (!state.settings.map_files || file.size() == 0 || file.is_remote()) {
        return std::nullopt;
    }
    for (auto const& range : ranges) {
        if (range.offset > file.size() || range.bytes > file.size() - range.offset) {
            return std::nullopt;  // reading says what is wrong
        }
    }
    Lease lease;  // before the lock: if something throws it is released after the lock
    MutexLock const lock{state.mutex};
    auto mapping = state.mapping_of(file);
    if (mapping == nullptr || mapping->refused) {
        return std::nullopt;
    }
    lease.state_ = &state;
    lease.mapping_ = mapping;
    lease.ranges_.assign(ranges.begin(), ranges.end());
    ++mapping->leases;

    // First the entries that are there are held, so that making room does not drop them.
    auto const hold = [&](Entry& entry) RAPIDSMPF_REQUIRES(state.mutex) {
        if (entry.leases++ == 0 && entry.phase == Entry::Phase::registered) {
            state.idle.erase(entry.idle);
        }
        lease.entries_.push_back(&entry);
    };
    auto const missing = state.missing(*mapping, ranges);
    std::uint64_t held_to = 0;
    std::vector<FileRange> sorted{ranges.begin(), ranges.end()};
    std::ranges::sort(sorted, {}, &FileRange::offset);
    for (auto const& range : sorted) {
        auto entry = mapping->entries.upper_bound(range.offset);
        if (entry != mapping->entries.begin()) {
            --entry;
        }
        for (; entry != mapping->entries.end() && entry->first < range.offset + range.bytes; ++entry) {
            if (entry->second->end > range.offset && entry->second->end > held_to) {
                hold(*entry->second);
                held_to = entry->second->end;
            }
        }
    }

    std::size_t bytes = 0;
    for (auto const& [begin, end] : missing) {
        bytes += end - begin;
    }
    if (!state.make_room(bytes)) {
        for (auto* const entry : lease.entries_) {
            state.release(*entry);
        }
        --mapping->leases;
        lease.state_ = nullptr;
        return std::nullopt;
    }
    auto const at_most = std::max(state.settings.register_bytes / state.page, std::size_t{1}) * state.page;
    for (auto const& [begin, end] : missing) {
        for (auto at = begin; at < end; at += at_most) {
            auto entry = std::make_unique<Entry>();
            entry->mapping = mapping.get();
            entry->begin = at;
            entry->end = std::min<std::uint64_t>(end, at + at_most);
            state.registered += entry->end - entry->begin;
            hold(*entry);
            state.queue.push_back(entry.get());
            mapping->entries.emplace(at, std::move(entry));
        }
    }
    if (!missing.empty()) {
        while (state.threads.size() < std::max(state.settings.register_threads, std::size_t{1})) {
            state.threads.emplace_back([&state] { state.register_entries(); });
        }
        state.work.notify_all();
    }
    return lease;
}

std::size_t MappedFiles::registered_bytes() const {
    MutexLock const lock{state_->mutex};
    return state_->registered;
}

std::size_t MappedFiles::release_unused(std::size_t bytes) {
    MutexLock const lock{state_->mutex};
    auto const before = state_->registered;
    while (!state_->idle.empty() && before - state_->registered < bytes) {
        state_->drop(*state_->idle.front());
    }
    return before - state_->registered;
}

// ---- Lease

MappedFiles::Lease::Lease(Lease&& other) noexcept
    : state_{std::exchange(other.state_, nullptr)},
      mapping_{std::move(other.mapping_)},
      ranges_{std::move(other.ranges_)},
      entries_{std::move(other.entries_)} {}

MappedFiles::Lease& MappedFiles::Lease::operator=(Lease&& other) noexcept {
    if (this != &other) {
        release();
        state_ = std::exchange(other.state_, nullptr);
        mapping_ = std::move(other.mapping_);
        ranges_ = std::move(other.ranges_);
        entries_ = std::move(other.entries_);
    }
    return *this;
}

bool MappedFiles::Lease::is_settled() const {
    MutexLock const lock{state_->mutex};
    return std::ranges::none_of(
        entries_, [](Entry const* entry) { return entry->phase == Entry::Phase::waiting; });
}

std::optional<std::vector<HostPiece>> MappedFiles::Lease::wait() {
    UniqueLock lock{state_->mutex};
    for (auto const* const entry : entries_) {
        state_->settled.wait(lock, [&] { return entry->phase != Entry::Phase::waiting; });
        if (entry->phase == Entry::Phase::refused) {
            return std::nullopt;
        }
    }
    std::vector<HostPiece> pieces;
    pieces.reserve(ranges_.size() + entries_.size());
    for (auto const& range : ranges_) {
        auto at = range.offset;
        auto const end = range.offset + range.bytes;
        if (at == end) {
            continue;
        }
        for (auto entry = std::prev(mapping_->entries.upper_bound(at)); at < end; ++entry) {
            auto const to = std::min(end, entry->second->end);
            pieces.push_back(HostPiece{mapping_->address + at, static_cast<std::size_t>(to - at)});
            at = to;
        }
    }
    return pieces;
}

void MappedFiles::Lease::release() noexcept {
    if (state_ == nullptr) {
        return;
    }
    MutexLock const lock{state_->mutex};
    for (auto* const entry : entries_) {
        state_->release(*entry);
    }
    entries_.clear();
    --mapping_->leases;
    state_->unmap_if_unused(*mapping_);
    mapping_.reset();
    state_ = nullptr;
}

// ---- Slabs

MappedFiles::Slab MappedFiles::take_slab() {
    Slab slab;
    {
        MutexLock const lock{state_->mutex};
        if (!state_->slabs.empty()) {
            slab.data_ = state_->slabs.back();
            state_->slabs.pop_back();
        }
    }
    if (slab.data_ == nullptr) {
        slab.data_ = state_->registrar->allocate(state_->settings.slab_bytes);
    }
    if (slab.data_ == nullptr) {
        throw OutOfMemory{
            "no page-locked memory for reading files: " + std::to_string(state_->settings.slab_bytes)
            + " bytes"};
    }
    slab.state_ = state_.get();
    return slab;
}

MappedFiles::Slab::~Slab() {
    if (state_ != nullptr) {
        MutexLock const lock{state_->mutex};
        state_->slabs.push_back(data_);
    }
}

MappedFiles::Slab::Slab(Slab&& other) noexcept
    : state_{std::exchange(other.state_, nullptr)}, data_{std::exchange(other.data_, nullptr)} {}

MappedFiles::Slab& MappedFiles::Slab::operator=(Slab&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(data_, other.data_);
    return *this;
}

}  // namespace rapidsmpf::compute
