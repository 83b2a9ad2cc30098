#include <rapidsmpf/core/detail/json_writer.hpp>

#include <array>
#include <cstdio>

namespace rapidsmpf {

void JsonWriter::place() {
    if (after_key_) {
        after_key_ = false;
        return;
    }
    if (depth_ == 0) {
        return;
    }
    text_ += first_ ? "\n" : ",\n";
    text_.append(2 * depth_, ' ');
    first_ = false;
}

JsonWriter& JsonWriter::open(char bracket) {
    place();
    text_ += bracket;
    ++depth_;
    first_ = true;
    return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
    --depth_;
    if (!first_) {
        text_ += '\n';
        text_.append(2 * depth_, ' ');
    }
    text_ += bracket;
    first_ = false;
    return *this;
}

void JsonWriter::quote(std::string_view text) {
    text_ += '"';
    for (char const c : text) {
        if (c == '"' || c == '\\') {
            text_ += '\\';
            text_ += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            std::array<char, 8> code{};
            std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
            text_ += code.data();
        } else {
            text_ += c;
        }
    }
    text_ += '"';
}

JsonWriter& JsonWriter::key(std::string_view name) {
    place();
    quote(name);
    text_ += ": ";
    after_key_ = true;
    return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
    place();
    quote(text);
    return *this;
}

JsonWriter& JsonWriter::literal(std::string_view text) {
    place();
    text_ += text;
    return *this;
}

}  // namespace rapidsmpf
