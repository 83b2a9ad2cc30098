// The CPU as compute device: RAM, and work that is done when the call returns.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/device/detail/exported_memory.hpp>
#include <rapidsmpf/device/detail/host_memory.hpp>
#include <rapidsmpf/device/detail/shared_memory.hpp>
#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::device {

namespace {

std::optional<std::int64_t> read_number(std::string const& path) {
    std::ifstream file{path};
    std::int64_t value{0};
    if (file >> value) {
        return value;
    }
    return std::nullopt;  // missing, or "max"
}

// The smallest memory limit between this process's control group and the root of the hierarchy.
std::optional<std::int64_t> hierarchy_limit(std::string base, std::string path, char const* file) {
    std::optional<std::int64_t> smallest;
    for (;;) {
        if (auto const limit = read_number(base + path + "/" + file); limit && *limit > 0) {
            smallest = std::min(*limit, smallest.value_or(std::numeric_limits<std::int64_t>::max()));
        }
        if (path.empty()) {
            return smallest;
        }
        path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
}

// The memory limit of the control group (version 2 or 1) that this process is in.
std::optional<std::int64_t> cgroup_limit() {
    std::ifstream groups{"/proc/self/cgroup"};
    std::optional<std::int64_t> smallest;
    for (std::string line; std::getline(groups, line);) {
        auto const first = line.find(':');
        auto const second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) {
            continue;
        }
        auto const controllers = line.substr(first + 1, second - first - 1);
        auto path = line.substr(second + 1);
        if (path == "/") {
            path.clear();
        }
        std::optional<std::int64_t> limit;
        if (controllers.empty()) {
            limit = hierarchy_limit("/sys/fs/cgroup", path, "memory.max");
        } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
            limit = hierarchy_limit("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
        }
        if (limit) {
            smallest = std::min(*limit, smallest.value_or(std::numeric_limits<std::int64_t>::max()));
        }
    }
    return smallest;
}

// The resident pages of files (libraries, mapped data). To ask for them takes longer than all the rest, and they change
// slowly: so they are asked for now and then.
class FilePages {
  public:
    [[nodiscard]] std::int64_t bytes() {
        constexpr std::int64_t age = 100'000'000;
        auto const now = std::chrono::steady_clock::now().time_since_epoch().count();
        if (now - measured_at_.load(std::memory_order_relaxed) > age) {
            bytes_ = measure();
            measured_at_ = now;
        }
        return bytes_;
    }

  private:
    static std::int64_t measure() {
        constexpr std::string_view field = "RssFile:";
        std::ifstream status{"/proc/self/status"};
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with(field)) {
                return std::atoll(line.c_str() + field.size()) * 1024;
            }
        }
        return 0;
    }
    std::atomic<std::int64_t> measured_at_{std::numeric_limits<std::int64_t>::min() / 2};
    std::atomic<std::int64_t> bytes_{0};
};

// What this process has in memory: all of it, and what of that is files and shared memory. Asked for every millisecond while
// memory moves, so without a stream, which takes longer than the kernel does.
std::pair<std::int64_t, std::int64_t> resident_pages() {
    FileDescriptor const statm{::open("/proc/self/statm", O_RDONLY | O_CLOEXEC)};
    std::array<char, 128> text{};
    if (!statm.is_open() || ::read(statm.get(), text.data(), text.size() - 1) <= 0) {
        return {0, 0};
    }
    char* at = text.data();
    (void)std::strtoll(at, &at, 10);  // address space
    auto const resident = std::strtoll(at, &at, 10);
    auto const shared = std::strtoll(at, &at, 10);
    return {resident, shared};
}

class DoneEvent final : public Event {
  public:
    void record(Stream /*stream*/) override {}
    [[nodiscard]] bool is_done() const override { return true; }
    void synchronize() const override {}
    void wait(Stream /*stream*/) const override {}
};

class CpuDevice final : public Device {
  public:
    CpuDevice() : total_{measure_total()} {}

    [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::cpu; }
    [[nodiscard]] std::string name() const override { return "cpu"; }
    [[nodiscard]] std::int64_t total_memory() const override { return total_; }

    [[nodiscard]] std::int64_t used_memory() const override {
        auto const [resident, shared] = resident_pages();
        auto const page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
        if (!uses_shared_memory()) {
            return resident * page;
        }
        // `shared` is files and shared memory. What of that is mapped of other processes is theirs; what is this
        // process's own counts whichever process touched it.
        return (resident - shared) * page + file_pages_.bytes()
               + static_cast<std::int64_t>(SharedMemory::resident());
    }

    [[nodiscard]] void* allocate(std::size_t bytes, Stream /*stream*/) override {
        return allocate_host(bytes);
    }
    void deallocate(void* pointer, std::size_t bytes, Stream /*stream*/) noexcept override {
        deallocate_host(pointer, bytes);
    }
    void copy(void* destination, void const* source, std::size_t bytes, Stream /*stream*/) override {
        if (bytes > 0) {
            std::memcpy(destination, source, bytes);
        }
    }
    void copy_pieces(std::span<CopyPiece const> pieces, Stream stream) override {
        for (auto const& piece : pieces) {
            copy(piece.destination, piece.source, piece.bytes, stream);
        }
    }
    void gather_copy(
        std::span<CopyPiece const> pieces, Stream /*stream*/, std::uint32_t /*most_processors*/) override {
        for (auto const& piece : pieces) {
            if (piece.bytes > 0) {
                std::memcpy(piece.destination, piece.source, piece.bytes);
            }
        }
    }
    void synchronize(Stream /*stream*/) override {}
    [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<DoneEvent>(); }
    [[nodiscard]] Stream next_stream() override { return Stream{}; }
    [[nodiscard]] Stream next_copy_stream() override { return Stream{}; }
    [[nodiscard]] ExportedMemory* exported_memory(std::string& reason) override {
        reason = "a CPU's memory is shared as host memory";
        return nullptr;
    }

  private:
    static std::int64_t measure_total() {
        std::int64_t const ram =
            static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
        std::int64_t const total = std::min(ram, cgroup_limit().value_or(ram));
        auto const* ranks = std::getenv("RRUN_LOCAL_NRANKS");
        std::int64_t const sharers = ranks == nullptr ? 1 : std::atoll(ranks);
        return total / std::max<std::int64_t>(sharers, 1);
    }

    std::int64_t total_;
    mutable FilePages file_pages_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
    return std::make_unique<CpuDevice>();
}

}  // namespace rapidsmpf::device
