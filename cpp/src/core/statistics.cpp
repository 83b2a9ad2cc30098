#include <rapidsmpf/core/statistics.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

namespace {

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

std::string format_seconds(double seconds) {
    std::array<char, 48> text{};
    if (seconds < 1e-3) {
        std::snprintf(text.data(), text.size(), "%.2f us", seconds * 1e6);
    } else if (seconds < 1) {
        std::snprintf(text.data(), text.size(), "%.2f ms", seconds * 1e3);
    } else {
        std::snprintf(text.data(), text.size(), "%.2f s", seconds);
    }
    return text.data();
}

std::string format_number(double value) {
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%.6g", value);
    return text.data();
}

// The shortest text that reads back as the same double; JSON has no inf or nan.
std::string json_number(double value) {
    if (!std::isfinite(value)) {
        return "null";
    }
    std::array<char, 48> text{};
    auto const [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} ? std::string{text.data(), end} : "null";
}

void check_json_name(std::string_view name) {
    bool const plain = std::all_of(name.begin(), name.end(), [](char c) {
        return c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20U;
    });
    RAPIDSMPF_EXPECTS(
        plain, "statistic \"" + std::string{name} + "\" has a character that JSON must escape",
        std::invalid_argument);
}

}  // namespace

Statistics::Statistics(Enabled enabled)
    : enabled_{enabled == Enabled::yes}, slots_{std::make_unique<std::array<Slot, max_stats>>()} {}

Statistics::Id Statistics::id(std::string_view name, Unit unit) {
    std::lock_guard lock{mutex_};
    if (auto const found = ids_.find(name); found != ids_.end()) {
        return found->second;
    }
    RAPIDSMPF_EXPECTS(units_.size() < max_stats, "too many statistics", std::length_error);
    auto const id = static_cast<Id>(units_.size());
    units_.push_back(unit);
    ids_.emplace(std::string{name}, id);
    return id;
}

void Statistics::add_enabled(Id id, double value) noexcept {
    auto& slot = (*slots_)[id];
    slot.count.fetch_add(1, std::memory_order_relaxed);
    atomic_add(slot.value, value);
    atomic_max(slot.max, value);
}

void Statistics::add(std::string_view name, double value, Unit unit) {
    if (enabled()) {
        add_enabled(id(name, unit), value);
    }
}

Statistics::Stat Statistics::get(std::string_view name) const {
    std::lock_guard lock{mutex_};
    if (auto const found = ids_.find(name); found != ids_.end()) {
        auto const& slot = (*slots_)[found->second];
        if (auto const count = slot.count.load(); count > 0) {
            return Stat{count, slot.value.load(), slot.max.load()};
        }
    }
    throw std::out_of_range("Statistic '" + std::string{name} + "' does not exist");
}

std::vector<std::string> Statistics::names() const {
    std::lock_guard lock{mutex_};
    std::vector<std::string> out;
    for (auto const& [name, id] : ids_) {
        if ((*slots_)[id].count.load() > 0) {
            out.push_back(name);
        }
    }
    return out;
}

void Statistics::clear() {
    for (auto& slot : *slots_) {
        slot.count = 0;
        slot.value = 0;
        slot.max = 0;
    }
}

std::string Statistics::report(std::string_view header) const {
    std::string out{header};
    if (!enabled()) {
        return out + " disabled\n";
    }
    out += '\n';
    auto const all = names();
    std::size_t width = 0;
    for (auto const& name : all) {
        width = std::max(width, name.size());
    }
    std::lock_guard lock{mutex_};
    for (auto const& name : all) {
        auto const id = ids_.find(name)->second;
        auto const& slot = (*slots_)[id];
        double const value = slot.value;
        double const average = value / static_cast<double>(slot.count);
        out += " - " + name + ":" + std::string(width - name.size() + 1, ' ');
        switch (units_[id]) {
            case Unit::bytes:
                out += config::format_bytes(value) + " | avg " + config::format_bytes(average);
                break;
            case Unit::seconds:
                out += format_seconds(value) + " | avg " + format_seconds(average);
                break;
            case Unit::none:
                out += format_number(value) + " | count " + std::to_string(slot.count);
                break;
        }
        out += '\n';
    }
    return out;
}

std::string Statistics::to_json() const {
    std::string out = "{\"statistics\": {";
    bool first = true;
    for (auto const& name : names()) {
        check_json_name(name);
        auto const stat = get(name);
        out += first ? "" : ", ";
        first = false;
        out += "\"" + name + "\": {\"count\": " + std::to_string(stat.count)
               + ", \"value\": " + json_number(stat.value) + ", \"max\": " + json_number(stat.max) + "}";
    }
    return out + "}}";
}

namespace {
std::int64_t now_ns() noexcept {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds{1};
}
}  // namespace

ScopedTimer::ScopedTimer(Statistics& statistics, Statistics::Id id) noexcept
    : statistics_{statistics}, id_{id}, start_ns_{statistics.enabled() ? now_ns() : 0} {}

ScopedTimer::~ScopedTimer() {
    if (start_ns_ != 0) {
        statistics_.add(id_, static_cast<double>(now_ns() - start_ns_) * 1e-9);
    }
}

}  // namespace rapidsmpf
