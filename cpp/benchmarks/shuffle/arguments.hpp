// The command line of the program: the name of a case, then `--name value` pairs.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rapidsmpf::bench {

class Arguments {
  public:
    // Throws std::invalid_argument for what is not a pair.
    Arguments(int argc, char** argv);

    [[nodiscard]] std::string const& name() const noexcept { return name_; }
    // Sizes are written as "64 KiB" or "1000". Throw std::invalid_argument for what cannot be read.
    [[nodiscard]] std::size_t size(std::string_view key, std::string_view fallback) const;
    [[nodiscard]] std::vector<std::size_t> sizes(std::string_view key, std::string_view fallback) const;
    [[nodiscard]] std::string text(std::string_view key, std::string_view fallback) const;
    // Arguments that the case has not read are mistakes: throws std::invalid_argument that names the first.
    void check_all_used() const;

  private:
    std::string name_;
    std::map<std::string, std::string, std::less<>> values_;
    mutable std::map<std::string, bool, std::less<>> used_;
};

}  // namespace rapidsmpf::bench
