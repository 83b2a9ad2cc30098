// The compute device: where chunks are computed on. A CPU, or a CUDA GPU.
//
// Everything above this seam says "device" and works on either. On a CPU the device's memory is this
// process's RAM and every operation is done when the call returns; on CUDA it is GPU memory through RMM,
// ordered on streams. Chosen once per process by RAPIDSMPF_DEVICE=auto|cuda|cpu (auto: cuda if a usable GPU
// is found). CUDA headers are included by sources named cuda*, by *.cu, and by headers that only these
// include; memory/rmm_resource.hpp, which speaks RMM, is the one public header that needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace rapidsmpf {

enum class DeviceKind : std::uint8_t { cpu, cuda };

// A queue of work on the device. A non-owning handle, cheap to copy; on a CPU there is one, the null stream,
// and work on it is done at once. On CUDA it holds a cudaStream_t.
class Stream {
  public:
    constexpr Stream() noexcept = default;
    explicit constexpr Stream(void* handle) noexcept : handle_{handle} {}
    [[nodiscard]] constexpr void* handle() const noexcept { return handle_; }
    friend constexpr bool operator==(Stream, Stream) noexcept = default;

  private:
    void* handle_{nullptr};
};

// Marks a point in a stream. Owns its device object, if the device has any.
class Event {
  public:
    virtual ~Event() = default;
    // Marks the present end of `stream`.
    virtual void record(Stream stream) = 0;
    // Whether all work before the mark is done.
    [[nodiscard]] virtual bool is_done() const = 0;
    virtual void synchronize() const = 0;
    // Makes later work on `stream` wait for the mark.
    virtual void wait(Stream stream) const = 0;
};

namespace device {
class ExportedMemory;
}  // namespace device

// One of several copies that are made at once.
struct CopyPiece {
    void const* source;
    void* destination;
    std::size_t bytes;
};

class Device {
  public:
    virtual ~Device() = default;

    [[nodiscard]] virtual DeviceKind kind() const noexcept = 0;
    // For messages: "cpu", "cuda:0 NVIDIA H200".
    [[nodiscard]] virtual std::string name() const = 0;
    // Bytes of memory that this process may use on the device: GPU memory, or on a CPU the cgroup's limit
    // (v1 or v2) or RAM, divided by the ranks on this host (RRUN_LOCAL_NRANKS).
    [[nodiscard]] virtual std::int64_t total_memory() const = 0;
    // Bytes that this process uses on the device now, as far as it can be measured (resident memory on a CPU).
    [[nodiscard]] virtual std::int64_t used_memory() const = 0;

    // Memory of the device, aligned to alignment bytes. Throws OutOfMemory.
    [[nodiscard]] virtual void* allocate(std::size_t bytes, Stream stream) = 0;
    virtual void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept = 0;

    // Copies between any two of device and host memory, ordered on `stream`.
    virtual void copy(void* destination, void const* source, std::size_t bytes, Stream stream) = 0;
    // The same for pieces that do not overlap, in any order, by the engines that a GPU has for copies: its multiprocessors
    // stay with the kernels. For pieces of megabytes, each of which then costs little.
    virtual void copy_pieces(std::span<CopyPiece const> pieces, Stream stream) = 0;
    // Copies pieces that do not overlap, thousands of them at the speed of one, ordered on `stream`. Sources and
    // destinations are memory that the device can address: its own, a peer's that has been opened, page-locked memory.
    // `most_processors`: so many of the device's multiprocessors at most, to leave the others to other work; 0: all.
    virtual void gather_copy(
        std::span<CopyPiece const> pieces, Stream stream, std::uint32_t most_processors = 0) = 0;
    virtual void synchronize(Stream stream) = 0;
    [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;
    // A stream to work on; the device keeps a pool and hands them out in turn.
    [[nodiscard]] virtual Stream next_stream() = 0;
    // The same for copies from the device to the host: nothing else is on these streams, so that a copy waits for no kernel
    // but those that write what it reads, and no kernel for it.
    [[nodiscard]] virtual Stream next_copy_stream() = 0;

    // This process's memory that the device can share with other processes (detail/exported_memory.hpp), made on first use;
    // null, with the reason, where there is none.
    [[nodiscard]] virtual device::ExportedMemory* exported_memory(std::string& reason) = 0;

    static constexpr std::size_t alignment = 256;

    // The device of this process, chosen on first use. Throws std::runtime_error when RAPIDSMPF_DEVICE=cuda and no
    // GPU is usable, std::invalid_argument when the variable holds something else.
    [[nodiscard]] static Device& current();
    // Chooses the CPU as the device of this process even where there is a GPU; for callers that compute on the CPU. Returns false if
    // the device is a GPU all the same: it was chosen earlier, or RAPIDSMPF_DEVICE=cuda.
    static bool prefer_cpu();
};

namespace device {

// The two implementations. make_cuda_device returns nullptr and says why when no GPU is usable.
[[nodiscard]] std::unique_ptr<Device> make_cpu_device();
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(std::string& reason);
// GPUs that CUDA shows to this process, whatever its device is.
[[nodiscard]] int count_cuda_devices() noexcept;

}  // namespace device
}  // namespace rapidsmpf
