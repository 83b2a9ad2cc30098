#include "compute/context.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <variant>

#include <cudf/utilities/pinned_memory.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/memory/resource_adaptor.hpp>
#include <rapidsmpf/memory/rmm_resource.hpp>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

namespace {

using device::detail::check_cuda;
using AnyResource = cuda::mr::any_resource<cuda::mr::device_accessible>;

// Whether blocks come from RMM's current resource, which is going to be ours.
bool is_current_resource(MemoryResource const* resource) {
    if (auto const* const adaptor = dynamic_cast<RmmResourceAdaptor const*>(resource)) {
        return is_current_resource(adaptor->upstream().get());
    }
    return resource == nullptr || dynamic_cast<DeviceMemoryResource const*>(resource) != nullptr;
}

// Memory of the GPU from a pool of CUDA's that keeps what it once had.
std::shared_ptr<MemoryResource> make_device_pool() {
    rmm::mr::cuda_async_memory_resource pool;
    return std::make_shared<RmmResource>(
        rmm::device_async_resource_ref{pool});  // which holds a copy: a shared handle
}

int current_device() {
    int device{0};
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

// The BufferResource's own resource, or else what RMM was told to use, or else a pool.
std::shared_ptr<MemoryResource> upstream_of(BufferResource const& resource) {
    if (!is_current_resource(resource.device_mr().get())) {
        return resource.device_mr();
    }
    auto current = CurrentResource::beneath(current_device());
    if (current == AnyResource{rmm::mr::cuda_memory_resource{}}) {
        return make_device_pool();
    }
    return std::make_shared<RmmResource>(current);
}

// Chunks and what is read ahead are the smaller the less memory there is.
constexpr std::int64_t bytes_a_row = 1024;  // with all that operators make of a chunk, by and large
constexpr std::int64_t least_rows = 65'536;
constexpr std::size_t kept_pass_rows = 16'000'000;

std::size_t at_most(std::size_t value, std::int64_t limit) {
    return std::min(value, static_cast<std::size_t>(limit));
}

RuntimeSettings within(RuntimeSettings settings, std::int64_t limit) {
    settings.chunk_rows = at_most(settings.chunk_rows, std::max(least_rows, limit / bytes_a_row));
    return settings;
}

bool keeps_scans(RuntimeSettings const& settings) {
    return settings.keep_compressed || settings.keep_decoded;
}

ScanSettings scan_settings_of(RuntimeSettings const& settings, std::int64_t limit) {
    ScanSettings scan;
    scan.pass_bytes = at_most(scan.pass_bytes, limit / 32);
    scan.bytes_in_flight = at_most(scan.bytes_in_flight, limit / 8);
    if (keeps_scans(settings)) {
        // By rows alone, the passes of a file are the same whatever columns are read; more bytes only where there is much memory.
        scan.pass_rows = kept_pass_rows;
        scan.pass_bytes = at_most(2 * scan.pass_bytes, limit / 32);
    }
    scan.pass_rows = settings.pass_rows.value_or(scan.pass_rows);
    scan.pass_bytes = settings.pass_bytes.value_or(scan.pass_bytes);
    scan.edge_rows = settings.edge_rows.value_or(scan.edge_rows);
    scan.passes_in_flight = settings.passes_in_flight.value_or(scan.passes_in_flight);
    scan.read_threads = settings.read_threads.value_or(scan.read_threads);
    scan.slab_bytes = std::max<std::size_t>(settings.slab_bytes.value_or(scan.slab_bytes), 4096);
    scan.own_decoder = settings.own_decoder.value_or(scan.own_decoder);
    scan.coded_rows = settings.string_codes ? settings.coded_rows : std::numeric_limits<std::size_t>::max();
    scan.registered_limit = settings.registered_limit.value_or(scan.registered_limit);
    // Registering what queries touch of a file makes 10 GB/s, reading it into slabs 38 to 49, more than is decoded in a second:
    // the first run of PDS-H at SF100 takes 6 s less so, and later runs as long (benchmarks/results/gpu_pdsh_h200.json).
    scan.map_files = settings.map_files.value_or(false);
    scan.read_while_registering = settings.read_while_registering;
    return scan;
}

BufferResource& on_gpu(BufferResource& resource) {
    RAPIDSMPF_EXPECTS(
        resource.device().kind() == DeviceKind::cuda,
        "programs run on a GPU; the compute device of this process is " + resource.device().name(),
        std::runtime_error);
    return resource;
}

}  // namespace

void Work::synchronize() const {
    check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
}

Context::Streams::Streams(Context& context, std::size_t count) : context_{context} {
    streams_.reserve(count);
    {
        MutexLock const lock{context_.mutex_};
        while (streams_.size() < count && !context_.free_streams_.empty()) {
            streams_.push_back(context_.free_streams_.back());
            context_.free_streams_.pop_back();
        }
    }
    while (streams_.size() < count) {
        cudaStream_t stream{};
        check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
        streams_.push_back(stream);
    }
}

Context::Streams::~Streams() {
    MutexLock const lock{context_.mutex_};
    context_.free_streams_.insert(context_.free_streams_.end(), streams_.begin(), streams_.end());
}

Context::Context(std::shared_ptr<BufferResource> resource, RuntimeSettings const& settings)
    : settings_{within(settings, resource->memory_limit(MemoryType::DEVICE))},
      scan_settings_{scan_settings_of(settings, resource->memory_limit(MemoryType::DEVICE))},
      resource_{std::move(resource)},
      device_{(on_gpu(*resource_), current_device())},
      memory_{std::make_shared<DeviceMemory>(
          upstream_of(*resource_), resource_->memory_limit(MemoryType::DEVICE))},
      current_resource_{memory_, device_},
      files_{std::make_unique<MappedFiles>(scan_settings_)},
      slabs_{std::make_unique<SlabReader>(device_, scan_settings_, *files_)},
      footers_{FooterCache::shared()} {
    if (keeps_scans(settings)) {
        scan_cache_ = std::make_unique<ScanCache>(
            *memory_,
            ScanCache::Keeps{.compressed = settings.keep_compressed, .decoded = settings.keep_decoded});
    }
    check_cuda(cudaStreamCreateWithFlags(&move_stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    // libcudf's decoder hands small tables to the device again and again: from page-locked memory, and by a kernel when they
    // are small, a scan decodes a fifth more in a second.
    cudf::set_allocate_host_as_pinned_threshold(std::size_t{1} << 20);
    cudf::set_kernel_pinned_copy_threshold(std::size_t{64} << 10);
}

Context::~Context() {
    (void)cudaSetDevice(device_);
    // What results still hold is freed on these streams, which therefore stay; they are few.
}

void Context::enter_thread() const {
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
}

}  // namespace rapidsmpf::compute
