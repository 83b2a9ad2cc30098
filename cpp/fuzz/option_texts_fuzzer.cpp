// What users write: values of options, sizes, durations, lists of CPUs and hosts, addresses, variables of the environment;
// and options as they travel to other ranks.
#include <chrono>
#include <limits>
#include <stdexcept>

#include <unistd.h>

#include <rapidsmpf/bootstrap/detail/slurm.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>
#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/topology/detail/cpus.hpp>

#include "fuzzer.hpp"

extern char** environ;  // NOLINT: POSIX

namespace rapidsmpf::fuzz {

namespace {

using namespace config;

enum class Kind : std::uint8_t { value, option, environment, place, serialised };
constexpr std::uint8_t kinds = 5;
constexpr std::int64_t gib = std::int64_t{1} << 30;

template <typename Read>
bool reads(Read const& read) {
    return takes<std::invalid_argument>(read);
}

// As those who wait do.
void wait_for(double seconds) {
    auto const duration = std::chrono::duration<double>{seconds};
    static_cast<void>(std::chrono::duration_cast<std::chrono::nanoseconds>(duration));
}

void read_value(std::string const& text) {
    static_cast<void>(reads([&] {
        auto const bytes = parse_bytes(text);
        static_cast<void>(parse_bytes(format_bytes(bytes)));
    }));
    for (auto const total : {std::int64_t{0}, 64 * gib, std::numeric_limits<std::int64_t>::max()}) {
        static_cast<void>(reads([&] { static_cast<void>(parse_bytes_or_percent(text, total)); }));
    }
    static_cast<void>(reads([&] { static_cast<void>(parse_bool(text)); }));
    static_cast<void>(reads([&] { wait_for(parse_duration(text)); }));
    static_cast<void>(is_disabled(text));
}

// One option of each type, as its users read it.
void read_option(std::string const& text) {
    Options options{
        {{"Log", text},
         {"statistics", text},
         {" num_streams ", text},
         {"memory_limit", text},
         {"exchange_gather_limit", text},
         {"spill_device_limit", text},
         {"pinned_initial_pool_size", text},
         {"spill_high_water", text},
         {"periodic_spill_check", text},
         {"bootstrap_timeout", text},
         {"spill_directory", text}}};
    auto const total = [] { return 64 * gib; };
    static_cast<void>(reads([&] { static_cast<void>(get_text(options, "log")); }));
    static_cast<void>(reads([&] { static_cast<void>(get_text(options, "spill_directory")); }));
    static_cast<void>(reads([&] { static_cast<void>(get_bool(options, "statistics")); }));
    static_cast<void>(reads([&] { require(get_count(options, "num_streams") > 0, "a count is positive"); }));
    static_cast<void>(
        reads([&] { require(get_bytes(options, "exchange_gather_limit") >= 0, "a size is not negative"); }));
    static_cast<void>(reads([&] { static_cast<void>(get_optional_bytes(options, "memory_limit")); }));
    static_cast<void>(
        reads([&] { static_cast<void>(get_optional_share(options, "spill_device_limit", total)); }));
    static_cast<void>(
        reads([&] { static_cast<void>(get_share(options, "pinned_initial_pool_size", total)); }));
    static_cast<void>(reads([&] {
        auto const part = get_fraction(options, "spill_high_water");
        require(part > 0 && part <= 1, "a fraction is one");
    }));
    static_cast<void>(reads([&] { wait_for(get_seconds(options, "bootstrap_timeout")); }));
    static_cast<void>(
        reads([&] { wait_for(get_optional_seconds(options, "periodic_spill_check").value_or(0)); }));
    for (auto const type :
         {OptionType::boolean, OptionType::count, OptionType::bytes, OptionType::share, OptionType::fraction,
          OptionType::duration, OptionType::text}) {
        static_cast<void>(to_string(type));
        static_cast<void>(name_of(type));
    }
    // The check of each option, as a user's mistake meets it before the option is read.
    for (auto const& info : option_table) {
        static_cast<void>(reads([&] { check_option(info.key, text); }));
    }
}

void read_environment(std::string text) {
    std::vector<char*> entries;
    for (std::size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) {
        entries.push_back(text.data() + at);
        if (text.find('\0', at) == std::string::npos) {
            break;
        }
    }
    entries.push_back(nullptr);
    auto** const own = environ;
    environ = entries.data();
    Options options;
    auto const taken = reads([&] { options = Options{get_environment_variables()}; });
    static_cast<void>(taken);
    environ = own;
    static_cast<void>(options.get_strings());
}

void read_place(std::string const& text) {
    static_cast<void>(reads([&] { static_cast<void>(bootstrap::SocketAddress::parse(text)); }));
    auto const numbers = topology::parse_list(text);
    constexpr std::size_t most_numbers = 1024;  // more take a millisecond for each of many inputs
    require(
        numbers.size() > most_numbers || topology::parse_list(topology::format_list(numbers)) == numbers,
        "a list says the same again");
    require(bootstrap::first_of_hosts(text).size() <= text.size(), "a host is part of the list");
    for (auto const host : {0, 1, std::numeric_limits<std::int32_t>::max()}) {
        static_cast<void>(bootstrap::tasks_of_host(text, host));
    }
}

void read_serialised(Input& input) {
    bool const seal = (input.byte() & 1) != 0;
    auto bytes = copied(input.rest());
    if (seal) {
        auto const crc = crc32(bytes);
        for (unsigned i = 0; i < 4; ++i) {
            bytes.push_back(static_cast<std::uint8_t>(crc >> (8 * i)));
        }
    }
    static_cast<void>(takes([&] {
        auto const options = Options::deserialize(bytes);
        require(
            Options::deserialize(options.serialize()).get_strings() == options.get_strings(),
            "options say the same again");
    }));
}

}  // namespace

void read_input(std::span<std::uint8_t const> bytes) {
    Input input{bytes};
    auto const kind = static_cast<Kind>(input.byte() % kinds);
    if (kind == Kind::serialised) {
        return read_serialised(input);
    }
    std::string const text{text_of(input.rest())};
    switch (kind) {
        case Kind::value:
            return read_value(text);
        case Kind::option:
            return read_option(text);
        case Kind::environment:
            return read_environment(text);
        case Kind::place:
            return read_place(text);
        case Kind::serialised:
            break;
    }
}

std::vector<Bytes> seeds() {
    std::vector<Bytes> all;
    auto const add = [&](Kind kind, std::string_view text) {
        all.push_back(with_kind(static_cast<std::uint8_t>(kind), text));
    };
    for (auto const kind : {Kind::value, Kind::option}) {
        for (auto const* text :
             {"100 MB", "1KiB", "1e6", "512", "80%", "0.9", "true", "off", "100ms", "2 s", "1.5 h",
              "disabled", "WARN", "-3 GiB", "", "9 PiB"}) {
            add(kind, text);
        }
    }
    using namespace std::string_view_literals;
    add(Kind::environment, "RAPIDSMPF_LOG=DEBUG\0PATH=/bin\0RAPIDSMPF_MEMORY_LIMIT=4 GiB\0EMPTY"sv);
    add(Kind::environment, "RAPIDSMPF_=1\0RAPIDSMPF_log=INFO"sv);
    for (auto const* text :
         {"127.0.0.1:4711", "0-3,8,10-11\n", "node[1-3,7],other", "node[01-12].cluster", "2(x3),1", "node7",
          "72,8"}) {
        add(Kind::place, text);
    }
    auto const serialised = Options{{{"log", "DEBUG"}, {"memory_limit", "4 GiB"}, {"empty", ""}}}.serialize();
    all.push_back(with_kind(static_cast<std::uint8_t>(Kind::serialised), with_kind(0, serialised)));
    all.push_back(with_kind(
        static_cast<std::uint8_t>(Kind::serialised),
        with_kind(1, std::span{serialised}.first(serialised.size() - 4))));
    return all;
}

}  // namespace rapidsmpf::fuzz
