#include <rapidsmpf/memory/buffer.hpp>

#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/detail/prefetch.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf {

Buffer::Buffer(
    std::shared_ptr<BufferResource> resource, MemoryType type, std::byte* data, std::size_t size,
    Stream stream, std::shared_ptr<void> owner, DiskExtent extent)
    : resource_{std::move(resource)},
      type_{type},
      data_{data},
      size_{size},
      counted_{size},
      stream_{stream},
      owner_{std::move(owner)},
      extent_{std::move(extent)} {}

Buffer::~Buffer() {
    if (!owner_ && data_ != nullptr) {
        if (type_ == MemoryType::HOST && last_write_) {
            last_write_->synchronize();  // a copy into it may still be running
        }
        resource_->deallocate_memory(type_, data_, size_, stream_);
    }
    owner_.reset();
    extent_ = {};
    if (counted_ > 0) {
        resource_->account(type_, -static_cast<std::int64_t>(counted_));
    }
}

bool Buffer::is_host_accessible() const noexcept {
    return type_ != MemoryType::DISK
           && (type_ != MemoryType::DEVICE || resource_->device().kind() == DeviceKind::cpu);
}

std::span<std::byte const> Buffer::host_bytes() const {
    RAPIDSMPF_EXPECTS(
        is_host_accessible(), "a buffer in " + std::string{to_string(type_)} + " cannot be read by the host",
        std::logic_error);
    synchronize();
    return {data_, size_};
}

std::span<std::byte> Buffer::mutable_host_bytes() {
    RAPIDSMPF_EXPECTS(
        is_host_accessible(),
        "a buffer in " + std::string{to_string(type_)} + " cannot be written by the host", std::logic_error);
    synchronize();
    return {data_, size_};
}

void Buffer::write(std::function<void(std::byte*, Stream)> const& write) {
    RAPIDSMPF_EXPECTS(
        type_ != MemoryType::DISK, "a buffer on DISK cannot be written in place", std::logic_error);
    write_on(stream_, write);
}

void Buffer::write_on(Stream stream, std::function<void(std::byte*, Stream)> const& write) {
    write(data_, stream);
    if (resource_->device().kind() == DeviceKind::cuda) {
        if (!last_write_ || last_write_.use_count() > 1) {
            last_write_ = resource_->device().make_event();
        }
        last_write_->record(stream);
    }
}

void Buffer::write_together(
    std::span<std::unique_ptr<Buffer> const> buffers, std::function<void(Stream)> const& write) {
    auto const stream = buffers.empty() ? Stream{} : buffers.front()->stream_;
    for (auto const& buffer : buffers) {
        RAPIDSMPF_EXPECTS(
            buffer->type_ != MemoryType::DISK && buffer->stream_ == stream,
            "buffers that are written together must be in memory and on one stream", std::logic_error);
    }
    write(stream);
    if (!buffers.empty() && buffers.front()->resource_->device().kind() == DeviceKind::cuda) {
        std::shared_ptr<Event> const mark = buffers.front()->resource_->device().make_event();
        mark->record(stream);
        for (auto const& buffer : buffers) {
            buffer->last_write_ = mark;
        }
    }
}

bool Buffer::is_ready() const {
    return !last_write_ || last_write_->is_done();
}

void Buffer::synchronize() const {
    if (last_write_) {
        last_write_->synchronize();
    }
}

void Buffer::wait_for_writes(Stream stream) const {
    if (stream != stream_ && !is_ready()) {
        last_write_->wait(stream);
    }
}

bool Buffer::is_followed_by(Buffer const& next) const noexcept {
    return owner_ && owner_ == next.owner_ && data_ + size_ == next.data_ && type_ == next.type_
           && stream_ == next.stream_ && resource_ == next.resource_ && last_write_ == next.last_write_;
}

void Buffer::append(std::unique_ptr<Buffer> next) noexcept {
    size_ += next->size_;
    counted_ += std::exchange(next->counted_, 0);
}

std::unique_ptr<Buffer> Buffer::part(
    std::size_t offset, std::size_t size, std::shared_ptr<void> owner, std::size_t counted) const {
    RAPIDSMPF_EXPECTS(
        type_ != MemoryType::DISK && offset <= size_ && size <= size_ - offset,
        "a part of a buffer that is not in its memory", std::logic_error);
    std::unique_ptr<Buffer> part{
        new Buffer{resource_, type_, data_ + offset, size, stream_, std::move(owner)}};
    part->counted_ = counted;
    part->last_write_ = last_write_;
    return part;
}

std::unique_ptr<Buffer> Buffer::view(std::size_t offset, std::size_t size) const {
    // It has an owner as far as it knows, so it frees nothing.
    return part(offset, size, std::shared_ptr<void>{std::shared_ptr<void>{}, data_}, 0);
}

void detail::prefetch_owner(Buffer const& buffer) noexcept {
    // An object of std::make_shared lies right behind its counts; of others these are elsewhere, and nothing is gained.
    constexpr std::size_t counts = 16;
    if (buffer.owner_) {
        prefetch_to_write(static_cast<std::byte const*>(buffer.owner_.get()) - counts);
    }
}

std::unique_ptr<Buffer> Buffer::split_off(std::size_t offset, std::size_t size) {
    if (!owner_ && data_ != nullptr) {
        // From here on the memory has several owners.
        auto const release = [resource = resource_, type = type_, bytes = size_, stream = stream_,
                              mark = last_write_](std::byte* data) {
            if (type == MemoryType::HOST && mark) {
                mark->synchronize();  // a copy into it may still be running
            }
            resource->deallocate_memory(type, data, bytes, stream);
        };
        owner_ = std::shared_ptr<std::byte>{data_, release};
    }
    RAPIDSMPF_EXPECTS(size <= counted_, "a part of a buffer was split off twice", std::logic_error);
    auto split = part(offset, size, owner_, size);
    counted_ -= size;
    return split;
}

}  // namespace rapidsmpf
