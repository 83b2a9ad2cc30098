#include "compute/scan/slab_reader.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <cudf/utilities/error.hpp>

namespace rapidsmpf::compute {

namespace {

struct Piece {
    std::uint64_t offset;  // in the file
    std::size_t bytes;
    std::size_t place;  // in the buffer
};
using Window = std::vector<Piece>;

// Divides the buffer into windows of at most a slab; one copy moves a window.
std::vector<Window> make_windows(std::span<Extent const> extents, std::size_t slab_bytes) {
    std::vector<Window> windows;
    for (auto const& extent : extents) {
        for (std::size_t at = 0; at < extent.bytes;) {
            auto const place = extent.place + at;
            if (windows.empty() || place - windows.back().front().place >= slab_bytes) {
                windows.emplace_back();
            }
            auto& window = windows.back();
            auto const room = slab_bytes - (window.empty() ? 0 : place - window.front().place);
            auto const bytes = std::min(room, extent.bytes - at);
            window.push_back(Piece{.offset = extent.offset + at, .bytes = bytes, .place = place});
            at += bytes;
        }
    }
    return windows;
}

// The two slabs of one thread: it fills one while the other is copied.
class Slabs {
  public:
    explicit Slabs(MappedFiles& files) : files_{files} {}
    ~Slabs() {
        for (auto* const event : copied_) {
            if (event != nullptr) {
                cudaEventSynchronize(event);
                cudaEventDestroy(event);
            }
        }
    }
    Slabs(Slabs const&) = delete;
    Slabs& operator=(Slabs const&) = delete;

    void read(DataFile const& file, Window const& window, std::byte* buffer, cudaStream_t stream) {
        turn_ ^= 1U;
        if (slabs_[turn_].data() == nullptr) {
            if (copied_[turn_] == nullptr) {
                CUDF_CUDA_TRY(cudaEventCreateWithFlags(&copied_[turn_], cudaEventDisableTiming));
            }
            slabs_[turn_] = files_.take_slab();
        } else {
            CUDF_CUDA_TRY(cudaEventSynchronize(copied_[turn_]));
        }
        auto const begin = window.front().place;
        auto const end = window.back().place + window.back().bytes;
        auto* const slab = static_cast<std::byte*>(slabs_[turn_].data());
        for (auto const& piece : window) {
            file.read(slab + (piece.place - begin), piece.bytes, piece.offset);
        }
        CUDF_CUDA_TRY(cudaMemcpyAsync(buffer + begin, slab, end - begin, cudaMemcpyHostToDevice, stream));
        CUDF_CUDA_TRY(cudaEventRecord(copied_[turn_], stream));
    }

  private:
    MappedFiles& files_;
    std::array<MappedFiles::Slab, 2> slabs_;
    std::array<cudaEvent_t, 2> copied_{};
    unsigned turn_{0};
};

}  // namespace

struct SlabReader::Work {
    std::shared_ptr<DataFile const> file;
    std::vector<Window> windows;
    std::byte* buffer{nullptr};
    cudaStream_t stream{nullptr};
    // Guarded by the reader's mutex.
    std::size_t next{0};    // index of the next window to read
    std::size_t unread{0};  // windows whose copies have not been enqueued
    std::exception_ptr error;

    // Drops the windows that no thread has taken.
    void cut() noexcept {
        unread -= windows.size() - next;
        next = windows.size();
    }
};

SlabReader::Reading::Reading(SlabReader& owner, std::shared_ptr<Work> work)
    : owner_{&owner}, work_{std::move(work)} {}

SlabReader::Reading::~Reading() {
    if (work_ != nullptr) {
        owner_->drop(*work_);
    }
}

void SlabReader::Reading::wait() {
    UniqueLock lock{owner_->mutex_};
    owner_->done_.wait(lock, [this] { return work_->unread == 0; });
    if (work_->error) {
        std::rethrow_exception(work_->error);
    }
}

SlabReader::SlabReader(int device, ScanSettings const& settings, MappedFiles& files)
    : device_{device}, settings_{settings}, files_{files} {}

SlabReader::~SlabReader() {
    {
        MutexLock const lock{mutex_};
        closing_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) {
        thread.join();
    }
}

SlabReader::Reading SlabReader::begin(
    std::shared_ptr<DataFile const> file, std::span<Extent const> extents, std::byte* buffer,
    cudaStream_t stream) {
    auto work = std::make_shared<Work>();
    work->file = std::move(file);
    work->windows = make_windows(extents, settings_.slab_bytes);
    work->buffer = buffer;
    work->stream = stream;
    work->unread = work->windows.size();
    {
        MutexLock const lock{mutex_};
        auto const wanted = std::min(std::max<std::size_t>(settings_.read_threads, 1), work->windows.size());
        while (threads_.size() < wanted) {
            threads_.emplace_back([this] { run(); });
        }
        if (!work->windows.empty()) {
            queue_.push_back(work);
        }
    }
    changed_.notify_all();
    return Reading{*this, std::move(work)};
}

void SlabReader::drop(Work& work) noexcept {
    UniqueLock lock{mutex_};
    work.cut();
    std::erase_if(queue_, [&](auto const& queued) { return queued.get() == &work; });
    done_.wait(lock, [&] { return work.unread == 0; });
}

void SlabReader::run() {
    (void)cudaSetDevice(device_);  // a failure shows at the first copy
    Slabs slabs{files_};
    UniqueLock lock{mutex_};
    for (;;) {
        changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return closing_ || !queue_.empty(); });
        if (queue_.empty()) {
            return;
        }
        auto const work = queue_.front();
        auto const& window = work->windows[work->next++];
        if (work->next == work->windows.size()) {
            queue_.pop_front();
        }
        lock.unlock();
        std::exception_ptr error;
        try {
            slabs.read(*work->file, window, work->buffer, work->stream);
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        if (error && !work->error) {
            work->error = error;
            work->cut();
            std::erase(queue_, work);
        }
        if (--work->unread == 0) {
            done_.notify_all();
        }
    }
}

}  // namespace rapidsmpf::compute
