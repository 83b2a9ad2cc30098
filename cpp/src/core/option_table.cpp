#include <rapidsmpf/core/detail/option_table.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include <rapidsmpf/core/error.hpp>

#include "core/trim.hpp"

namespace rapidsmpf::config {

namespace {

bool equal_words(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char left, char right) {
        return std::tolower(static_cast<unsigned char>(left))
               == std::tolower(static_cast<unsigned char>(right));
    });
}

// The option's value, made by parse(text) on first use; its errors get the option's name.
template <typename T, typename Parse>
T read(Options handle, OptionInfo const& info, Parse const& parse) {
    return handle.get<T>(std::string{info.key}, [&](std::string const& text) -> T {
        try {
            return parse(std::string{trim(text).empty() ? info.default_text : trim(text)});
        } catch (std::invalid_argument const& error) {
            throw std::invalid_argument{"option " + std::string{info.key} + ": " + error.what()};
        }
    });
}

// Off is kept as the largest value of the type, so that the option stays one that Python can read.
template <typename T, typename Parse>
std::optional<T> read_or_off(Options const& options, OptionInfo const& info, Parse const& parse) {
    constexpr T off = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                           : std::numeric_limits<T>::max();
    auto const value = read<T>(
        options, info, [&](std::string const& text) { return is_disabled(text) ? off : parse(text); });
    return value == off ? std::nullopt : std::optional<T>{value};
}

std::int64_t not_negative(std::int64_t bytes, std::string const& text) {
    RAPIDSMPF_EXPECTS(bytes >= 0, "\"" + text + "\" is negative", std::invalid_argument);
    return bytes;
}

std::int64_t parse_size(std::string const& text) {
    return not_negative(parse_bytes(text), text);
}

std::int64_t parse_share(std::string const& text, Total const& total) {
    return not_negative(text.back() == '%' ? parse_bytes_or_percent(text, total()) : parse_bytes(text), text);
}

std::int64_t parse_count(std::string const& text) {
    std::int64_t value{0};
    auto const* end = text.data() + text.size();
    auto const [rest, error] = std::from_chars(text.data(), end, value);
    RAPIDSMPF_EXPECTS(
        error == std::errc{} && rest == end, "cannot read \"" + text + "\" as a whole number",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(value > 0, "\"" + text + "\" must be greater than 0", std::invalid_argument);
    return value;
}

double parse_fraction(std::string const& text) {
    bool const percent = text.back() == '%';
    auto const body = trim(std::string_view{text}.substr(0, text.size() - (percent ? 1 : 0)));
    double value{0};
    auto const* end = body.data() + body.size();
    auto const [rest, error] = std::from_chars(body.data(), end, value);
    RAPIDSMPF_EXPECTS(
        error == std::errc{} && rest == end && std::isfinite(value),
        "cannot read \"" + text + "\" as a fraction or a percentage", std::invalid_argument);
    value = percent ? value / 100 : value;
    RAPIDSMPF_EXPECTS(
        value > 0 && value <= 1, "\"" + text + "\" is not above 0 and at most 1 (100%)",
        std::invalid_argument);
    return value;
}

double parse_positive_duration(std::string const& text) {
    auto const seconds = parse_duration(text);
    RAPIDSMPF_EXPECTS(seconds > 0, "\"" + text + "\" must be greater than 0", std::invalid_argument);
    // What waits counts nanoseconds: less would be a pause of nothing.
    constexpr double nanosecond = 1e-9;
    RAPIDSMPF_EXPECTS(
        seconds >= nanosecond, "\"" + text + "\" is shorter than a nanosecond", std::invalid_argument);
    return seconds;
}

std::string parse_text(std::string const& text, std::string_view words) {
    if (words.empty()) {
        return text;
    }
    for (auto rest = words; !rest.empty();) {
        auto const word = rest.substr(0, rest.find('|'));
        if (equal_words(word, text)) {
            return std::string{word};
        }
        rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    }
    throw std::invalid_argument{"\"" + text + "\" is not one of " + std::string{words}};
}

}  // namespace

bool get_bool(Options const& options, Key<OptionType::boolean> key) {
    return read<bool>(options, key.info(), [](std::string const& text) { return parse_bool(text); });
}

std::int64_t get_count(Options const& options, Key<OptionType::count> key) {
    return read<std::int64_t>(options, key.info(), parse_count);
}

std::int64_t get_bytes(Options const& options, Key<OptionType::bytes> key) {
    return read<std::int64_t>(options, key.info(), parse_size);
}

std::int64_t get_share(Options const& options, Key<OptionType::share> key, Total const& total) {
    return read<std::int64_t>(
        options, key.info(), [&](std::string const& text) { return parse_share(text, total); });
}

double get_fraction(Options const& options, Key<OptionType::fraction> key) {
    return read<double>(options, key.info(), parse_fraction);
}

double get_seconds(Options const& options, Key<OptionType::duration> key) {
    return read<double>(options, key.info(), parse_positive_duration);
}

std::string get_text(Options const& options, Key<OptionType::text> key) {
    return read<std::string>(
        options, key.info(), [&](std::string const& text) { return parse_text(text, key.info().words); });
}

std::optional<std::int64_t> get_optional_bytes(Options const& options, KeyOrOff<OptionType::bytes> key) {
    return read_or_off<std::int64_t>(options, key.info(), parse_size);
}

std::optional<std::int64_t> get_optional_share(
    Options const& options, KeyOrOff<OptionType::share> key, Total const& total) {
    return read_or_off<std::int64_t>(
        options, key.info(), [&](std::string const& text) { return parse_share(text, total); });
}

std::optional<double> get_optional_seconds(Options const& options, KeyOrOff<OptionType::duration> key) {
    return read_or_off<double>(options, key.info(), parse_positive_duration);
}

void check_option(std::string_view key, std::string const& text) {
    auto const* const info = std::find_if(
        option_table.begin(), option_table.end(), [&](OptionInfo const& row) { return row.key == key; });
    if (info == option_table.end()) {
        throw std::out_of_range{"there is no option " + std::string{key}};
    }
    auto const given = trim(text);
    if (info->off == OptionOff::yes && is_disabled(given.empty() ? info->default_text : given)) {
        return;
    }
    // Any total does: a percentage of it is a number of bytes, or cannot be read.
    constexpr std::int64_t total = 100;
    Options const options{{{std::string{key}, text}}};
    switch (info->type) {
        case OptionType::boolean:
            read<bool>(options, *info, [](std::string const& value) { return parse_bool(value); });
            break;
        case OptionType::count:
            read<std::int64_t>(options, *info, parse_count);
            break;
        case OptionType::bytes:
            read<std::int64_t>(options, *info, parse_size);
            break;
        case OptionType::share:
            read<std::int64_t>(options, *info, [](std::string const& value) {
                return parse_share(value, [] { return total; });
            });
            break;
        case OptionType::fraction:
            read<double>(options, *info, parse_fraction);
            break;
        case OptionType::duration:
            read<double>(options, *info, parse_positive_duration);
            break;
        case OptionType::text:
            read<std::string>(
                options, *info, [&](std::string const& value) { return parse_text(value, info->words); });
            break;
    }
}

std::string_view name_of(OptionType type) noexcept {
    switch (type) {
        case OptionType::boolean:
            return "boolean";
        case OptionType::count:
            return "count";
        case OptionType::bytes:
            return "bytes";
        case OptionType::share:
            return "share";
        case OptionType::fraction:
            return "fraction";
        case OptionType::duration:
            return "duration";
        case OptionType::text:
            break;
    }
    return "text";
}

std::string_view to_string(OptionType type) noexcept {
    switch (type) {
        case OptionType::boolean:
            return "true or false";
        case OptionType::count:
            return "whole number, at least 1";
        case OptionType::bytes:
            return "bytes";
        case OptionType::share:
            return "bytes or percentage";
        case OptionType::fraction:
            return "fraction or percentage";
        case OptionType::duration:
            return "duration";
        case OptionType::text:
            break;
    }
    return "text";
}

}  // namespace rapidsmpf::config
