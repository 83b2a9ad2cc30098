// Files in host memory that the GPU's copy engines can read: mappings whose pages are registered with CUDA, and page-locked
// slabs for what cannot be mapped. Lives as long as an engine, so that what is registered once serves later queries.
//
// A mapping has one table of ranges of whole pages; ranges do not overlap, because CUDA refuses to register a page twice.
// Who needs bytes takes a Lease; what is missing is registered by threads in the order in which leases were taken, and what
// no lease needs is released when the limit is reached, least recently used first. No code reads a mapping with the CPU: a
// file that is truncated would end the process by SIGBUS, where reading it is an error.
//
// A mapping keeps its file's pages, also after the file was removed, until release_unused() or the end of the engine; a file
// that has changed is mapped anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compute/scan/data_file.hpp"
#include "compute/scan/page_registrar.hpp"
#include "compute/scan/settings.hpp"

namespace rapidsmpf::compute {

struct FileRange {
    std::uint64_t offset{0};
    std::size_t bytes{0};
};

// Bytes that lie in one registered range.
struct HostPiece {
    void const* address{nullptr};
    std::size_t bytes{0};
};

// Thread-safe.
class MappedFiles {
    struct State;
    struct Mapping;
    struct Entry;

  public:
    // Holds the registered ranges that some bytes of a file are in. The MappedFiles outlives it.
    class Lease {
      public:
        Lease() = default;
        ~Lease() { release(); }
        Lease(Lease&& other) noexcept;
        Lease& operator=(Lease&& other) noexcept;

        // Whether wait() would not wait.
        [[nodiscard]] bool is_settled() const;
        // Waits until the ranges are registered, and gives their bytes, range by range. Nothing if registering was refused:
        // the bytes have to be read.
        [[nodiscard]] std::optional<std::vector<HostPiece>> wait();
        // No copy reads the bytes any more.
        void release() noexcept;

      private:
        friend class MappedFiles;
        State* state_{nullptr};
        std::shared_ptr<Mapping> mapping_;
        std::vector<FileRange> ranges_;
        std::vector<Entry*> entries_;
    };

    // A page-locked slab of ScanSettings::slab_bytes. The MappedFiles outlives it.
    class Slab {
      public:
        Slab() = default;
        ~Slab();
        Slab(Slab&& other) noexcept;
        Slab& operator=(Slab&& other) noexcept;
        [[nodiscard]] void* data() const noexcept { return data_; }

      private:
        friend class MappedFiles;
        State* state_{nullptr};
        void* data_{nullptr};
    };

    // With CUDA's registrar.
    explicit MappedFiles(ScanSettings const& settings);
    MappedFiles(ScanSettings const& settings, std::unique_ptr<PageRegistrar> registrar);
    ~MappedFiles();
    MappedFiles(MappedFiles const&) = delete;
    MappedFiles& operator=(MappedFiles const&) = delete;

    // Begins to make the ranges of the file readable by copy engines, and returns at once. Nothing if the file cannot be
    // mapped, or does not fit the limit beside what is in use.
    [[nodiscard]] std::optional<Lease> prepare(DataFile const& file, std::span<FileRange const> ranges);

    // Throws OutOfMemory if the system gives no more page-locked memory.
    [[nodiscard]] Slab take_slab();

    [[nodiscard]] std::size_t registered_bytes() const;
    // Releases registered ranges that no lease holds, at least so many bytes if there are; returns how many.
    std::size_t release_unused(std::size_t bytes);

  private:
    std::unique_ptr<State> state_;
};

}  // namespace rapidsmpf::compute
