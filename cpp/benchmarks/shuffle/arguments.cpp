#include "arguments.hpp"

#include <stdexcept>

#include <rapidsmpf/core/config.hpp>

namespace rapidsmpf::bench {

Arguments::Arguments(int argc, char** argv) {
    if (argc < 2) {
        throw std::invalid_argument{"name a case: packed, table, latency, skew, pattern, wait"};
    }
    name_ = argv[1];
    for (int i = 2; i < argc; i += 2) {
        std::string const key{argv[i]};
        if (key.rfind("--", 0) != 0 || i + 1 == argc) {
            throw std::invalid_argument{"expected `--name value`, found " + key};
        }
        values_[key.substr(2)] = argv[i + 1];
        used_[key.substr(2)] = false;
    }
}

std::string Arguments::text(std::string_view key, std::string_view fallback) const {
    auto const found = values_.find(key);
    if (found == values_.end()) {
        return std::string{fallback};
    }
    used_.find(key)->second = true;
    return found->second;
}

std::size_t Arguments::size(std::string_view key, std::string_view fallback) const {
    return static_cast<std::size_t>(config::parse_bytes(text(key, fallback)));
}

std::vector<std::size_t> Arguments::sizes(std::string_view key, std::string_view fallback) const {
    auto const all = text(key, fallback);
    std::vector<std::size_t> found;
    for (std::size_t begin = 0; begin <= all.size();) {
        auto const end = std::min(all.find(',', begin), all.size());
        found.push_back(static_cast<std::size_t>(config::parse_bytes(all.substr(begin, end - begin))));
        begin = end + 1;
    }
    return found;
}

void Arguments::check_all_used() const {
    for (auto const& [key, used] : used_) {
        if (!used) {
            throw std::invalid_argument{"the case " + name_ + " has no --" + key};
        }
    }
}

}  // namespace rapidsmpf::bench
