#include <rapidsmpf/core/config.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <regex>
#include <span>

#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/error.hpp>

#include "core/trim.hpp"

extern char** environ;  // NOLINT: POSIX

namespace rapidsmpf::config {

namespace {

std::string lower(std::string_view text) {
    std::string out{text};
    std::transform(out.begin(), out.end(), out.begin(), [](char c) {
        return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    });
    return out;
}

// Splits "12.5 MiB" into its number and its unit.
std::pair<double, std::string> number_and_unit(std::string_view text, char const* what) {
    auto const body = trim(text);
    double number{0};
    auto const [end, error] = std::from_chars(body.data(), body.data() + body.size(), number);
    RAPIDSMPF_EXPECTS(
        error == std::errc{} && std::isfinite(number), "cannot read \"" + std::string{text} + "\" as " + what,
        std::invalid_argument);
    auto const used = static_cast<std::size_t>(end - body.data());
    return {number, lower(trim(body.substr(used)))};
}

// About 30 years: a clock that counts nanoseconds in 64 bits can be asked for the time then.
constexpr double longest_duration = 1e9;

constexpr std::array<std::uint8_t, 4> serial_magic{'R', 'M', 'P', 'O'};
constexpr std::uint8_t serial_version = 1;
constexpr std::uint8_t serial_has_crc = 1;
constexpr std::size_t serial_prelude = 8;
constexpr std::size_t max_options = 64 * 1024;
constexpr std::size_t max_key = 4UL << 10U;
constexpr std::size_t max_value = 1UL << 20U;
constexpr std::size_t max_total = 64UL << 20U;

void put_u64(std::vector<std::uint8_t>& out, std::uint64_t value) {
    for (unsigned i = 0; i < 8; ++i) {
        out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
    }
}

std::uint64_t get_u64(std::uint8_t const* bytes) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < 8; ++i) {
        value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    }
    return value;
}

}  // namespace

Options::Options(Strings values) : state_{std::make_shared<State>()} {
    insert_if_absent(values);
}

std::string Options::normalise(std::string_view key) {
    return lower(trim(key));
}

std::size_t Options::insert_if_absent(Strings const& values) {
    MutexLock lock{state_->mutex};
    std::size_t inserted = 0;
    for (auto const& [key, text] : values) {
        auto const name = normalise(key);
        RAPIDSMPF_EXPECTS(!name.empty(), "an option's key is empty", std::invalid_argument);
        Value value;
        value.text = text;
        inserted += state_->values.try_emplace(name, std::move(value)).second ? 1 : 0;
    }
    return inserted;
}

void Options::throw_type_mismatch(std::string const& key) {
    throw std::invalid_argument("option \"" + key + "\" was read before with another type");
}

Strings Options::get_strings() const {
    MutexLock lock{state_->mutex};
    Strings out;
    for (auto const& [key, value] : state_->values) {
        out.emplace(key, value.text);
    }
    return out;
}

std::vector<std::uint8_t> Options::serialize() const {
    MutexLock lock{state_->mutex};
    std::vector<std::uint8_t> out(serial_magic.begin(), serial_magic.end());
    for (auto const byte : {serial_version, serial_has_crc, std::uint8_t{0}, std::uint8_t{0}}) {
        out.push_back(byte);  // not insert(): g++ 12 warns of bounds there when it optimises
    }
    put_u64(out, state_->values.size());
    std::uint64_t offset = serial_prelude + 8 + state_->values.size() * 16;
    RAPIDSMPF_EXPECTS(
        state_->values.size() <= max_options,
        std::to_string(state_->values.size()) + " options are more than can be serialised",
        std::invalid_argument);
    for (auto const& [key, value] : state_->values) {
        RAPIDSMPF_EXPECTS(
            key.size() <= max_key && value.text.size() <= max_value,
            "option \"" + key.substr(0, 64) + "\" is too long to be serialised", std::invalid_argument);
        RAPIDSMPF_EXPECTS(
            !value.typed.has_value(),
            "option \"" + key + "\" has been read already: options can only be serialised before that",
            std::invalid_argument);
        put_u64(out, offset);
        put_u64(out, offset + key.size());
        offset += key.size() + value.text.size();
    }
    for (auto const& [key, value] : state_->values) {
        out.insert(out.end(), key.begin(), key.end());
        out.insert(out.end(), value.text.begin(), value.text.end());
    }
    RAPIDSMPF_EXPECTS(
        out.size() + 4 <= max_total, "the options are too long to be serialised", std::invalid_argument);
    auto const crc = crc32(out);
    for (unsigned i = 0; i < 4; ++i) {
        out.push_back(static_cast<std::uint8_t>(crc >> (8 * i)));
    }
    return out;
}

Options Options::deserialize(std::vector<std::uint8_t> const& bytes) {
    auto const check = [](bool ok, char const* what) {
        RAPIDSMPF_EXPECTS(ok, std::string{"serialised options are malformed: "} + what, FormatError);
    };
    check(bytes.size() >= serial_prelude + 8 + 4, "too short");
    check(bytes.size() <= max_total, "too long");
    check(std::equal(serial_magic.begin(), serial_magic.end(), bytes.begin()), "wrong magic");
    check(bytes[4] == serial_version, "unknown version");
    check(bytes[5] == serial_has_crc && bytes[6] == 0 && bytes[7] == 0, "unknown flags");
    std::size_t const body = bytes.size() - 4;
    std::uint32_t stored = 0;
    for (unsigned i = 0; i < 4; ++i) {
        stored |= static_cast<std::uint32_t>(bytes[body + i]) << (8 * i);
    }
    check(stored == crc32(std::span{bytes}.first(body)), "wrong checksum");
    auto const count = get_u64(bytes.data() + serial_prelude);
    check(count <= max_options, "too many options");
    std::uint64_t const first = serial_prelude + 8 + count * 16;
    check(first <= body, "offsets beyond the end");
    std::map<std::string, Value> values;
    std::uint64_t previous = first;
    auto const offset_at = [&](std::uint64_t i) {
        return get_u64(bytes.data() + serial_prelude + 8 + i * 8);
    };
    for (std::uint64_t i = 0; i < count; ++i) {
        auto const key = offset_at(2 * i);
        auto const value = offset_at(2 * i + 1);
        auto const end = i + 1 < count ? offset_at(2 * i + 2) : body;
        check(key == previous && key <= value && value <= end && end <= body, "bad offset");
        previous = end;
        auto const* base = reinterpret_cast<char const*>(bytes.data());
        std::string name{base + key, base + value};
        check(!name.empty() && name.size() <= max_key && normalise(name) == name, "bad key");
        check(end - value <= max_value, "a value is too long");
        Value entry;
        entry.text.assign(base + value, base + end);
        check(values.try_emplace(std::move(name), std::move(entry)).second, "key twice");
    }
    check(previous == body, "bytes left over");
    Options options;
    MutexLock const lock{options.state_->mutex};
    options.state_->values = std::move(values);
    return options;
}

Strings get_environment_variables(std::string const& key_regex) {
    std::regex expression;
    try {
        expression = std::regex{key_regex};
    } catch (std::regex_error const& error) {
        throw std::invalid_argument("key_regex \"" + key_regex + "\" is not valid: " + error.what());
    }
    RAPIDSMPF_EXPECTS(
        expression.mark_count() == 1, "key_regex \"" + key_regex + "\" must have exactly one capture group",
        std::invalid_argument);
    Strings out;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        std::string_view const text{*entry};
        auto const equals = text.find('=');
        if (equals == std::string_view::npos) {
            continue;
        }
        std::string const key{text.substr(0, equals)};
        std::smatch match;
        if (std::regex_match(key, match, expression)) {
            out.emplace(match[1].str(), std::string{text.substr(equals + 1)});
        }
    }
    return out;
}

std::int64_t parse_bytes(std::string_view text) {
    auto const [number, unit] = number_and_unit(text, "a number of bytes");
    constexpr std::array<std::string_view, 6> prefixes{"", "k", "m", "g", "t", "p"};
    for (std::size_t power = 0; power < prefixes.size(); ++power) {
        std::string const prefix{prefixes[power]};
        double scale{0};
        if (unit == prefix + "ib" || (power > 0 && unit == prefix + "i")) {
            scale = std::pow(1024.0, static_cast<double>(power));
        } else if (unit == prefix + "b" || unit == prefix) {
            scale = std::pow(1000.0, static_cast<double>(power));
        } else {
            continue;
        }
        double const bytes = std::round(number * scale);
        RAPIDSMPF_EXPECTS(
            std::abs(bytes) < 9.2e18, "\"" + std::string{text} + "\" is too large", std::invalid_argument);
        return static_cast<std::int64_t>(bytes);
    }
    throw std::invalid_argument("cannot read \"" + std::string{text} + "\": unknown unit \"" + unit + "\"");
}

std::int64_t parse_bytes_or_percent(std::string_view text, std::int64_t total) {
    auto const body = trim(text);
    if (!body.empty() && body.back() == '%') {
        auto const [number, unit] = number_and_unit(body, "a percentage");
        RAPIDSMPF_EXPECTS(
            unit == "%" && number >= 0 && number <= 100,
            "\"" + std::string{text} + "\" is not between 0% and 100%", std::invalid_argument);
        // A double may be above what it was made of, even above all 64-bit numbers.
        double const share = static_cast<double>(total) * (number / 100.0);
        return share >= static_cast<double>(total) ? total : static_cast<std::int64_t>(share);
    }
    return parse_bytes(text);
}

bool parse_bool(std::string_view text) {
    auto const word = lower(trim(text));
    for (auto const* yes : {"true", "yes", "y", "on", "1"}) {
        if (word == yes) {
            return true;
        }
    }
    for (auto const* no : {"false", "no", "n", "off", "0"}) {
        if (word == no) {
            return false;
        }
    }
    throw std::invalid_argument("cannot read \"" + std::string{text} + "\" as true or false");
}

double parse_duration(std::string_view text) {
    auto const [number, unit] = number_and_unit(text, "a duration");
    struct Unit {
        std::string_view name;
        double seconds;
    };
    constexpr std::array<Unit, 9> units{
        {{"", 1},
         {"s", 1},
         {"sec", 1},
         {"ms", 1e-3},
         {"us", 1e-6},
         {"ns", 1e-9},
         {"m", 60},
         {"min", 60},
         {"h", 3600}}};
    for (auto const& candidate : units) {
        if (unit == candidate.name) {
            RAPIDSMPF_EXPECTS(
                number >= 0, "\"" + std::string{text} + "\" is negative", std::invalid_argument);
            double const seconds = number * candidate.seconds;
            RAPIDSMPF_EXPECTS(
                seconds <= longest_duration,
                "\"" + std::string{text} + "\" is longer than 1e9 s, the longest duration",
                std::invalid_argument);
            return seconds;
        }
    }
    throw std::invalid_argument("cannot read \"" + std::string{text} + "\": unknown unit \"" + unit + "\"");
}

bool is_disabled(std::string_view text) {
    auto const word = lower(trim(text));
    return word == "false" || word == "no" || word == "off" || word == "disable" || word == "disabled";
}

std::string format_bytes(double bytes) {
    constexpr std::array<char const*, 6> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    std::size_t unit = 0;
    while (std::abs(bytes) >= 1024.0 && unit + 1 < units.size()) {
        bytes /= 1024.0;
        ++unit;
    }
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
    return text.data();
}

}  // namespace rapidsmpf::config
