// Copies the compressed bytes of passes to the device ahead of the threads that decode them.
//
// One thread goes through the passes in order: it has the ranges of the next ones registered (MappedFiles), and puts the
// copies of each on a stream of its own; a thread that takes a pass lets its stream wait for that copy. What is not mapped
// is read into page-locked slabs (SlabReader), several passes at a time. A single pass is loaded by the thread that takes it,
// unless reading was started before.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <cuda/stream>
#include <cuda_runtime_api.h>
#include <rmm/device_buffer.hpp>

#include <rapidsmpf/core/mutex.hpp>

#include "compute/scan/data_file.hpp"
#include "compute/scan/mapped_files.hpp"
#include "compute/scan/passes.hpp"
#include "compute/scan/settings.hpp"
#include "compute/scan/slab_reader.hpp"

namespace rapidsmpf::compute {

struct InputFile {
    std::string path;
    FileVersion version;  // when its footer was read
};

class ReadAhead {
  public:
    // A pass whose bytes are on the device, or on their way: what is put on the stream of take() comes after them.
    class Loaded {
      public:
        Loaded() = default;
        ~Loaded();
        Loaded(Loaded&& other) noexcept;
        Loaded& operator=(Loaded&&) = delete;

        [[nodiscard]] std::size_t pass() const noexcept { return pass_; }
        [[nodiscard]] std::uint8_t const* data() const noexcept {
            return static_cast<std::uint8_t const*>(buffer_.data());
        }
        [[nodiscard]] PassLayout const& layout() const noexcept { return layout_; }
        // Throws if a file has changed since its footer was read: what was copied may be anything.
        void check_files() const;

      private:
        friend class ReadAhead;
        ReadAhead* owner_{nullptr};
        std::size_t pass_{0};
        PassLayout layout_;
        std::vector<std::pair<std::shared_ptr<DataFile const>, FileVersion>> files_;
        std::vector<MappedFiles::Lease> leases_;
        rmm::device_buffer buffer_;
        cudaEvent_t copied_{nullptr};
    };

    // layout: of the pass of a number; called by one thread.
    ReadAhead(
        std::vector<InputFile> inputs, std::size_t passes, std::function<PassLayout(std::size_t)> layout,
        ScanSettings const& settings, MappedFiles& files, SlabReader& slabs);
    ~ReadAhead();
    ReadAhead(ReadAhead const&) = delete;
    ReadAhead& operator=(ReadAhead const&) = delete;

    // Starts to read before a pass is taken. Calls `when_read` in some thread when nothing is left to read; not after an
    // error, nor if it is closed before.
    void start(std::function<void()> when_read);

    // The next pass, for work on that stream; nothing at the end. Called by several threads at a time. Throws what reading
    // threw.
    [[nodiscard]] std::optional<Loaded> take(cuda::stream_ref stream);
    // The same for a thread that works ahead of those that need the passes: nothing after an error, either, and does not count
    // as asking for a pass.
    [[nodiscard]] std::optional<Loaded> take_ahead(cuda::stream_ref stream);

    // Ends reading and waits for copies that are under way.
    void close() noexcept;

  private:
    // A pass whose ranges are being registered.
    struct Prepared {
        std::size_t pass{0};
        PassLayout layout;
        // Extents of one file follow each other.
        struct Part {
            std::size_t begin{0};
            std::size_t end{0};
            std::shared_ptr<DataFile const> file;
            std::optional<MappedFiles::Lease> lease;
        };
        std::vector<Part> parts;
    };

    // A pass that is being read into its device buffer.
    struct Loading {
        Prepared prepared;
        rmm::device_buffer buffer;
        std::vector<SlabReader::Reading> readings;  // destroyed before the buffer
    };

    [[nodiscard]] std::shared_ptr<DataFile const> open(std::size_t file);
    [[nodiscard]] Prepared prepare(std::size_t pass);
    // Waits for memory until earlier passes are released, or until the first is taken. Throws std::bad_alloc if there is
    // nothing to wait for.
    [[nodiscard]] rmm::device_buffer allocate(std::size_t bytes, cuda::stream_ref stream);
    [[nodiscard]] Loading begin_load(Prepared prepared, rmm::device_buffer buffer, cuda::stream_ref stream);
    [[nodiscard]] Loaded finish_load(Loading loading, cuda::stream_ref stream);
    // The only pass.
    [[nodiscard]] Loaded load_alone(cuda::stream_ref stream);
    void read_small(Prepared const& prepared, rmm::device_buffer& buffer, cuda::stream_ref stream) const;
    [[nodiscard]] Loaded take_ready() RAPIDSMPF_REQUIRES(mutex_);
    static void begin_use(Loaded& loaded, cuda::stream_ref stream);
    [[nodiscard]] bool is_closing();
    [[nodiscard]] bool has_room(std::size_t passes, std::size_t bytes) const RAPIDSMPF_REQUIRES(mutex_);
    void give(Loaded loaded);
    void begin() RAPIDSMPF_REQUIRES(mutex_);
    void run();
    void read_all();
    void finished() noexcept;
    [[nodiscard]] cudaEvent_t take_event();

    std::vector<InputFile> const inputs_;
    std::size_t const passes_;
    std::function<PassLayout(std::size_t)> const layout_;
    ScanSettings const settings_;
    MappedFiles& files_;
    SlabReader& slabs_;
    int device_{0};

    // Of the thread that reads.
    std::weak_ptr<DataFile const> open_file_;
    std::size_t open_number_{0};

    Mutex mutex_;
    ConditionVariable changed_;
    // Written before started_ is true, and not afterwards.
    std::thread thread_;
    cudaStream_t stream_{nullptr};
    std::function<void()> when_read_;

    std::deque<Loaded> ready_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::size_t ready_bytes_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::size_t outstanding_ RAPIDSMPF_GUARDED_BY(mutex_){0};  // loaded, and not finished with
    std::vector<cudaEvent_t> events_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::exception_ptr error_ RAPIDSMPF_GUARDED_BY(mutex_);
    bool started_ RAPIDSMPF_GUARDED_BY(mutex_){false};
    bool taken_ RAPIDSMPF_GUARDED_BY(mutex_){false};  // a thread has asked for a pass
    bool ended_ RAPIDSMPF_GUARDED_BY(mutex_){false};  // no more passes will be ready
    bool closing_ RAPIDSMPF_GUARDED_BY(mutex_){false};
};

}  // namespace rapidsmpf::compute
