// Words of options as people write them.
#pragma once

#include <cctype>
#include <string_view>

namespace rapidsmpf::config {

[[nodiscard]] inline std::string_view trim(std::string_view text) {
    auto const is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
    while (!text.empty() && is_space(text.front())) {
        text.remove_prefix(1);
    }
    while (!text.empty() && is_space(text.back())) {
        text.remove_suffix(1);
    }
    return text;
}

}  // namespace rapidsmpf::config
