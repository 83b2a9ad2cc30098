#include <rapidsmpf/memory/buffer_resource.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/option_table.hpp>

namespace rapidsmpf {

namespace {

std::string bytes_text(std::int64_t bytes) {
    return config::format_bytes(static_cast<double>(bytes));
}

std::int64_t as_signed(std::size_t size) {
    return static_cast<std::int64_t>(size);
}

}  // namespace

std::shared_ptr<BufferResource> BufferResource::make(Settings settings) {
    return std::shared_ptr<BufferResource>(new BufferResource{std::move(settings)});
}

std::shared_ptr<BufferResource> BufferResource::from_options(
    config::Options options, std::shared_ptr<Statistics> statistics) {
    Settings settings;
    auto const total = Device::current().total_memory();
    settings.limits[0] =
        config::get_optional_share(options, "spill_device_limit", [&] { return total; }).value_or(unlimited);
    settings.statistics = std::move(statistics);
    return make(std::move(settings));
}

BufferResource::BufferResource(Settings settings)
    : device_{Device::current()},
      statistics_{
          settings.statistics ? std::move(settings.statistics)
                              : std::make_shared<Statistics>(Statistics::Enabled::no)} {
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
        tiers_[i].limit = settings.limits[i];
        tiers_[i].available = std::move(settings.available[i]);
    }
    auto& device = tier(MemoryType::DEVICE);
    if (device.limit != unlimited && !device.available && device_.kind() == DeviceKind::cpu) {
        // Polars and others allocate outside our sight: what is resident counts, whoever holds it.
        device.available = [limit = device.limit, &cpu = device_] { return limit - cpu.used_memory(); };
    }
}

BufferResource::~BufferResource() = default;

std::int64_t BufferResource::free_locked(Tier const& tier, std::int64_t measured) const {
    auto const by_accounting = tier.limit == unlimited ? unlimited : tier.limit - tier.used - tier.reserved;
    auto const by_measurement = measured == unlimited ? unlimited : measured - tier.reserved;
    return std::min(by_accounting, by_measurement);
}

std::int64_t BufferResource::memory_available(MemoryType type) const {
    // Called outside the lock: a user's function may take its time or look at this object.
    auto const& entry = tier(type);
    auto const measured = entry.available ? entry.available() : unlimited;
    std::lock_guard lock{mutex_};
    return free_locked(entry, measured);
}

std::int64_t BufferResource::memory_reserved(MemoryType type) const {
    std::lock_guard lock{mutex_};
    return tier(type).reserved;
}

std::int64_t BufferResource::memory_used(MemoryType type) const {
    std::lock_guard lock{mutex_};
    return tier(type).used;
}

std::int64_t BufferResource::memory_peak(MemoryType type) const {
    std::lock_guard lock{mutex_};
    return tier(type).peak;
}

std::pair<MemoryReservation, std::size_t> BufferResource::reserve(
    MemoryType type, std::size_t size, AllowOverbooking allow) {
    auto& entry = tier(type);
    auto const measured = entry.available ? entry.available() : unlimited;
    std::lock_guard lock{mutex_};
    auto const headroom = free_locked(entry, measured) - as_signed(size);
    auto const overbooked = static_cast<std::size_t>(std::max<std::int64_t>(-headroom, 0));
    if (overbooked > 0 && size > 0 && allow == AllowOverbooking::no) {
        return {MemoryReservation{shared_from_this(), type, 0}, overbooked};
    }
    entry.reserved += as_signed(size);
    return {MemoryReservation{shared_from_this(), type, size}, overbooked};
}

MemoryReservation BufferResource::reserve_device_memory_and_spill(std::size_t size, AllowOverbooking allow) {
    auto [reservation, overbooked] = reserve(MemoryType::DEVICE, size, AllowOverbooking::yes);
    // Others may take what one round frees, so ask again while it still helps.
    while (overbooked > 0) {
        auto const freed = spill_manager_.spill(overbooked);
        auto const available = memory_available(MemoryType::DEVICE);
        overbooked = static_cast<std::size_t>(std::max<std::int64_t>(-available, 0));
        if (freed == 0) {
            break;
        }
    }
    if (overbooked > 0 && allow == AllowOverbooking::no) {
        reservation.clear();
        throw ReservationError{
            "cannot reserve " + bytes_text(as_signed(size))
            + " of device memory: " + bytes_text(as_signed(overbooked)) + " too much after spilling (limit "
            + bytes_text(tier(MemoryType::DEVICE).limit) + ", in buffers "
            + bytes_text(memory_used(MemoryType::DEVICE)) + ", reserved "
            + bytes_text(memory_reserved(MemoryType::DEVICE)) + ")"};
    }
    return std::move(reservation);
}

MemoryReservation BufferResource::reserve_best(std::size_t size, std::span<MemoryType const> types) {
    RAPIDSMPF_EXPECTS(!types.empty(), "reserve_best needs a tier", std::invalid_argument);
    for (auto const type : types) {
        auto [reservation, overbooked] = reserve(type, size, AllowOverbooking::no);
        if (overbooked == 0) {
            return std::move(reservation);
        }
    }
    return reserve(types.back(), size, AllowOverbooking::yes).first;
}

std::size_t BufferResource::release(MemoryReservation& reservation, std::size_t size) {
    RAPIDSMPF_EXPECTS(
        reservation.resource_.get() == this, "the reservation is of another buffer resource",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        size <= reservation.size_,
        "cannot release " + bytes_text(as_signed(size)) + " of a reservation of "
            + bytes_text(as_signed(reservation.size_)) + " of " + std::string{to_string(reservation.type_)},
        ReservationError);
    reservation.size_ -= size;
    return_reserved(reservation.type_, size);
    return reservation.size_;
}

void BufferResource::return_reserved(MemoryType type, std::size_t size) noexcept {
    std::lock_guard lock{mutex_};
    tier(type).reserved -= as_signed(size);
}

void BufferResource::account(MemoryType type, std::int64_t change) noexcept {
    std::lock_guard lock{mutex_};
    auto& entry = tier(type);
    entry.used += change;
    entry.peak = std::max(entry.peak, entry.used);
}

std::unique_ptr<Buffer> BufferResource::allocate(
    std::size_t size, MemoryReservation& reservation, Stream stream) {
    auto const type = reservation.mem_type();
    RAPIDSMPF_EXPECTS(
        type != MemoryType::DISK, "disk buffers come from moving a buffer there", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        size <= reservation.size(),
        "cannot allocate " + bytes_text(as_signed(size)) + " from a reservation of "
            + bytes_text(as_signed(reservation.size())),
        ReservationError);
    void* data = nullptr;
    if (size > 0) {
        data = type == MemoryType::DEVICE ? device_.allocate(size, stream) : device::allocate_host(size);
    }
    account(type, as_signed(size));
    release(reservation, size);
    return std::unique_ptr<Buffer>(
        new Buffer{shared_from_this(), type, static_cast<std::byte*>(data), size, stream, nullptr});
}

std::unique_ptr<Buffer> BufferResource::allocate(MemoryType type, std::size_t size, Stream stream) {
    auto reservation = reserve(type, size, AllowOverbooking::yes).first;
    return allocate(size, reservation, stream);
}

std::unique_ptr<Buffer> BufferResource::adopt(
    MemoryType type, std::byte* data, std::size_t size, std::shared_ptr<void> owner, Stream stream) {
    RAPIDSMPF_EXPECTS(owner != nullptr, "adopted memory needs an owner", std::invalid_argument);
    account(type, as_signed(size));
    return std::unique_ptr<Buffer>(
        new Buffer{shared_from_this(), type, data, size, stream, std::move(owner)});
}

std::unique_ptr<Buffer> BufferResource::move(std::unique_ptr<Buffer> buffer, MemoryReservation& reservation) {
    if (buffer->mem_type() == reservation.mem_type()) {
        return buffer;
    }
    auto const from = buffer->mem_type();
    auto const to = reservation.mem_type();
    ScopedTimer const timer{*statistics_, statistic::spill_time(from, to)};
    auto moved = copy(*buffer, 0, buffer->size(), reservation);
    statistics_->add(statistic::spill_bytes(from, to), static_cast<double>(moved->size()));
    return moved;
}

std::unique_ptr<Buffer> BufferResource::copy(
    Buffer const& buffer, std::size_t offset, std::size_t size, MemoryReservation& reservation) {
    RAPIDSMPF_EXPECTS(
        offset <= buffer.size() && size <= buffer.size() - offset, "copy beyond the end of a buffer",
        std::invalid_argument);
    auto const from = buffer.mem_type();
    auto const to = reservation.mem_type();
    ScopedTimer const timer{*statistics_, statistic::copy_time(from, to)};
    auto copied = allocate(size, reservation, buffer.stream());
    statistics_->add(statistic::copy_bytes(from, to), static_cast<double>(size));
    copied->write([&](std::byte* destination, Stream stream) {
        device_.copy(destination, buffer.data() + offset, size, stream);
    });
    if (device_.kind() == DeviceKind::cuda) {
        copied->synchronize();  // the source may be freed as soon as we return
    }
    return copied;
}

}  // namespace rapidsmpf
