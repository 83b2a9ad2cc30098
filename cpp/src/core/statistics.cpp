#include <rapidsmpf/core/statistics.hpp>

#include <algorithm>
#include <new>
#include <stdexcept>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

namespace {

// The rows of the table in the order of their names, for look-up.
constexpr auto rows_by_name = [] {
    std::array<StatisticId, statistic::table.size()> rows{};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i] = static_cast<StatisticId>(i);
    }
    std::sort(rows.begin(), rows.end(), [](StatisticId a, StatisticId b) {
        return statistic::table[a].name.view() < statistic::table[b].name.view();
    });
    return rows;
}();
static_assert(
    std::adjacent_find(
        rows_by_name.begin(), rows_by_name.end(),
        [](StatisticId a, StatisticId b) {
            return statistic::table[a].name.view() == statistic::table[b].name.view();
        })
        == rows_by_name.end(),
    "a name is twice in the table of statistics");
static_assert(statistic::table.size() <= Statistics::max_stats / 2, "too little room for users' names");

void atomic_add(std::atomic<double>& target, double value) noexcept {
    double current = target.load(std::memory_order_relaxed);
    while (!target.compare_exchange_weak(current, current + value, std::memory_order_relaxed)) {
    }
}

void atomic_max(std::atomic<double>& target, double value) noexcept {
    double current = target.load(std::memory_order_relaxed);
    while (current < value && !target.compare_exchange_weak(current, value, std::memory_order_relaxed)) {
    }
}

// Which shard this thread uses: the first threads of a process get one each.
std::size_t shard_of_thread(std::size_t num_shards) noexcept {
    static std::atomic<std::size_t> threads{0};
    thread_local std::size_t const number = threads.fetch_add(1, std::memory_order_relaxed);
    return number % num_shards;
}

}  // namespace

Statistics::Statistics(Enabled enabled) : enabled_{enabled == Enabled::yes} {
    storage_[0] = std::make_unique<Shard>();
    shards_[0] = storage_[0].get();
}

Statistics::Shard& Statistics::own_shard() noexcept {
    auto const index = shard_of_thread(num_shards);
    auto* const shard = shards_[index].load(std::memory_order_acquire);
    return shard != nullptr ? *shard : make_shard(index);
}

Statistics::Shard& Statistics::make_shard(std::size_t index) noexcept {
    MutexLock lock{mutex_};
    if (!storage_[index]) {
        try {
            storage_[index] = std::make_unique<Shard>();
        } catch (std::bad_alloc const&) {
            return *storage_[0];  // slower, but nothing is lost
        }
        shards_[index].store(storage_[index].get(), std::memory_order_release);
    }
    return *storage_[index];
}

void Statistics::add_enabled(Id id, double value) noexcept {
    auto& slot = own_shard()[id];
    slot.count.fetch_add(1, std::memory_order_relaxed);
    atomic_add(slot.value, value);
    atomic_max(slot.max, value);
}

std::optional<Statistics::Id> Statistics::find_locked(std::string_view name) const {
    auto const row = std::lower_bound(
        rows_by_name.begin(), rows_by_name.end(), name,
        [](StatisticId id, std::string_view wanted) { return statistic::table[id].name.view() < wanted; });
    if (row != rows_by_name.end() && statistic::table[*row].name.view() == name) {
        return *row;
    }
    auto const found = own_ids_.find(name);
    return found == own_ids_.end() ? std::nullopt : std::optional{found->second};
}

Statistics::Kind Statistics::kind_locked(Id id) const {
    return id < statistic::table.size() ? statistic::table[id].kind : own_[id - statistic::table.size()].kind;
}

Statistics::Id Statistics::id(std::string_view name, Unit unit, Kind kind) {
    MutexLock lock{mutex_};
    if (auto const found = find_locked(name)) {
        return *found;
    }
    auto const id = statistic::table.size() + own_.size();
    RAPIDSMPF_EXPECTS(
        id < max_stats,
        "there is no room for statistic \"" + std::string{name} + "\": an object holds at most "
            + std::to_string(max_stats) + " names, " + std::to_string(statistic::table.size())
            + " of them the library's own",
        std::length_error);
    own_ids_.emplace(std::string{name}, static_cast<Id>(id));
    own_.push_back(Own{std::string{name}, unit, kind});
    return static_cast<Id>(id);
}

Statistics::Stat Statistics::sum_up(Id id, Kind kind) const noexcept {
    Stat stat;
    stat.max = -std::numeric_limits<double>::infinity();
    for (auto const& pointer : shards_) {
        if (auto const* shard = pointer.load(std::memory_order_acquire)) {
            auto const& slot = (*shard)[id];
            if (auto const count = slot.count.load(std::memory_order_relaxed); count > 0) {
                stat.count += count;
                stat.value += slot.value.load(std::memory_order_relaxed);
                stat.max = std::max(stat.max, slot.max.load(std::memory_order_relaxed));
            }
        }
    }
    if (stat.count == 0) {
        return Stat{};
    }
    if (kind == Kind::peak) {
        stat.value = stat.max;
    }
    return stat;
}

Statistics::Stat Statistics::get(std::string_view name) const {
    MutexLock lock{mutex_};
    if (auto const id = find_locked(name)) {
        if (auto const stat = sum_up(*id, kind_locked(*id)); stat.count > 0) {
            return stat;
        }
    }
    throw std::out_of_range("Statistic '" + std::string{name} + "' does not exist");
}

StatisticsSnapshot Statistics::snapshot() const {
    StatisticsSnapshot out;
    MutexLock lock{mutex_};
    for (Id id = 0; id < statistic::table.size() + own_.size(); ++id) {
        auto const kind = kind_locked(id);
        auto const stat = sum_up(id, kind);
        if (stat.count == 0) {
            continue;
        }
        if (id < statistic::table.size()) {
            auto const& info = statistic::table[id];
            out.add(std::string{info.name.view()}, {stat, info.unit, kind});
        } else {
            auto const& own = own_[id - statistic::table.size()];
            out.add(own.name, {stat, own.unit, kind});
        }
    }
    return out;
}

std::vector<std::string> Statistics::names() const {
    std::vector<std::string> out;
    for (auto const& [name, entry] : snapshot().entries()) {
        out.push_back(name);
    }
    return out;
}

void Statistics::clear() noexcept {
    for (auto const& pointer : shards_) {
        if (auto* shard = pointer.load(std::memory_order_acquire)) {
            for (auto& slot : *shard) {
                slot.count.store(0, std::memory_order_relaxed);
                slot.value.store(0, std::memory_order_relaxed);
                slot.max.store(-std::numeric_limits<double>::infinity(), std::memory_order_relaxed);
            }
        }
    }
}

void Statistics::merge(StatisticsSnapshot const& others) {
    if (!enabled()) {
        return;
    }
    for (auto const& [name, entry] : others.entries()) {
        auto& slot = own_shard()[id(name, entry.unit, entry.kind)];
        slot.count.fetch_add(entry.stat.count, std::memory_order_relaxed);
        atomic_add(slot.value, entry.stat.value);
        atomic_max(slot.max, entry.stat.max);
    }
}

std::string Statistics::report(std::string_view header) const {
    if (!enabled()) {
        return std::string{header} + " disabled\n";
    }
    return snapshot().report(header);
}

}  // namespace rapidsmpf
