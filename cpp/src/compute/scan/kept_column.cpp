#include "compute/scan/kept_column.hpp"

#include <utility>
#include <variant>  // libcudf's headers need it first

#include <rapidsmpf/memory/rmm_resource.hpp>

#include "compute/tables.hpp"

namespace rapidsmpf::compute {

// The memory resource of one buffer that is lent: what it allocates first is what is kept.
class LentMemory final : public MemoryResource {
  public:
    LentMemory(std::shared_ptr<KeptColumn const> column, rmm::device_buffer const& kept)
        : column_{std::move(column)}, kept_{const_cast<void*>(kept.data())}, bytes_{kept.size()} {}

    [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override {
        if (bytes == bytes_ && !std::exchange(is_lent_, true)) {
            return kept_;
        }
        return column_->memory_.allocate(bytes, stream);  // the buffer grows
    }

    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override {
        if (pointer == kept_) {
            column_->read_on(static_cast<cudaStream_t>(stream.handle()));
        } else {
            column_->memory_.deallocate(pointer, bytes, stream);
        }
    }

    [[nodiscard]] bool is_host_accessible() const noexcept override { return false; }
    [[nodiscard]] bool is_device_accessible() const noexcept override { return true; }

  private:
    std::shared_ptr<KeptColumn const> column_;
    void* kept_;
    std::size_t bytes_;
    bool is_lent_{false};
};

KeptColumn::KeptColumn(
    std::unique_ptr<cudf::column> column, StringCodesPtr codes, cuda::stream_ref stream, DeviceMemory& memory)
    : memory_{memory}, parts_{parts_of(*adopt(std::move(column), stream))}, codes_{std::move(codes)} {}

KeptColumn::~KeptColumn() {
    for (auto const& [stream, event] : reads_) {
        cudaEventSynchronize(event);
        cudaEventDestroy(event);
    }
}

KeptColumn::Parts KeptColumn::parts_of(cudf::column& column) {
    Parts parts;
    parts.type = column.type();
    parts.rows = column.size();
    parts.nulls = column.null_count();
    auto contents = column.release();
    parts.data = std::move(contents.data);
    parts.null_mask = std::move(contents.null_mask);
    for (auto const& child : contents.children) {
        parts.children.push_back(parts_of(*child));
    }
    return parts;
}

rmm::device_buffer KeptColumn::lend(
    std::unique_ptr<rmm::device_buffer> const& bytes, cuda::stream_ref stream) const {
    if (bytes == nullptr || bytes->size() == 0) {
        return rmm::device_buffer{0, stream};
    }
    return rmm::device_buffer{
        bytes->size(), stream, RmmView{std::make_shared<LentMemory>(shared_from_this(), *bytes)}};
}

std::unique_ptr<cudf::column> KeptColumn::lend(Parts const& parts, cuda::stream_ref stream) const {
    std::vector<std::unique_ptr<cudf::column>> children;
    for (auto const& child : parts.children) {
        children.push_back(lend(child, stream));
    }
    return std::make_unique<cudf::column>(
        parts.type, parts.rows, lend(parts.data, stream), lend(parts.null_mask, stream), parts.nulls,
        std::move(children));
}

std::unique_ptr<cudf::column> KeptColumn::lend(cuda::stream_ref stream) const {
    return lend(parts_, stream);
}

void KeptColumn::read_on(cudaStream_t stream) const noexcept {
    MutexLock const lock{mutex_};
    auto& event = reads_[stream];
    if (event == nullptr && cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) {
        reads_.erase(stream);
        cudaStreamSynchronize(stream);
        return;
    }
    if (cudaEventRecord(event, stream) != cudaSuccess) {
        cudaStreamSynchronize(stream);
    }
}

}  // namespace rapidsmpf::compute
