#include "compute/scan/scan_cache.hpp"

#include <new>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <cudf/utilities/error.hpp>

#include "compute/scan/kept_column.hpp"
#include "compute/scan/passes.hpp"

namespace rapidsmpf::compute {

namespace {

// So many scans may come between two uses of what is kept, though something else would like the room: all those of a script.
constexpr std::uint64_t patience = 128;

std::string column_key(std::string const& key) {
    return "d" + key;
}

std::string chunks_key(std::string const& key) {
    return "c" + key;
}

// Of the limit of the device's memory, what may be kept, and what may be in use when something is added.
std::size_t most_kept(std::int64_t limit) {
    return static_cast<std::size_t>(limit / 5 * 4);
}

std::int64_t most_in_use(std::int64_t limit) {
    return limit / 20 * 19;
}

}  // namespace

ScanCache::ScanCache(DeviceMemory& memory, Keeps keeps)
    : memory_{memory}, keeps_{keeps}, cache_{most_kept(memory.limit()), patience} {
    CUDF_CUDA_TRY(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    holder_ = memory_.add_holder([this](std::size_t bytes) { return drop(bytes); });
}

ScanCache::~ScanCache() {
    memory_.remove_holder(holder_);
    (void)cache_.drop(static_cast<std::size_t>(-1));
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
}

bool ScanCache::has(std::string const& key) const {
    return cache_.has(column_key(key)) || cache_.has(chunks_key(key));
}

ScanCache::Column ScanCache::find_column(std::string const& key, cuda::stream_ref stream) {
    auto const kept = std::static_pointer_cast<KeptColumn const>(cache_.find(column_key(key)));
    return kept == nullptr ? Column{} : Column{.values = kept->lend(stream), .codes = kept->codes()};
}

StringCodesPtr ScanCache::codes_of_column(std::string const& key) {
    auto const kept = std::static_pointer_cast<KeptColumn const>(cache_.find(column_key(key)));
    return kept == nullptr ? nullptr : kept->codes();
}

std::shared_ptr<ScanCache::Chunks const> ScanCache::find_chunks(std::string const& key) {
    return std::static_pointer_cast<Chunks const>(cache_.find(chunks_key(key)));
}

bool ScanCache::has_room(std::size_t bytes) {
    return memory_.in_use() + static_cast<std::int64_t>(bytes) <= most_in_use(memory_.limit())
           && cache_.has_room(bytes);
}

std::unique_ptr<cudf::column> ScanCache::keep_column(std::string const& key, Column column, Work& work) {
    auto const bytes = column.values->alloc_size();
    if (!has_room(bytes)) {
        return std::move(column.values);
    }
    work.synchronize();
    auto const kept = std::make_shared<KeptColumn const>(
        std::move(column.values), std::move(column.codes), cuda::stream_ref{stream_}, memory_);
    cache_.remove(chunks_key(key));
    (void)cache_.add(column_key(key), kept, bytes);
    return kept->lend(work.stream());
}

void ScanCache::keep_chunks(std::string const& key, std::span<DeviceChunk const> chunks, Work& work) {
    // As lay_out() places them.
    std::size_t bytes = 0;
    for (auto const& chunk : chunks) {
        bytes += with_padding(chunk.bytes);
    }
    if (bytes == 0 || !has_room(bytes)) {
        return;
    }
    work.synchronize();
    try {
        auto kept = std::make_shared<Chunks>(
            Chunks{.memory = rmm::device_buffer{bytes, cuda::stream_ref{stream_}, work.mr()}, .places = {}});
        auto* to = static_cast<std::uint8_t*>(kept->memory.data());
        for (auto const& chunk : chunks) {
            CUDF_CUDA_TRY(cudaMemcpyAsync(to, chunk.data, chunk.bytes, cudaMemcpyDeviceToDevice, stream_));
            kept->places.push_back(DeviceChunk{.data = to, .bytes = chunk.bytes});
            to += with_padding(chunk.bytes);
        }
        CUDF_CUDA_TRY(cudaStreamSynchronize(stream_));
        (void)cache_.add(chunks_key(key), std::move(kept), bytes);
    } catch (std::bad_alloc const&) {
        return;  // they are read again then
    }
}

std::size_t ScanCache::drop(std::size_t bytes) {
    auto const dropped = cache_.drop(bytes);
    if (dropped > 0) {
        cudaStreamSynchronize(stream_);  // so that other streams may have it at once
    }
    return dropped;
}

}  // namespace rapidsmpf::compute
