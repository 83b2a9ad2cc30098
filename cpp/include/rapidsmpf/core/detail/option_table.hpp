// The options of the library: one table of keys, types, defaults and meanings, from which docs/options.md is
// written, and the typed getters that every from_options() uses.
//
// A getter takes a key of its own type, checked when the program is compiled: a misspelt key, or one of
// another type, does not compile. On first use it reads the option's text, or the default of the table when the
// option is not set, and the value stays (config.hpp), as bool, int64, double or string. Values that cannot be read
// throw std::invalid_argument with the option's name in the message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <rapidsmpf/core/config.hpp>

namespace rapidsmpf::config {

enum class OptionType : std::uint8_t {
    boolean,   // true/yes/y/on/1, false/no/n/off/0
    count,     // a whole number, at least 1
    bytes,     // "1 GiB", "512"
    share,     // bytes, or a percentage of something
    fraction,  // "90%" or "0.9"
    duration,  // "100ms", "2 s", "1.5" (seconds); more than 0
    text,
};

// Whether false/no/off/disable/disabled is a value, too.
enum class OptionOff : bool { no = false, yes = true };

// Whether an option changes anything in this version; else it is accepted so that scripts run unchanged.
enum class OptionEffect : bool { none = false, full = true };

struct OptionInfo {
    std::string_view key;
    OptionType type;
    OptionOff off;
    // As a user would write it. Empty: what `meaning` says.
    std::string_view default_text;
    OptionEffect effect;
    std::string_view meaning;
    // Of text, the words that are allowed, separated by "|"; empty: any.
    std::string_view words;
};

inline constexpr auto option_table = [] {
    using enum OptionType;
    constexpr auto never_off = OptionOff::no;
    constexpr auto or_off = OptionOff::yes;
    constexpr auto full = OptionEffect::full;
    constexpr auto none = OptionEffect::none;
    // clang-format off: a table reads by rows
    return std::to_array<OptionInfo>({
        // General.
        {"log", text, never_off, "WARN", full, "What is logged, by level.",
         "NONE|PRINT|WARN|INFO|DEBUG|TRACE"},
        {"statistics", boolean, never_off, "false", full, "Collect statistics.", {}},
        {"num_streaming_threads", count, never_off, "1", full,
         "Threads that run the coroutines of the streaming runtime.", {}},
        {"num_py_executors", count, never_off, "1", full,
         "Threads that run the coroutines of Python actors, each with an event loop.", {}},
        {"num_streams", count, never_off, "16", full,
         "Size of the pool of streams of the compute device.", {}},
        // Memory.
        {"memory_limit", bytes, or_off, "off", full,
         "Host memory that this process may use; off: what its cgroup or the machine has, over the ranks on the "
         "host.", {}},
        {"spill_device_limit", share, or_off, "80%", full,
         "Memory of the compute device to use, in bytes or as a share of what this process may use; off: "
         "unlimited.", {}},
        {"spill_high_water", fraction, never_off, "90%", full,
         "The part of the limit at which spilling begins.", {}},
        {"spill_low_water", fraction, never_off, "80%", full,
         "The part of the limit down to which it goes on.", {}},
        {"periodic_spill_check", duration, or_off, "1ms", full,
         "Pause between checks of memory pressure; off: no checks.", {}},
        {"memory_reserve_timeout", duration, never_off, "100ms", full,
         "How long a reservation waits for memory while nothing becomes free.", {}},
        {"allow_overbooking_by_default", boolean, never_off, "true", full,
         "Whether an actor's reservation may exceed the limit after that wait.", {}},
        {"pinned_memory", boolean, never_off, "false", full,
         "Use page-locked host memory as a tier between device and host.", {}},
        {"pinned_initial_pool_size", share, never_off, "0", full,
         "Page-locked memory to start with, in bytes or as a share of the host's.", {}},
        {"pinned_max_pool_size", share, or_off, "80%", full,
         "The most page-locked memory, in bytes or as a share of the host's; off: unlimited.", {}},
        // Spill files.
        {"spill_directory", text, never_off, "", full,
         "Folder of the spill files; not set: `TMPDIR`, else `/tmp`.", {}},
        {"spill_disk_limit", share, or_off, "off", full,
         "The most bytes in spill files, or a share of their file system; off: unlimited.", {}},
        {"spill_io_threads", count, never_off, "8", full, "Threads that read and write spill files.", {}},
        // Exchange.
        {"exchange_gather_limit", bytes, never_off, "16 KiB", full,
         "Chunks up to this size travel together with others of their frame; 0: none do.", {}},
        {"exchange_frame_bytes", bytes, never_off, "4 MiB", full, "Size at which a frame is closed; 64 MiB on a GPU.", {}},
        {"exchange_eager_bytes", bytes, never_off, "64 KiB", full,
         "What may be under way to one rank without having been asked for; 0: nothing.", {}},
        {"exchange_announce_bytes", bytes, never_off, "32 MiB", full,
         "What may be announced to one rank and not granted yet; 1 GiB on a GPU.", {}},
        {"exchange_split_bytes", bytes, never_off, "1 GiB", full,
         "Longer payloads travel as several messages.", {}},
        {"exchange_receive_limit", bytes, never_off, "128 MiB", full,
         "Memory granted to other ranks for what has not arrived yet; a sixteenth of its memory, at least 2 GiB, on a GPU.", {}},
        {"exchange_bundle_bytes", bytes, never_off, "1 MiB", full,
         "Small chunks for one rank are joined to blocks of at most this size; 64 MiB on a GPU. 0: none are.", {}},
        {"exchange_flush_bytes", bytes, never_off, "4 MiB", full,
         "Where small chunks are collected, a rank hears of those for it when there is as much.", {}},
        {"exchange_flush_delay", duration, never_off, "4ms", full,
         "And this time after it heard the last time, however little there is.", {}},
        {"peer_memory", text, never_off, "auto", full,
         "Whether ranks on one host write payloads straight into each other's memory: auto, where the system "
         "allows it; off, payloads always travel as messages.", "auto|off"},
        // Starting.
        {"bootstrap_timeout", duration, never_off, "120 s", full,
         "How long ranks wait for each other at the start.", {}},
        {"ucxx_join_timeout", duration, never_off, "120 s", full,
         "How long a rank waits to be connected to all others.", {}},
        {"ucxx_reach", text, never_off, "anywhere", full,
         "Which ranks join a communicator that is made by hand: anywhere; one-host, those of one machine, for which no "
         "port is opened. The engines set it.", "anywhere|one-host"},
        {"ucxx_progress_mode", text, never_off, "thread-blocking", full,
         "Whether the communication thread sleeps while nothing arrives.", "thread-blocking|thread-polling"},
        {"coordinator_host", text, never_off, "", full,
         "Address at which rank 0 takes the others' liveness connections; not set: `127.0.0.1`, under MPI over "
         "several hosts this host's own.", {}},
        {"mpi_chunk_bytes", bytes, never_off, "1 GiB", full, "Longer messages are split for MPI.", {}},
        // Ranks that do not come.
        {"collective_timeout", duration, or_off, "30 min", full,
         "How long a collective of the user waits for the others if it is called without a timeout; exchanges of queries "
         "wait as long as the others are alive.", {}},
        {"collective_warning", duration, or_off, "60 s", full,
         "After how long a wait for other ranks says in the log who is missing; then after twice as long, and so on.", {}},
        {"liveness_timeout", duration, or_off, "60 s", full,
         "How long a rank may not answer (its process is stopped, its machine gone) before it counts as failed; also read "
         "by rrun. Off: for ever, for debuggers.", {}},
        // Queries on a GPU. The engines read it.
        {"unbounded_file_read_cache", text, never_off, "disabled", full,
         "Where files that queries on a GPU have read stay for later ones: host, in the system's page cache, where they are "
         "in any case; pinned, mapped and page-locked; device, as compressed columns in device memory that nothing else "
         "needs. No effect on the CPU.", "disabled|host|pinned|device"},
        // For bootstrap_dask_cluster(). On its workers, an option with the prefix `dask_` overrides the option without it; unset, it
        // has that option's value.
        {"dask_spill_device", share, or_off, "80%", full,
         "spill_device_limit of the workers of bootstrap_dask_cluster().", {}},
        {"dask_spill_to_pinned_memory", boolean, never_off, "false", full,
         "pinned_memory of these workers.", {}},
        {"dask_oom_protection", boolean, never_off, "false", none,
         "Fall back on managed memory on Dask workers with a GPU.", {}},
        {"dask_periodic_spill_check", duration, or_off, "1ms", full,
         "periodic_spill_check of these workers.", {}},
        {"dask_statistics", boolean, never_off, "false", full, "statistics of these workers.", {}},
        {"dask_print_statistics", boolean, never_off, "true", full,
         "Print the statistics of a worker that has dask_statistics when it ends.", {}},
        {"dask_staging_spill_buffer", bytes, or_off, "128 MiB", none,
         "Staging buffer of spilling on Dask workers.", {}},
    });
    // clang-format on
}();

// The row of a key; does not compile when there is none.
consteval OptionInfo const& option_info(std::string_view key) {
    for (auto const& info : option_table) {
        if (info.key == key) {
            return info;
        }
    }
    throw std::invalid_argument{"no option of that name is in the table"};
}

// The name of an option of a type. Made from a literal.
template <OptionType type, OptionOff off>
class OptionKey {
  public:
    consteval OptionKey(char const* key) : info_{&option_info(key)} {  // NOLINT: a literal is a key
        if (info_->type != type || info_->off != off) {
            throw std::invalid_argument{"the option has another type"};
        }
    }
    [[nodiscard]] OptionInfo const& info() const noexcept { return *info_; }

  private:
    OptionInfo const* info_;
};

template <OptionType type>
using Key = OptionKey<type, OptionOff::no>;
template <OptionType type>
using KeyOrOff = OptionKey<type, OptionOff::yes>;

// What a share is of; asked only when the option is a percentage.
using Total = std::function<std::int64_t()>;

[[nodiscard]] bool get_bool(Options const& options, Key<OptionType::boolean> key);
[[nodiscard]] std::int64_t get_count(Options const& options, Key<OptionType::count> key);
[[nodiscard]] std::int64_t get_bytes(Options const& options, Key<OptionType::bytes> key);
[[nodiscard]] std::int64_t get_share(Options const& options, Key<OptionType::share> key, Total const& total);
// In (0, 1].
[[nodiscard]] double get_fraction(Options const& options, Key<OptionType::fraction> key);
[[nodiscard]] double get_seconds(Options const& options, Key<OptionType::duration> key);
[[nodiscard]] std::string get_text(Options const& options, Key<OptionType::text> key);

// Nothing when the option is off.
[[nodiscard]] std::optional<std::int64_t> get_optional_bytes(
    Options const& options, KeyOrOff<OptionType::bytes> key);
[[nodiscard]] std::optional<std::int64_t> get_optional_share(
    Options const& options, KeyOrOff<OptionType::share> key, Total const& total);
[[nodiscard]] std::optional<double> get_optional_seconds(
    Options const& options, KeyOrOff<OptionType::duration> key);

// Throws std::invalid_argument, with the option's name in the message, unless `text` is a value of the option `key`;
// blank text is one: it means the default. std::out_of_range when no option of that name is in the table.
void check_option(std::string_view key, std::string const& text);

// What a type is called in the documentation.
[[nodiscard]] std::string_view to_string(OptionType type) noexcept;
// The enumerator's own name.
[[nodiscard]] std::string_view name_of(OptionType type) noexcept;

}  // namespace rapidsmpf::config
