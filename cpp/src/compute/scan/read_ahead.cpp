#include "compute/scan/read_ahead.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <cudf/utilities/error.hpp>
#include <cudf/utilities/memory_resource.hpp>

namespace rapidsmpf::compute {

namespace {

constexpr std::size_t copy_batch = 1024;  // pieces that one call copies; more are no faster
// The number of passes that are read concurrently: threads without a window to read in one pass take windows of the next.
constexpr std::size_t passes_at_a_time = 3;

std::byte* buffer_bytes(rmm::device_buffer& buffer) {
    return static_cast<std::byte*>(buffer.data());
}

// From registered memory. One call for many pieces: a call each reaches a third of the link's speed.
class BatchedCopies {
  public:
    explicit BatchedCopies(cudaStream_t stream) : stream_{stream} {
        attributes_.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        attributes_.flags = cudaMemcpyFlagPreferOverlapWithCompute;
    }

    void add(void* to, void const* from, std::size_t bytes) {
        to_[count_] = to;
        from_[count_] = from;
        bytes_[count_] = bytes;
        if (++count_ == copy_batch) {
            flush();
        }
    }

    void flush() {
        if (count_ == 0) {
            return;
        }
        std::size_t first = 0;
        // The default streams cannot take batches.
        auto const batched =
            stream_ != nullptr && stream_ != cudaStreamLegacy && stream_ != cudaStreamPerThread;
        if (batched) {
            CUDF_CUDA_TRY(cudaMemcpyBatchAsync(
                to_.data(), from_.data(), bytes_.data(), count_, &attributes_, &first, 1, stream_));
        } else {
            for (std::size_t i = 0; i < count_; ++i) {
                CUDF_CUDA_TRY(cudaMemcpyAsync(to_[i], from_[i], bytes_[i], cudaMemcpyHostToDevice, stream_));
            }
        }
        count_ = 0;
    }

  private:
    cudaStream_t stream_;
    cudaMemcpyAttributes attributes_{};
    std::size_t count_{0};
    std::array<void*, copy_batch> to_{};
    std::array<void const*, copy_batch> from_{};
    std::array<std::size_t, copy_batch> bytes_{};
};

}  // namespace

// ---- Loaded

ReadAhead::Loaded::Loaded(Loaded&& other) noexcept
    : owner_{std::exchange(other.owner_, nullptr)},
      pass_{other.pass_},
      layout_{std::move(other.layout_)},
      files_{std::move(other.files_)},
      leases_{std::move(other.leases_)},
      buffer_{std::move(other.buffer_)},
      copied_{std::exchange(other.copied_, nullptr)} {}

ReadAhead::Loaded::~Loaded() {
    if (owner_ == nullptr) {
        return;
    }
    // The leases may end when the copies have; who decoded has long waited for them.
    if (copied_ != nullptr) {
        cudaEventSynchronize(copied_);
    }
    leases_.clear();
    buffer_ = rmm::device_buffer{};
    {
        MutexLock const lock{owner_->mutex_};
        if (copied_ != nullptr) {
            owner_->events_.push_back(copied_);
        }
    }
    owner_->finished();
}

void ReadAhead::Loaded::check_files() const {
    for (auto const& [file, version] : files_) {
        file->check_version(version);
    }
}

// ---- ReadAhead

ReadAhead::ReadAhead(
    std::vector<InputFile> inputs, std::size_t passes, std::function<PassLayout(std::size_t)> layout,
    ScanSettings const& settings, MappedFiles& files, SlabReader& slabs)
    : inputs_{std::move(inputs)},
      passes_{passes},
      layout_{std::move(layout)},
      settings_{settings},
      files_{files},
      slabs_{slabs} {}

ReadAhead::~ReadAhead() {
    close();
    for (auto* const event : events_) {
        cudaEventDestroy(event);
    }
    if (stream_ != nullptr) {
        cudaStreamDestroy(stream_);
    }
}

void ReadAhead::start(std::function<void()> when_read) {
    UniqueLock lock{mutex_};
    if (started_ || closing_) {
        return;
    }
    started_ = true;
    if (passes_ == 0) {
        ended_ = true;
        lock.unlock();
        when_read();
        return;
    }
    when_read_ = std::move(when_read);
    begin();
}

void ReadAhead::begin() {
    CUDF_CUDA_TRY(cudaGetDevice(&device_));
    CUDF_CUDA_TRY(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    thread_ = std::thread{[this] { run(); }};
}

std::optional<ReadAhead::Loaded> ReadAhead::take(cuda::stream_ref stream) {
    UniqueLock lock{mutex_};
    if (!taken_) {
        taken_ = true;
        changed_.notify_all();
    }
    if (!started_ && !closing_) {
        started_ = true;
        if (passes_ <= 1) {
            CUDF_CUDA_TRY(cudaGetDevice(&device_));
            ended_ = true;
            lock.unlock();
            return passes_ == 0 ? std::nullopt : std::optional{load_alone(stream)};
        }
        begin();
    }
    changed_.wait(
        lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return !ready_.empty() || ended_ || error_ || closing_; });
    if (error_) {
        std::rethrow_exception(error_);
    }
    if (ready_.empty() || closing_) {
        return std::nullopt;
    }
    auto next = take_ready();
    lock.unlock();
    begin_use(next, stream);
    return next;
}

std::optional<ReadAhead::Loaded> ReadAhead::take_ahead(cuda::stream_ref stream) {
    UniqueLock lock{mutex_};
    changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) {
        return !ready_.empty() || !started_ || ended_ || error_ || closing_;
    });
    if (ready_.empty() || error_ || closing_) {
        return std::nullopt;
    }
    auto next = take_ready();
    lock.unlock();
    begin_use(next, stream);
    return next;
}

ReadAhead::Loaded ReadAhead::take_ready() {
    auto next = std::move(ready_.front());
    ready_.pop_front();
    ready_bytes_ -= next.layout_.bytes;
    changed_.notify_all();
    return next;
}

void ReadAhead::begin_use(Loaded& loaded, cuda::stream_ref stream) {
    CUDF_CUDA_TRY(cudaStreamWaitEvent(stream.get(), loaded.copied_, 0));
    loaded.buffer_.set_stream(stream);  // frees it after the work of that stream
}

void ReadAhead::close() noexcept {
    {
        MutexLock const lock{mutex_};
        closing_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) {
        thread_.join();
    }
    if (stream_ != nullptr) {
        cudaStreamSynchronize(stream_);
    }
    std::deque<Loaded> unused;
    {
        MutexLock const lock{mutex_};
        unused.swap(ready_);
        ready_bytes_ = 0;
    }
}

void ReadAhead::finished() noexcept {
    MutexLock const lock{mutex_};
    --outstanding_;
    changed_.notify_all();
}

cudaEvent_t ReadAhead::take_event() {
    {
        MutexLock const lock{mutex_};
        if (!events_.empty()) {
            auto* const event = events_.back();
            events_.pop_back();
            return event;
        }
    }
    cudaEvent_t event{};
    CUDF_CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

bool ReadAhead::is_closing() {
    MutexLock const lock{mutex_};
    return closing_;
}

bool ReadAhead::has_room(std::size_t passes, std::size_t bytes) const {
    return ready_.size() + passes < settings_.passes_in_flight
           && ready_bytes_ + bytes <= settings_.bytes_in_flight;
}

void ReadAhead::give(Loaded loaded) {
    MutexLock const lock{mutex_};
    ready_bytes_ += loaded.layout_.bytes;
    ready_.push_back(std::move(loaded));
    changed_.notify_all();
}

void ReadAhead::run() {
    try {
        read_all();
        if (when_read_ && !is_closing()) {
            when_read_();
        }
    } catch (...) {
        MutexLock const lock{mutex_};
        error_ = std::current_exception();
        changed_.notify_all();
    }
}

void ReadAhead::read_all() {
    CUDF_CUDA_TRY(cudaSetDevice(device_));
    cuda::stream_ref const stream{stream_};
    std::deque<Prepared> prepared;
    std::size_t prepared_bytes = 0;
    std::size_t to_prepare = 0;
    std::deque<Loading> loading;
    std::size_t loading_bytes = 0;
    // On every exit, waits for the copies that were enqueued: they read host memory that the leases of `loading` hold.
    struct WaitForCopies {
        cudaStream_t stream;
        ~WaitForCopies() { cudaStreamSynchronize(stream); }
    } const wait_for_copies{stream_};
    auto const finish_one = [&] {
        loading_bytes -= loading.front().prepared.layout.bytes;
        auto loaded = finish_load(std::move(loading.front()), stream);
        loading.pop_front();
        give(std::move(loaded));
    };
    for (std::size_t pass = 0; pass < passes_;) {
        // Registering runs as far ahead of copying as copying may of decoding.
        while (to_prepare < passes_
               && (prepared.empty()
                   || (prepared.size() <= settings_.passes_in_flight
                       && prepared_bytes <= settings_.bytes_in_flight))) {
            prepared.push_back(prepare(to_prepare++));
            prepared_bytes += prepared.back().layout.bytes;
        }
        auto const bytes = prepared.front().layout.bytes;
        auto full = loading.size() >= passes_at_a_time;
        if (!full) {
            UniqueLock lock{mutex_};
            auto const may_begin = [&]() RAPIDSMPF_REQUIRES(mutex_) {
                return closing_ || (ready_.empty() && loading.empty())
                       || has_room(loading.size(), loading_bytes + bytes);
            };
            if (loading.empty()) {
                changed_.wait(lock, may_begin);
            }
            full = !may_begin();
            if (closing_) {
                break;
            }
        }
        std::optional<rmm::device_buffer> buffer;
        if (!full) {
            try {
                buffer.emplace(bytes, stream, cudf::get_current_device_resource_ref());
            } catch (std::bad_alloc const&) {
                if (loading.empty()) {
                    buffer = allocate(bytes, stream);
                }
            }
        }
        if (!buffer) {
            finish_one();
            continue;
        }
        auto next = std::move(prepared.front());
        prepared.pop_front();
        prepared_bytes -= bytes;
        loading.push_back(begin_load(std::move(next), std::move(*buffer), stream));
        loading_bytes += bytes;
        ++pass;
    }
    while (!loading.empty() && !is_closing()) {
        finish_one();
    }
    MutexLock const lock{mutex_};
    ended_ = true;
    changed_.notify_all();
}

std::shared_ptr<DataFile const> ReadAhead::open(std::size_t file) {
    if (auto open = open_file_.lock(); open != nullptr && open_number_ == file) {
        return open;
    }
    auto opened = std::make_shared<DataFile const>(inputs_[file].path);
    opened->check_version(inputs_[file].version);
    open_file_ = opened;
    open_number_ = file;
    return opened;
}

ReadAhead::Prepared ReadAhead::prepare(std::size_t pass) {
    Prepared prepared;
    prepared.pass = pass;
    prepared.layout = layout_(pass);
    auto const& extents = prepared.layout.extents;
    std::vector<FileRange> ranges;
    for (std::size_t begin = 0; begin < extents.size();) {
        auto const file = extents[begin].file;
        auto end = begin;
        ranges.clear();
        for (; end < extents.size() && extents[end].file == file; ++end) {
            ranges.push_back(FileRange{extents[end].offset, extents[end].bytes});
        }
        auto& part = prepared.parts.emplace_back();
        part.begin = begin;
        part.end = end;
        part.file = open(file);
        if (prepared.layout.bytes > settings_.small_read) {
            part.lease = files_.prepare(*part.file, ranges);
        }
        begin = end;
    }
    return prepared;
}

rmm::device_buffer ReadAhead::allocate(std::size_t bytes, cuda::stream_ref stream) {
    for (;;) {
        std::size_t outstanding = 0;
        bool taken = false;
        {
            MutexLock const lock{mutex_};
            outstanding = outstanding_;
            taken = taken_;
        }
        try {
            return rmm::device_buffer{bytes, stream, cudf::get_current_device_resource_ref()};
        } catch (std::bad_alloc const&) {
            // There is memory when a pass that is loaded has been decoded, or, if no thread has asked for one yet, when what
            // runs before has ended.
            UniqueLock lock{mutex_};
            if (closing_ || (outstanding == 0 && taken)) {
                throw;
            }
            changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) {
                return outstanding_ < outstanding || taken_ != taken || closing_;
            });
        }
    }
}

ReadAhead::Loading ReadAhead::begin_load(
    Prepared prepared, rmm::device_buffer buffer, cuda::stream_ref stream) {
    Loading loading{.prepared = std::move(prepared), .buffer = std::move(buffer), .readings = {}};
    auto const& layout = loading.prepared.layout;
    auto* const to = buffer_bytes(loading.buffer);
    try {
        if (layout.bytes <= settings_.small_read) {
            read_small(loading.prepared, loading.buffer, stream);
            return loading;
        }
        BatchedCopies copies{stream.get()};
        for (auto& part : loading.prepared.parts) {
            std::span const extents{layout.extents.data() + part.begin, part.end - part.begin};
            auto const wait = part.lease && (!settings_.read_while_registering || part.lease->is_settled());
            auto const pieces = wait ? part.lease->wait() : std::nullopt;
            if (!pieces) {
                loading.readings.push_back(slabs_.begin(part.file, extents, to, stream.get()));
                continue;
            }
            auto piece = pieces->begin();
            for (auto const& extent : extents) {
                for (std::size_t at = 0; at < extent.bytes; at += (piece++)->bytes) {
                    copies.add(to + extent.place + at, piece->address, piece->bytes);
                }
            }
        }
        copies.flush();
    } catch (...) {
        loading.readings.clear();
        cudaStreamSynchronize(stream.get());  // no copy reads what the leases hold
        throw;
    }
    return loading;
}

ReadAhead::Loaded ReadAhead::finish_load(Loading loading, cuda::stream_ref stream) {
    auto& prepared = loading.prepared;
    Loaded loaded;
    try {
        for (auto& reading : loading.readings) {
            reading.wait();
        }
        loaded.copied_ = take_event();
        CUDF_CUDA_TRY(cudaEventRecord(loaded.copied_, stream.get()));
    } catch (...) {
        loading.readings.clear();
        cudaStreamSynchronize(stream.get());
        throw;
    }
    loaded.pass_ = prepared.pass;
    for (auto& part : prepared.parts) {
        auto const& input = inputs_[prepared.layout.extents[part.begin].file];
        loaded.files_.emplace_back(std::move(part.file), input.version);
        if (part.lease) {
            loaded.leases_.push_back(std::move(*part.lease));
        }
    }
    loaded.layout_ = std::move(prepared.layout);
    loaded.buffer_ = std::move(loading.buffer);
    {
        MutexLock const lock{mutex_};
        ++outstanding_;
    }
    loaded.owner_ = this;
    return loaded;
}

ReadAhead::Loaded ReadAhead::load_alone(cuda::stream_ref stream) {
    auto prepared = prepare(0);
    auto buffer = allocate(prepared.layout.bytes, stream);
    return finish_load(begin_load(std::move(prepared), std::move(buffer), stream), stream);
}

void ReadAhead::read_small(
    Prepared const& prepared, rmm::device_buffer& buffer, cuda::stream_ref stream) const {
    // From pageable memory the call returns when the bytes have left it.
    std::vector<std::byte> bytes(prepared.layout.bytes);
    for (auto const& part : prepared.parts) {
        for (auto i = part.begin; i < part.end; ++i) {
            auto const& extent = prepared.layout.extents[i];
            part.file->read(bytes.data() + extent.place, extent.bytes, extent.offset);
        }
    }
    CUDF_CUDA_TRY(
        cudaMemcpyAsync(buffer.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream.get()));
}

}  // namespace rapidsmpf::compute
