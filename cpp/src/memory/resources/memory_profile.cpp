#include <rapidsmpf/memory/memory_profile.hpp>

#include <algorithm>
#include <vector>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/statistics_snapshot.hpp>

namespace rapidsmpf {

void MemoryProfile::add(std::string_view name, ScopeMeasurement const& measured) {
    MutexLock lock{mutex_};
    auto const found = records_.try_emplace(std::string{name}).first;
    auto& record = found->second;
    record.scoped.add_scope(measured.record);
    record.global_peak = std::max(record.global_peak, measured.global_peak);
    ++record.num_calls;
}

MemoryProfile::Records MemoryProfile::records() const {
    MutexLock lock{mutex_};
    return records_;
}

std::string MemoryProfile::report() const {
    auto const all = records();
    std::vector<Records::const_iterator> order;
    std::size_t width = 0;
    for (auto record = all.begin(); record != all.end(); ++record) {
        order.push_back(record);
        width = std::max(width, record->first.size());
    }
    std::stable_sort(order.begin(), order.end(), [](auto const& a, auto const& b) {
        return a->second.scoped.peak() > b->second.scoped.peak();
    });
    std::string out = "Memory profile:\n";
    for (auto const& entry : order) {
        auto const& [name, record] = *entry;
        out += " - " + name + ":" + std::string(width - name.size() + 1, ' ') + "peak "
               + config::format_bytes(record.scoped.peak()) + " | global peak "
               + config::format_bytes(record.global_peak) + " | allocated "
               + config::format_bytes(record.scoped.total()) + " in "
               + std::to_string(record.scoped.num_total_allocs()) + " | calls "
               + std::to_string(record.num_calls) + "\n";
    }
    return out;
}

std::string MemoryProfile::json_member() const {
    std::string out;
    for (auto const& [name, record] : records()) {
        StatisticsSnapshot::check_json_name(name, "memory record");
        out += out.empty() ? "\"memory_records\": {" : ", ";
        out += "\"" + name + "\": {\"num_calls\": " + std::to_string(record.num_calls)
               + ", \"peak_bytes\": " + std::to_string(record.scoped.peak())
               + ", \"total_bytes\": " + std::to_string(record.scoped.total())
               + ", \"global_peak_bytes\": " + std::to_string(record.global_peak) + "}";
    }
    return out.empty() ? out : out + "}";
}

}  // namespace rapidsmpf
