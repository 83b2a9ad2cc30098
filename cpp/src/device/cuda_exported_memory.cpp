#include "device/cuda_exported_memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <utility>

#include <cuda_runtime_api.h>
#include <sys/random.h>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/detail/free_extents.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/device/detail/returned_ranges.hpp>

#include "device/cuda_streams.hpp"
#include "device/quarantine.hpp"

namespace rapidsmpf::device::detail {

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20U;
// Regions grow from the one to the other; a block that needs more gets a region as large as itself.
constexpr std::uint64_t first_region = 64 * MiB;
constexpr std::uint64_t largest_region = 4096 * MiB;
// So much of the GPU's memory may go to regions.
constexpr double largest_share = 0.5;
// The sizes of blocks are multiples of this, so that what is left over between them stays of use.
constexpr std::uint64_t grain = 4096;

// Identifies a process's memory, and what is in the way of another's using it.
struct Identity {
    std::array<std::uint8_t, 16> secret{};
    std::array<std::uint8_t, 16> gpu{};
    std::uint32_t version{1};
};

std::vector<std::uint8_t> to_bytes(Identity const& identity) {
    std::vector<std::uint8_t> bytes(sizeof(Identity));
    std::memcpy(bytes.data(), &identity, sizeof(Identity));
    return bytes;
}

class CudaExportedMemory final : public ExportedMemory {
  public:
    CudaExportedMemory(Device& device, int ordinal) : ordinal_{ordinal}, returned_{device} {
        OnDevice const here{ordinal_};
        cudaDeviceProp properties{};
        check_cuda(cudaGetDeviceProperties(&properties, ordinal_), "cudaGetDeviceProperties");
        static_assert(sizeof(properties.uuid.bytes) == std::tuple_size_v<decltype(identity_.gpu)>);
        std::memcpy(identity_.gpu.data(), properties.uuid.bytes, identity_.gpu.size());
        if (::getrandom(identity_.secret.data(), identity_.secret.size(), 0)
            != static_cast<ssize_t>(identity_.secret.size())) {
            throw std::runtime_error{"no random bytes to name this process's GPU memory by"};
        }
        limit_ = static_cast<std::uint64_t>(static_cast<double>(properties.totalGlobalMem) * largest_share);
        // Links are slower than what computes: what can be on its way goes first.
        write_streams_.open(8, StreamPriority::highest);
        add_region(first_region);
    }

    [[nodiscard]] std::vector<std::uint8_t> identity() const override { return to_bytes(identity_); }

    [[nodiscard]] std::shared_ptr<ExportedBlock> allocate(std::size_t bytes, Stream stream) override {
        OnDevice const here{ordinal_};
        quarantine_.settle();
        auto const size = round_up(std::max<std::uint64_t>(bytes, 1), grain);
        MutexLock const lock{mutex_};
        auto found = take_locked(size);
        if (!found) {
            take_back_locked();
            found = take_locked(size);
        }
        if (!found && grow_locked(size)) {
            found = take_locked(size);
        }
        if (!found) {
            return nullptr;
        }
        used_ += size;
        auto const [region, offset] = *found;
        return std::make_shared<Block>(
            *this, regions_[region].base + offset, region, offset, static_cast<std::size_t>(size), stream);
    }

    [[nodiscard]] std::uint32_t num_regions() const noexcept override { return num_regions_; }

    [[nodiscard]] ExportedRegion region(std::uint32_t id) const override {
        MutexLock const lock{mutex_};
        auto const& found = regions_.at(id);
        auto const* const begin = reinterpret_cast<std::uint8_t const*>(&found.handle);
        return ExportedRegion{id, found.size, {begin, begin + sizeof(found.handle)}};
    }

    [[nodiscard]] std::shared_ptr<ImportedMemory> import(
        std::span<std::uint8_t const> identity, std::string& reason) override;

    [[nodiscard]] Stream next_write_stream() override { return write_streams_.next(); }

    void quarantine(std::shared_ptr<ExportedBlock> block, std::function<bool()> is_safe) override {
        quarantine_.put(std::move(block), std::move(is_safe));
    }

    [[nodiscard]] std::size_t used() const noexcept override { return used_; }
    [[nodiscard]] std::size_t capacity() const noexcept override { return capacity_; }

    // For this process itself.
    [[nodiscard]] std::byte* at(std::uint32_t id, std::uint64_t offset, std::uint64_t bytes) const {
        MutexLock const lock{mutex_};
        if (id >= regions_.size() || offset > regions_[id].size || bytes > regions_[id].size - offset) {
            return nullptr;
        }
        return regions_[id].base + offset;
    }

  private:
    struct Region {
        std::byte* base{nullptr};
        std::uint64_t size{0};
        cudaIpcMemHandle_t handle{};
        FreeExtents<std::uint64_t> free;
    };
    struct Range {
        std::uint32_t region;
        std::uint64_t offset;
        std::uint64_t size;
    };
    class Block final : public ExportedBlock {
      public:
        Block(
            CudaExportedMemory& memory, std::byte* data, std::uint32_t region, std::uint64_t offset,
            std::size_t size, Stream stream) noexcept
            : ExportedBlock{data, region, offset, size, stream}, memory_{memory} {}
        Block(Block const&) = delete;
        Block& operator=(Block const&) = delete;
        ~Block() override { memory_.put(*this); }

      private:
        CudaExportedMemory& memory_;
    };

    [[nodiscard]] std::optional<std::pair<std::uint32_t, std::uint64_t>> take_locked(std::uint64_t size)
        RAPIDSMPF_REQUIRES(mutex_) {
        for (std::uint32_t id = 0; id < regions_.size(); ++id) {
            if (auto const found = regions_[id].free.take(size)) {
                return std::pair{id, found->offset};
            }
        }
        return std::nullopt;
    }

    // Doubles what there is, as long as the bound and the GPU's memory allow it.
    [[nodiscard]] bool grow_locked(std::uint64_t size) RAPIDSMPF_REQUIRES(mutex_) {
        auto const room = limit_ - std::min<std::uint64_t>(limit_, capacity_);
        if (size > room) {
            return false;
        }
        auto const generous = std::clamp<std::uint64_t>(capacity_, size, std::max(size, largest_region));
        for (auto const wanted : {std::min(generous, room), size}) {
            try {
                add_region(round_up(wanted, 2 * MiB));
                return true;
            } catch (OutOfMemory const&) {
                continue;
            }
        }
        return false;
    }

    void add_region(std::uint64_t size) RAPIDSMPF_REQUIRES(mutex_) {
        Region region;
        region.size = size;
        void* base = nullptr;
        check_cuda(cudaMalloc(&base, size), "cudaMalloc of memory for other processes to write to");
        region.base = static_cast<std::byte*>(base);
        try {
            check_cuda(cudaIpcGetMemHandle(&region.handle, base), "cudaIpcGetMemHandle");
            region.free.insert({0, size});
            regions_.push_back(std::move(region));
        } catch (...) {
            (void)cudaFree(base);
            throw;
        }
        capacity_ += size;
        num_regions_ = static_cast<std::uint32_t>(regions_.size());
    }

    void put(Block const& block) noexcept {
        used_ -= block.size();
        try {
            MutexLock const lock{mutex_};
            returned_.put(block.stream(), Range{block.region(), block.offset(), block.size()});
        } catch (std::bad_alloc const&) {  // NOLINT(bugprone-empty-catch)
            // There is no memory to remember the block by: no caller gets it any more.
        }
    }

    void take_back_locked() RAPIDSMPF_REQUIRES(mutex_) {
        returned_.take_back([&](Range const& range) {
            mutex_.assert_held();
            regions_[range.region].free.insert({range.offset, range.size});
        });
    }

    int const ordinal_;
    Identity identity_;
    std::uint64_t limit_{0};
    std::atomic<std::size_t> used_{0};
    std::atomic<std::size_t> capacity_{0};
    std::atomic<std::uint32_t> num_regions_{0};
    CudaStreams write_streams_;
    Quarantine<ExportedBlock> quarantine_;

    mutable Mutex mutex_;
    std::deque<Region> regions_ RAPIDSMPF_GUARDED_BY(mutex_);
    ReturnedRanges<Range> returned_ RAPIDSMPF_GUARDED_BY(mutex_);
};

// The regions stay open until the last user of the process's memory releases it.
class OpenedRegions final : public ImportedMemory {
  public:
    explicit OpenedRegions(int ordinal) : ordinal_{ordinal} {}
    ~OpenedRegions() override {
        try {
            OnDevice const here{ordinal_};
            for (auto const& [id, region] : regions_) {
                (void)cudaIpcCloseMemHandle(region.base);
            }
        } catch (std::exception const&) {  // NOLINT(bugprone-empty-catch)
            // The GPU is lost, and with it what was open.
        }
    }

    [[nodiscard]] std::string open(ExportedRegion const& region) override {
        MutexLock const lock{mutex_};
        if (regions_.contains(region.id)) {
            return {};
        }
        cudaIpcMemHandle_t handle{};
        if (region.handle.size() != sizeof(handle)) {
            return "a handle of " + std::to_string(region.handle.size()) + " bytes";
        }
        std::memcpy(&handle, region.handle.data(), sizeof(handle));
        OnDevice const here{ordinal_};
        void* base = nullptr;
        auto const status = cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess);
        if (status != cudaSuccess) {
            (void)cudaGetLastError();
            return std::string{"its GPU's memory cannot be opened (cudaIpcOpenMemHandle): "}
                   + cudaGetErrorString(status);
        }
        regions_.emplace(region.id, Opened{static_cast<std::byte*>(base), region.size});
        return {};
    }

    [[nodiscard]] std::byte* at(std::uint32_t id, std::uint64_t offset, std::uint64_t bytes) const override {
        MutexLock const lock{mutex_};
        auto const found = regions_.find(id);
        if (found == regions_.end() || offset > found->second.size || bytes > found->second.size - offset) {
            return nullptr;
        }
        return found->second.base + offset;
    }

  private:
    struct Opened {
        std::byte* base;
        std::uint64_t size;
    };
    int const ordinal_;
    mutable Mutex mutex_;
    std::map<std::uint32_t, Opened> regions_ RAPIDSMPF_GUARDED_BY(mutex_);
};

// Ranks that are threads of this process write to its memory without a handle.
class OwnRegions final : public ImportedMemory {
  public:
    explicit OwnRegions(CudaExportedMemory const& memory) : memory_{memory} {}
    [[nodiscard]] std::string open(ExportedRegion const& region) override {
        return region.id < memory_.num_regions() ? "" : "there is no such region";
    }
    [[nodiscard]] std::byte* at(std::uint32_t id, std::uint64_t offset, std::uint64_t bytes) const override {
        return memory_.at(id, offset, bytes);
    }

  private:
    CudaExportedMemory const& memory_;
};

struct Imports {
    Mutex mutex;
    // By identity; g++ 12 warns of vectors as keys.
    std::map<std::string, std::weak_ptr<ImportedMemory>> known RAPIDSMPF_GUARDED_BY(mutex);
};

Imports& imports() {
    static Imports imports;
    return imports;
}

std::shared_ptr<ImportedMemory> CudaExportedMemory::import(
    std::span<std::uint8_t const> identity, std::string& reason) {
    Identity theirs;
    if (identity.size() != sizeof(theirs)) {
        reason = "it has another kind of device memory";
        return nullptr;
    }
    std::memcpy(&theirs, identity.data(), sizeof(theirs));
    if (theirs.version != identity_.version) {
        reason = "it has another version of device memory";
        return nullptr;
    }
    std::string const key{identity.begin(), identity.end()};
    auto& all = imports();
    MutexLock const lock{all.mutex};
    auto& known = all.known[key];
    auto found = known.lock();
    if (!found) {
        if (theirs.secret == identity_.secret) {
            found = std::make_shared<OwnRegions>(*this);
        } else {
            found = std::make_shared<OpenedRegions>(ordinal_);
        }
        known = found;
    }
    return found;
}

}  // namespace

std::unique_ptr<ExportedMemory> make_cuda_exported_memory(Device& device, int ordinal, std::string& reason) {
    try {
        return std::make_unique<CudaExportedMemory>(device, ordinal);
    } catch (std::exception const& error) {
        reason = error.what();
        return nullptr;
    }
}

}  // namespace rapidsmpf::device::detail
