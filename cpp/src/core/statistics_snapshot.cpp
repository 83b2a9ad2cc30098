#include <rapidsmpf/core/statistics_snapshot.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

namespace {

constexpr std::array<std::uint8_t, 4> serial_magic{'R', 'M', 'P', 'S'};
constexpr std::uint8_t serial_version = 1;
constexpr std::size_t serial_crc = 4;

std::string format_seconds(double seconds) {
    std::array<char, 48> text{};
    if (std::abs(seconds) < 1e-3) {
        std::snprintf(text.data(), text.size(), "%.2f us", seconds * 1e6);
    } else if (std::abs(seconds) < 1) {
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

std::string format(double value, StatisticUnit unit) {
    switch (unit) {
        case StatisticUnit::bytes:
            return config::format_bytes(value);
        case StatisticUnit::seconds:
            return format_seconds(value);
        case StatisticUnit::none:
            break;
    }
    return format_number(value);
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

statistic::Info const* find_info(std::string_view name) {
    auto const found = std::find_if(statistic::table.begin(), statistic::table.end(), [&](auto const& info) {
        return info.name.view() == name;
    });
    return found == statistic::table.end() ? nullptr : &*found;
}

}  // namespace

void StatisticsSnapshot::add(std::string const& name, Entry const& entry) {
    auto const [found, is_new] = entries_.try_emplace(name, entry);
    if (is_new) {
        return;
    }
    auto& into = found->second;
    into.stat.count += entry.stat.count;
    into.stat.max = std::max(into.stat.max, entry.stat.max);
    into.stat.value = into.kind == StatisticKind::peak ? into.stat.max : into.stat.value + entry.stat.value;
}

void StatisticsSnapshot::merge(StatisticsSnapshot const& other) {
    for (auto const& [name, entry] : other.entries_) {
        add(name, entry);
    }
}

std::vector<std::uint8_t> StatisticsSnapshot::serialize() const {
    RAPIDSMPF_EXPECTS(
        entries_.size() <= max_stats,
        std::to_string(entries_.size()) + " statistics are more than can be serialised ("
            + std::to_string(max_stats) + ")",
        std::invalid_argument);
    ByteWriter writer;
    writer.raw(serial_magic).integer(serial_version).integer(std::uint8_t{0}).integer(std::uint16_t{0});
    writer.integer(static_cast<std::uint32_t>(entries_.size()));
    for (auto const& [name, entry] : entries_) {
        RAPIDSMPF_EXPECTS(
            name.size() <= longest_name,
            "the name of a statistic is " + std::to_string(name.size()) + " bytes long, at most "
                + std::to_string(longest_name) + " can be serialised",
            std::invalid_argument);
        writer.text(name, longest_name)
            .integer(static_cast<std::uint8_t>(entry.unit))
            .integer(static_cast<std::uint8_t>(entry.kind))
            .integer(entry.stat.count)
            .integer(std::bit_cast<std::uint64_t>(entry.stat.value))
            .integer(std::bit_cast<std::uint64_t>(entry.stat.max));
    }
    auto bytes = writer.take();
    ByteWriter end;
    for (auto const byte : end.integer(crc32(bytes)).take()) {
        bytes.push_back(byte);
    }
    return bytes;
}

StatisticsSnapshot StatisticsSnapshot::deserialize(std::span<std::uint8_t const> bytes) {
    auto const check = [](bool ok, char const* what) {
        RAPIDSMPF_EXPECTS(ok, std::string{"serialised statistics are malformed: "} + what, FormatError);
    };
    check(bytes.size() >= serial_magic.size() + 8 + serial_crc, "too short");
    auto const body = bytes.first(bytes.size() - serial_crc);
    check(std::equal(serial_magic.begin(), serial_magic.end(), body.begin()), "wrong magic");
    check(body[serial_magic.size()] == serial_version, "unknown version");
    check(ByteReader{bytes.last(serial_crc)}.integer<std::uint32_t>() == crc32(body), "wrong checksum");
    ByteReader reader{body.subspan(serial_magic.size() + 1)};
    check(reader.integer<std::uint8_t>() == 0 && reader.integer<std::uint16_t>() == 0, "unknown flags");
    auto const count = reader.integer<std::uint32_t>();
    check(count <= max_stats, "too many statistics");
    StatisticsSnapshot out;
    for (std::uint32_t i = 0; i < count; ++i) {
        auto name = reader.text(longest_name);
        check(out.entries_.empty() || out.entries_.rbegin()->first < name, "names are not in order");
        auto const unit = reader.integer<std::uint8_t>();
        auto const kind = reader.integer<std::uint8_t>();
        check(unit <= static_cast<std::uint8_t>(StatisticUnit::seconds), "unknown unit");
        check(kind <= static_cast<std::uint8_t>(StatisticKind::peak), "unknown kind");
        Entry entry;
        entry.unit = static_cast<StatisticUnit>(unit);
        entry.kind = static_cast<StatisticKind>(kind);
        entry.stat.count = reader.integer<std::uint64_t>();
        check(entry.stat.count > 0, "a statistic without a value");
        entry.stat.value = std::bit_cast<double>(reader.integer<std::uint64_t>());
        entry.stat.max = std::bit_cast<double>(reader.integer<std::uint64_t>());
        out.entries_.emplace_hint(out.entries_.end(), std::move(name), entry);
    }
    reader.end();
    return out;
}

std::string StatisticsSnapshot::report(std::string_view header) const {
    std::string out{header};
    out += '\n';
    std::size_t width = 0;
    for (auto const& [name, entry] : entries_) {
        width = std::max(width, name.size());
    }
    for (auto const& [name, entry] : entries_) {
        auto const& [stat, unit, kind] = entry;
        out += " - " + name + ":" + std::string(width - name.size() + 1, ' ') + format(stat.value, unit);
        if (kind == StatisticKind::sum) {
            out += " | count " + std::to_string(stat.count);
            if (unit != StatisticUnit::none) {
                out += " | avg " + format(stat.value / static_cast<double>(stat.count), unit);
            }
            out += " | max " + format(stat.max, unit);
        }
        if (auto const* info = find_info(name); info != nullptr && !info->seconds.view().empty()) {
            auto const time = entries_.find(info->seconds.view());
            if (time != entries_.end() && time->second.stat.value > 0) {
                out += " | " + config::format_bytes(stat.value / time->second.stat.value) + "/s";
            }
        }
        out += '\n';
    }
    return out;
}

void StatisticsSnapshot::check_json_name(std::string_view name, std::string_view what) {
    bool const plain = std::all_of(name.begin(), name.end(), [](char c) {
        return c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20U;
    });
    RAPIDSMPF_EXPECTS(
        plain, std::string{what} + " \"" + std::string{name} + "\" has a character that JSON must escape",
        std::invalid_argument);
}

std::string StatisticsSnapshot::to_json(std::string_view more) const {
    std::string out = "{\"statistics\": {";
    bool first = true;
    for (auto const& [name, entry] : entries_) {
        check_json_name(name, "statistic");
        out += first ? "" : ", ";
        first = false;
        out += "\"" + name + "\": {\"count\": " + std::to_string(entry.stat.count) + ", \"value\": "
               + json_number(entry.stat.value) + ", \"max\": " + json_number(entry.stat.max) + "}";
    }
    out += "}";
    if (!more.empty()) {
        out += ", ";
        out += more;
    }
    return out + "}";
}

}  // namespace rapidsmpf
