// Page-locked memory: slabs of the host's memory, locked as they are needed.
//
// A slab is made of huge pages, touched by several threads, and locked in one go. So 4 GiB take half a second, where
// cudaMallocHost() takes two; and the copy engines run at the link's speed, where they reach a tenth to a third of it in memory of
// the driver's own pools on a virtual machine (benchmarks/results/gpu_pinned_h200.json). A thread makes slabs ahead of what is
// asked for. Slabs stay until the pool goes.
#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/detail/free_extents.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/fork.hpp>
#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/device/detail/returned_ranges.hpp>

#include "memory/resources/pinned_pool.hpp"

namespace rapidsmpf::memory {

namespace {

using device::detail::check_cuda;
using device::detail::OnDevice;

constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = std::size_t{2} << 20U;
// Slabs grow from the one to the other.
constexpr std::size_t first_slab = std::size_t{64} << 20U;
constexpr std::size_t largest_slab = std::size_t{1} << 30U;
// One thread touches some GB a second, and memory takes more than one.
constexpr unsigned most_touching = 8;

int numa_node_of_this_thread() {
    unsigned cpu{0};
    unsigned node{0};
    return ::getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : 0;
}

// Memory of the host, from one node as long as that has any, locked for the GPUs.
class Slab {
  public:
    // Throws OutOfMemory when there is not as much, or it must not be locked.
    Slab(std::size_t size, int numa_node, int ordinal) : size_{size} {
        void* const mapped = ::mmap(
            nullptr, size + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
            -1, 0);
        if (mapped == MAP_FAILED) {
            throw OutOfMemory{"mmap of memory to be locked: " + std::system_category().message(errno)};
        }
        mapping_ = static_cast<std::byte*>(mapped);
        base_ = mapping_ + (huge_page - std::bit_cast<std::uintptr_t>(mapped) % huge_page) % huge_page;
        ::madvise(base_, size_, MADV_HUGEPAGE);
        prefer(numa_node);
        touch();
        try {
            OnDevice const here{ordinal};
            auto const status = cudaHostRegister(base_, size_, cudaHostRegisterPortable);
            if (status == cudaErrorMemoryAllocation || status == cudaErrorOperatingSystem) {
                (void)cudaGetLastError();
                throw OutOfMemory{std::string{"cudaHostRegister: "} + cudaGetErrorString(status)};
            }
            check_cuda(status, "cudaHostRegister");
        } catch (...) {
            ::munmap(mapping_, size_ + huge_page);
            throw;
        }
    }
    Slab(Slab const&) = delete;
    Slab& operator=(Slab const&) = delete;
    ~Slab() {
        (void)cudaHostUnregister(base_);
        ::munmap(mapping_, size_ + huge_page);
    }

    [[nodiscard]] std::byte* base() const noexcept { return base_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

  private:
    void prefer(int node) const noexcept {
        constexpr int preferred = 1;  // MPOL_PREFERRED
        constexpr std::size_t bits = 8 * sizeof(unsigned long);
        constexpr std::size_t most = 1024;
        if (node < 0 || static_cast<std::size_t>(node) >= most) {
            return;
        }
        unsigned long mask[most / bits] = {};
        mask[static_cast<std::size_t>(node) / bits] = 1UL << (static_cast<std::size_t>(node) % bits);
        (void)::syscall(SYS_mbind, base_, size_, preferred, mask, most, 0);  // a wish
    }

    void touch() const {
        auto const cores = std::max(1U, std::thread::hardware_concurrency());
        auto const share = round_up(size_ / std::min(cores, most_touching) + 1, huge_page);
        std::vector<std::jthread> threads;
        auto const touch_range = [this](std::size_t begin, std::size_t end) {
            for (auto at = begin; at < end; at += page) {
                base_[at] = std::byte{0};
            }
        };
        try {
            for (std::size_t begin = share; begin < size_; begin += share) {
                threads.emplace_back(touch_range, begin, std::min(begin + share, size_));
            }
        } catch (std::system_error const&) {
            touch_range(0, size_);  // there are no more threads
        }
        touch_range(0, std::min(share, size_));
    }

    std::byte* mapping_{nullptr};
    std::byte* base_{nullptr};
    std::size_t size_;
};

class CudaPinnedPool final : public PinnedMemoryResource {
  public:
    explicit CudaPinnedPool(Properties const& properties)
        : PinnedMemoryResource{properties},
          numa_node_{properties.numa_node.value_or(numa_node_of_this_thread())},
          returned_{Device::current()} {
        check_cuda(cudaGetDevice(&ordinal_), "cudaGetDevice");
        int can_lock{0};
        check_cuda(
            cudaDeviceGetAttribute(&can_lock, cudaDevAttrHostRegisterSupported, ordinal_),
            "cudaDeviceGetAttribute");
        RAPIDSMPF_EXPECTS(
            can_lock != 0, "this GPU cannot use memory of the host that is locked later", std::runtime_error);
        target_ = properties.initial_pool_size;
        grower_ = std::jthread{[this](std::stop_token const& stop) { grow_ahead(stop); }};
    }

    ~CudaPinnedPool() override {
        grower_.request_stop();
        changed_.notify_all();
        grower_.join();
        try {
            returned_.take_all_back([](Range const&) {});
        } catch (std::exception const&) {  // NOLINT(bugprone-empty-catch)
            // The GPU is lost: it uses nothing.
        }
    }

    [[nodiscard]] void* allocate(std::size_t bytes, Stream /*stream*/) override {
        if (bytes == 0) {
            return nullptr;
        }
        auto const size = round_up(bytes, page);
        UniqueLock lock{mutex_};
        for (;;) {
            auto* found = take(size);
            if (found == nullptr) {
                returned_.take_back([this](Range const& range) {
                    mutex_.assert_held();
                    give(range);
                });
                found = take(size);
            }
            if (found != nullptr) {
                think_ahead();
                return found;
            }
            if (growing_) {
                changed_.wait(lock, [this]() RAPIDSMPF_REQUIRES(mutex_) { return !growing_; });
                continue;
            }
            // Another thread may be about to release what is missing; without a bound that is no reason to wait.
            auto const room = this->room();
            if (size > room || !grow(std::min(std::max(next_slab(), size), room), size)) {
                bool any = false;
                returned_.take_all_back([&](Range const& range) {
                    mutex_.assert_held();
                    give(range);
                    any = true;
                });
                if (any) {
                    continue;
                }
                throw OutOfMemory{
                    "cannot allocate " + config::format_bytes(bytes) + " of page-locked host memory"
                    + (properties().max_pool_size == 0
                           ? std::string{}
                           : " (pinned_max_pool_size is " + config::format_bytes(properties().max_pool_size)
                                 + ")")};
            }
        }
    }

    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override {
        if (pointer == nullptr) {
            return;
        }
        auto const size = round_up(bytes, page);
        try {
            MutexLock const lock{mutex_};
            used_ -= size;
            returned_.put(stream, Range{static_cast<std::byte*>(pointer), size});
        } catch (std::bad_alloc const&) {  // NOLINT(bugprone-empty-catch)
            // There is no memory to remember the block by: no caller gets it any more.
        }
    }

  private:
    struct Range {
        std::byte* begin;
        std::size_t size;
    };
    struct Part {
        std::unique_ptr<Slab> slab;
        FreeExtents<std::uint64_t> free;
    };

    [[nodiscard]] std::byte* take(std::size_t size) RAPIDSMPF_REQUIRES(mutex_) {
        for (auto& [base, part] : parts_) {
            if (auto const found = part.free.take(size)) {
                used_ += size;
                return part.slab->base() + found->offset;
            }
        }
        return nullptr;
    }

    void give(Range const& range) {
        mutex_.assert_held();
        auto& part = std::prev(parts_.upper_bound(range.begin))->second;
        auto const offset = static_cast<std::uint64_t>(range.begin - part.slab->base());
        part.free.insert({offset, range.size});
    }

    // Bytes that slabs may still be made of.
    [[nodiscard]] std::size_t room() const RAPIDSMPF_REQUIRES(mutex_) {
        auto const most = properties().max_pool_size;
        return most == 0 ? std::size_t{1} << 60U
                         : most / page * page - std::min(most / page * page, capacity_);
    }
    [[nodiscard]] std::size_t next_slab() const RAPIDSMPF_REQUIRES(mutex_) {
        return std::clamp(capacity_, first_slab, largest_slab);
    }

    // Has a slab made in the background when little is left, so that no caller has to wait for the next.
    void think_ahead() RAPIDSMPF_REQUIRES(mutex_) {
        if (used_ > capacity_ / 4 * 3 && target_ <= capacity_) {
            target_ = capacity_ + next_slab();
            changed_.notify_all();
        }
    }

    // Makes a slab of `size` bytes, or if there are no as many of `least`; returns whether there is one more.
    bool grow(std::size_t size, std::size_t least) RAPIDSMPF_REQUIRES(mutex_) {
        growing_ = true;
        std::unique_ptr<Slab> slab;
        {
            MutexUnlock const unlocked{mutex_};
            for (auto const bytes : {size >= huge_page ? size / huge_page * huge_page : size, least}) {
                try {
                    if (!slab && bytes >= least) {
                        slab = std::make_unique<Slab>(bytes, numa_node_, ordinal_);
                    }
                } catch (std::exception const&) {  // NOLINT(bugprone-empty-catch)
                    // The call that needs the memory reports what is missing.
                }
            }
        }
        growing_ = false;
        bool const made = slab != nullptr;
        if (made) {
            capacity_ += slab->size();
            auto& part = parts_[slab->base()];
            part.free.insert({0, slab->size()});
            part.slab = std::move(slab);
        }
        changed_.notify_all();
        return made;
    }

    void grow_ahead(std::stop_token const& stop) {
        UniqueLock lock{mutex_};
        while (!stop.stop_requested()) {
            auto const wanted = std::min(target_ - std::min(target_, capacity_), room());
            if (growing_ || wanted < page) {
                changed_.wait(lock, stop, [this]() RAPIDSMPF_REQUIRES(mutex_) {
                    return !growing_ && target_ > capacity_ && room() >= page;
                });
                continue;
            }
            if (!grow(std::min(round_up(wanted, page), largest_slab), page)) {
                target_ = capacity_;  // a wish, not a need
            }
        }
    }

    int const numa_node_;
    int ordinal_{0};

    Mutex mutex_;
    std::condition_variable_any changed_;
    std::map<std::byte*, Part> parts_ RAPIDSMPF_GUARDED_BY(mutex_);  // by where they begin
    device::ReturnedRanges<Range> returned_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::size_t capacity_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::size_t used_ RAPIDSMPF_GUARDED_BY(mutex_){0};    // what has not come back
    std::size_t target_ RAPIDSMPF_GUARDED_BY(mutex_){0};  // that slabs are made for in the background
    bool growing_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    std::jthread grower_;
};

}  // namespace

std::shared_ptr<PinnedMemoryResource> make_pinned_pool(
    PinnedMemoryResource::Properties const& properties, std::string& reason) {
    if (Device::current().kind() != DeviceKind::cuda) {
        reason = "the compute device is the CPU, and only a GPU can use it";
        return nullptr;
    }
    try {
        auto pool = std::make_shared<CudaPinnedPool>(properties);
        keep_in_forks(pool);
        return pool;
    } catch (std::exception const& error) {
        (void)cudaGetLastError();
        reason = error.what();
        return nullptr;
    }
}

}  // namespace rapidsmpf::memory
