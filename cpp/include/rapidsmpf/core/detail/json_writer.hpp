// JSON text, written piece by piece.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rapidsmpf {

// Writes indented JSON; the caller opens and closes what belongs together.
class JsonWriter {
  public:
    JsonWriter& begin_object() { return open('{'); }
    JsonWriter& end_object() { return close('}'); }
    JsonWriter& begin_array() { return open('['); }
    JsonWriter& end_array() { return close(']'); }
    JsonWriter& key(std::string_view name);
    JsonWriter& value(std::string_view text);
    JsonWriter& value(char const* text) { return value(std::string_view{text}); }
    JsonWriter& value(bool flag) { return literal(flag ? "true" : "false"); }
    template <std::integral T>
        requires(!std::same_as<T, bool>)
    JsonWriter& value(T number) {
        return literal(std::to_string(number));
    }
    JsonWriter& null() { return literal("null"); }
    template <typename T>
    JsonWriter& value(std::vector<T> const& values) {
        begin_array();
        for (auto const& entry : values) {
            value(entry);
        }
        return end_array();
    }
    template <typename T>
    JsonWriter& field(std::string_view name, T const& content) {
        return key(name).value(content);
    }
    [[nodiscard]] std::string const& text() const noexcept { return text_; }

  private:
    JsonWriter& open(char bracket);
    JsonWriter& close(char bracket);
    JsonWriter& literal(std::string_view text);
    void place();
    void quote(std::string_view text);

    std::string text_;
    std::size_t depth_{0};
    bool first_{true};
    bool after_key_{false};
};

}  // namespace rapidsmpf
