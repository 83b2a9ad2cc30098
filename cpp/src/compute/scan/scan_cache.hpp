// What scans have read, in device memory that nothing else needs: compressed column chunks, or decoded columns, of passes.
//
// It is dropped before any rows are moved away from the device. Off unless an engine's options ask for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <cudf/column/column.hpp>
#include <rmm/device_buffer.hpp>

#include "compute/device_memory.hpp"
#include "compute/operators.hpp"
#include "compute/scan/droppable_cache.hpp"
#include "compute/scan/plain_chunks.hpp"

namespace rapidsmpf::compute {

class KeptColumn;

// Thread-safe. Keys name a column of row groups of versions of files (ParquetSource makes them).
class ScanCache {
  public:
    struct Keeps {
        bool compressed{false};
        bool decoded{false};
    };
    // The compressed chunks of a column.
    struct Chunks {
        rmm::device_buffer memory;
        std::vector<DeviceChunk> places;
    };

    ScanCache(DeviceMemory& memory, Keeps keeps);
    ~ScanCache();
    ScanCache(ScanCache const&) = delete;
    ScanCache& operator=(ScanCache const&) = delete;

    // A scan begins.
    void begin_scan() { cache_.begin_use(); }

    [[nodiscard]] bool has(std::string const& key) const;
    // A decoded column.
    struct Column {
        std::unique_ptr<cudf::column> values;  // null: the cache does not have the column
        StringCodesPtr codes;                  // null: it is not coded
    };
    // A column on the memory of the one that is kept, which stays until this one is gone and the work on its stream is done.
    // It must not be written to.
    [[nodiscard]] Column find_column(std::string const& key, cuda::stream_ref stream);
    // The codes of a column that is kept, if it is coded.
    [[nodiscard]] StringCodesPtr codes_of_column(std::string const& key);
    // May be read on any stream, and must be held until that is done.
    [[nodiscard]] std::shared_ptr<Chunks const> find_chunks(std::string const& key);

    // Keeps a column that is on the stream of `work`, where there is room, and waits for it. Returns it, or one on its memory.
    [[nodiscard]] std::unique_ptr<cudf::column> keep_column(
        std::string const& key, Column column, Work& work);
    // Keeps copies of chunks, where there is room.
    void keep_chunks(std::string const& key, std::span<DeviceChunk const> chunks, Work& work);

    [[nodiscard]] Keeps keeps() const noexcept { return keeps_; }
    [[nodiscard]] std::size_t bytes() const { return cache_.bytes(); }

  private:
    [[nodiscard]] bool has_room(std::size_t bytes);
    std::size_t drop(std::size_t bytes);

    DeviceMemory& memory_;
    Keeps const keeps_;
    cudaStream_t stream_{};  // that all it keeps was allocated on
    DroppableCache cache_;
    std::uint64_t holder_{0};
};

}  // namespace rapidsmpf::compute
