#include <rapidsmpf/topology/detail/cpus.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include <sched.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::topology {

namespace {

struct FreeCpuSet {
    void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

// More than any kernel is built for.
constexpr int most_cpus = 1 << 16;

}  // namespace

std::string format_list(std::vector<int> numbers) {
    std::sort(numbers.begin(), numbers.end());
    std::string text;
    for (std::size_t i = 0; i < numbers.size();) {
        auto last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
            ++last;
        }
        text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
        if (last > i) {
            text += "-" + std::to_string(numbers[last]);
        }
        i = last + 1;
    }
    return text;
}

std::vector<int> parse_list(std::string_view text) {
    std::vector<bool> named(most_cpus);  // however often a text names them
    while (!text.empty()) {
        auto const end = text.find_first_of(",\n");
        auto const range = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        int first = 0;
        auto const* const stop = range.data() + range.size();
        auto const [after, error] = std::from_chars(range.data(), stop, first);
        if (error != std::errc{} || first < 0) {
            continue;
        }
        int last = first;
        if (after != stop && (*after != '-' || std::from_chars(after + 1, stop, last).ec != std::errc{})) {
            continue;
        }
        for (int number = first; number <= last && number < most_cpus; ++number) {
            named[static_cast<std::size_t>(number)] = true;
        }
    }
    std::vector<int> numbers;
    for (int number = 0; number < most_cpus; ++number) {
        if (named[static_cast<std::size_t>(number)]) {
            numbers.push_back(number);
        }
    }
    return numbers;
}

std::vector<int> usable_cpus() {
    // The kernel refuses a set smaller than its own: grow until it takes it.
    for (int count = 1024; count <= most_cpus; count *= 2) {
        CpuSet const set{CPU_ALLOC(static_cast<unsigned>(count))};
        auto const size = CPU_ALLOC_SIZE(static_cast<unsigned>(count));
        CPU_ZERO_S(size, set.get());
        if (::sched_getaffinity(0, size, set.get()) != 0) {
            if (errno == EINVAL) {
                continue;
            }
            break;
        }
        std::vector<int> cpus;
        for (int cpu = 0; cpu < count; ++cpu) {
            if (CPU_ISSET_S(static_cast<unsigned>(cpu), size, set.get())) {
                cpus.push_back(cpu);
            }
        }
        return cpus;
    }
    throw SystemError{"cannot ask which CPUs may be used", errno};
}

namespace {

// `thread` 0: the calling one.
int bind_thread(pid_t thread, std::span<int const> cpus) noexcept {
    if (cpus.empty()) {
        return 0;
    }
    auto const count = static_cast<unsigned>(*std::max_element(cpus.begin(), cpus.end()) + 1);
    CpuSet const set{CPU_ALLOC(count)};
    if (!set) {
        return ENOMEM;
    }
    auto const size = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(size, set.get());
    for (auto const cpu : cpus) {
        CPU_SET_S(static_cast<unsigned>(cpu), size, set.get());
    }
    return ::sched_setaffinity(thread, size, set.get()) == 0 ? 0 : errno;
}

}  // namespace

int bind_to_cpus(std::span<int const> cpus) noexcept {
    return bind_thread(0, cpus);
}

int bind_process_to_cpus(std::span<int const> cpus) {
    // The calling thread first: what it starts from now on is bound already.
    if (auto const error = bind_to_cpus(cpus)) {
        return error;
    }
    std::error_code ignored;
    for (auto const& entry : std::filesystem::directory_iterator{"/proc/self/task", ignored}) {
        auto const error = bind_thread(static_cast<pid_t>(std::stol(entry.path().filename())), cpus);
        if (error != 0 && error != ESRCH) {  // a thread may have ended
            return error;
        }
    }
    return 0;
}

}  // namespace rapidsmpf::topology
