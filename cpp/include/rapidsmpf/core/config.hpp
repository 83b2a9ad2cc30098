// Options: string key-value pairs that become typed on first use.
//
// An Options object is a shared handle: copies see the same values. Keys are lower case and trimmed. A key is
// parsed by the first get<T>() and keeps that type; asking for another type later is an error.
#pragma once

#include <any>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::config {

using Strings = std::map<std::string, std::string>;

class Options {
  public:
    explicit Options(Strings values = {});

    // Inserts the pairs whose keys are not there yet; returns how many were new.
    std::size_t insert_if_absent(Strings const& values);

    // The typed value of `key`. On first access `parse` makes it from the option's string ("" when unset);
    // the result is kept. `parse` must not touch this object. Throws std::invalid_argument when the key was
    // read before with another type.
    template <typename T>
    T const& get(std::string const& key, std::function<T(std::string const&)> const& parse) {
        MutexLock lock{state_->mutex};
        auto const name = normalise(key);
        auto found = state_->values.find(name);
        if (found == state_->values.end() || !found->second.typed.has_value()) {
            // What `parse` refuses leaves no trace.
            std::any typed = parse(found == state_->values.end() ? std::string{} : found->second.text);
            found = state_->values.try_emplace(name).first;
            found->second.typed = std::move(typed);
        }
        auto const* typed = std::any_cast<T>(&found->second.typed);
        if (typed == nullptr) {
            throw_type_mismatch(key);
        }
        return *typed;
    }

    // All pairs as strings; a value that was only ever set from code has the empty string.
    [[nodiscard]] Strings get_strings() const;

    // Binary form: magic, version, flags, count, offsets, bytes, CRC-32. Throws std::invalid_argument when an
    // option has been read already, because its string may no longer say what it is, and when there is more
    // than deserialize() would take: 64 Ki options, keys of 4 KiB, values of 1 MiB, 64 MiB in all.
    [[nodiscard]] std::vector<std::uint8_t> serialize() const;
    // Throws FormatError on any malformed input.
    [[nodiscard]] static Options deserialize(std::vector<std::uint8_t> const& bytes);

    // Trims and lower-cases a key.
    [[nodiscard]] static std::string normalise(std::string_view key);

  private:
    struct Value {
        std::string text;
        std::any typed;
    };
    struct State {
        Mutex mutex;
        std::map<std::string, Value> values RAPIDSMPF_GUARDED_BY(mutex);
    };
    [[noreturn]] static void throw_type_mismatch(std::string const& key);

    std::shared_ptr<State> state_;
};

// The environment variables that match `key_regex`, keyed by its one capture group.
// Throws std::invalid_argument when the expression has not exactly one capture group.
[[nodiscard]] Strings get_environment_variables(std::string const& key_regex = "RAPIDSMPF_(.*)");

// "100 MB", "1KiB", "1e6", "512" -> bytes. Throws std::invalid_argument.
[[nodiscard]] std::int64_t parse_bytes(std::string_view text);
// "80%" of `total`, or as parse_bytes(). Throws std::invalid_argument.
[[nodiscard]] std::int64_t parse_bytes_or_percent(std::string_view text, std::int64_t total);
// true/yes/on/1, false/no/off/0 in any case. Throws std::invalid_argument.
[[nodiscard]] bool parse_bool(std::string_view text);
// "100ms", "2 s", "1.5" (seconds) -> seconds, at most 1e9. Throws std::invalid_argument.
[[nodiscard]] double parse_duration(std::string_view text);
// Whether `text` is one of false/no/off/disable/disabled, in any case.
[[nodiscard]] bool is_disabled(std::string_view text);
// 1536 -> "1.50 KiB".
[[nodiscard]] std::string format_bytes(double bytes);
[[nodiscard]] std::string format_bytes(std::integral auto bytes) {
    return format_bytes(static_cast<double>(bytes));
}

}  // namespace rapidsmpf::config
