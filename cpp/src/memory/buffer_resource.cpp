#include <rapidsmpf/memory/buffer_resource.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/statistic_names.hpp>
#include <rapidsmpf/device/detail/host_memory.hpp>
#include <rapidsmpf/memory/available_memory.hpp>
#include <rapidsmpf/memory/detail/partition_order_hint.hpp>
#include <rapidsmpf/memory/detail/tier_copier.hpp>
#include <rapidsmpf/memory/disk_space.hpp>
#include <rapidsmpf/memory/memory_resource.hpp>
#include <rapidsmpf/memory/pinned_memory_resource.hpp>

#include "memory/budget.hpp"
#include "memory/spill/arbiter.hpp"
#include "memory/spill/spill_registry.hpp"

namespace rapidsmpf {

namespace {

std::int64_t as_signed(std::size_t size) {
    return static_cast<std::int64_t>(size);
}

BufferResource::Duration seconds(double value) {
    return std::chrono::duration_cast<BufferResource::Duration>(std::chrono::duration<double>{value});
}

}  // namespace

std::shared_ptr<BufferResource> BufferResource::make(Settings settings) {
    return std::shared_ptr<BufferResource>(new BufferResource{std::move(settings)});
}

BufferResource::Settings BufferResource::settings_from_options(
    config::Options options, std::shared_ptr<Statistics> statistics) {
    Settings settings;
    auto& device = Device::current();
    auto const total = device_memory_from_options(options, device);
    settings.limits[static_cast<std::size_t>(MemoryType::DEVICE)] =
        config::get_optional_share(options, "spill_device_limit", [&] { return total; }).value_or(unlimited);
    if (device.kind() != DeviceKind::cpu) {
        settings.limits[static_cast<std::size_t>(MemoryType::HOST)] =
            config::get_optional_bytes(options, "memory_limit").value_or(unlimited);
    }
    settings.high_water = config::get_fraction(options, "spill_high_water");
    auto const given = options.get_strings();
    settings.low_water = config::get_fraction(options, "spill_low_water");
    if (auto const low = given.find("spill_low_water"); low == given.end() || low->second.empty()) {
        // A user who lowers the high mark alone need not set the low one.
        settings.low_water = std::min(settings.low_water, settings.high_water);
    }
    if (auto const period = config::get_optional_seconds(options, "periodic_spill_check")) {
        settings.periodic_spill_check = seconds(*period);
    } else {
        settings.periodic_spill_check.reset();
    }
    settings.reserve_timeout = seconds(config::get_seconds(options, "memory_reserve_timeout"));
    settings.num_streams = static_cast<std::size_t>(config::get_count(options, "num_streams"));
    settings.disk = DiskSpace::from_options(options, statistics);
    settings.statistics = std::move(statistics);
    return settings;
}

std::shared_ptr<BufferResource> BufferResource::from_options(
    config::Options options, std::shared_ptr<Statistics> statistics) {
    return make(settings_from_options(std::move(options), std::move(statistics)));
}

BufferResource::BufferResource(Settings settings)
    : device_{Device::current()},
      device_mr_{std::move(settings.device_mr)},
      pinned_mr_{std::move(settings.pinned_mr)},
      num_streams_{settings.num_streams},
      next_stream_{std::move(settings.next_stream)},
      statistics_{
          settings.statistics ? std::move(settings.statistics)
                              : std::make_shared<Statistics>(Statistics::Enabled::no)},
      reserve_timeout_{settings.reserve_timeout},
      disk_limit_{settings.limits[static_cast<std::size_t>(MemoryType::DISK)]},
      registry_{std::make_unique<detail::SpillRegistry>()},
      arbiter_{std::make_shared<detail::Arbiter>(settings.periodic_spill_check)},
      disk_{std::move(settings.disk)},
      copier_{std::make_unique<detail::TierCopier>(*this)},
      partition_order_hint_{std::make_unique<PartitionOrderHint>()} {
    RAPIDSMPF_EXPECTS(
        0 < settings.low_water && settings.low_water <= settings.high_water && settings.high_water <= 1,
        "the marks of spilling must be 0 < low_water <= high_water <= 1, not "
            + std::to_string(settings.low_water) + " and " + std::to_string(settings.high_water),
        std::invalid_argument);
    budget_ = std::make_unique<detail::Budget>(
        device_, settings.limits, std::move(settings.available),
        detail::Budget::Marks{settings.high_water, settings.low_water});
    spill_manager_.attach(
        [this](std::size_t amount) { return spill_buffers(MemoryType::DEVICE, amount); },
        [this] { note_spillable(); });
}

BufferResource::~BufferResource() {
    arbiter_->stop();
}

std::int64_t BufferResource::memory_available(MemoryType type) const {
    return budget_->available(type);
}
std::int64_t BufferResource::memory_reserved(MemoryType type) const {
    return budget_->usage(type).reserved;
}
std::int64_t BufferResource::memory_used(MemoryType type) const {
    return budget_->usage(type).used;
}
std::int64_t BufferResource::memory_peak(MemoryType type) const {
    return budget_->usage(type).peak;
}
std::int64_t BufferResource::memory_limit(MemoryType type) const {
    return budget_->usage(type).limit;
}

std::pair<MemoryReservation, std::size_t> BufferResource::reserve(
    MemoryType type, std::size_t size, AllowOverbooking allow) {
    using detail::Budget;
    auto const overbooked = budget_->reserve(
        type, size, allow == AllowOverbooking::yes ? Budget::WhenFull::overbook : Budget::WhenFull::refuse);
    if (overbooked > 0 && size > 0 && allow == AllowOverbooking::no) {
        return {MemoryReservation{shared_from_this(), type, 0}, overbooked};
    }
    if (overbooked > 0) {
        statistics_->add(statistic::id("reservation-overbooked-bytes"), static_cast<double>(overbooked));
    }
    note_pressure(type);
    return {MemoryReservation{shared_from_this(), type, size}, overbooked};
}

std::shared_ptr<MemoryRequest> BufferResource::request(
    MemoryType type, std::size_t size, AllowOverbooking allow, std::function<void()> on_done,
    std::optional<Duration> timeout) {
    RAPIDSMPF_EXPECTS(type != MemoryType::DISK, "nobody waits for space on disk", std::invalid_argument);
    return arbiter_->submit(
        shared_from_this(), type, size, allow, timeout.value_or(reserve_timeout_), std::move(on_done));
}

MemoryReservation BufferResource::reserve_or_wait(
    MemoryType type, std::size_t size, AllowOverbooking allow, std::optional<Duration> timeout) {
    auto [reservation, overbooked] = reserve(type, size, AllowOverbooking::no);
    if (overbooked == 0) {
        return std::move(reservation);
    }
    RAPIDSMPF_EXPECTS(
        !arbiter_->runs_this_thread(), "a spill function must not wait for memory", std::logic_error);
    ScopedTimer const timer{*statistics_, statistic::id("reservation-wait-time")};
    return request(type, size, allow, nullptr, timeout)->take();
}

MemoryReservation BufferResource::reserve_and_spill(
    MemoryType type, std::size_t size, AllowOverbooking allow) {
    if (arbiter_->runs_this_thread()) {
        // A spill function that packs what it moves needs memory for a moment, and cannot wait for itself.
        auto reservation = reserve(type, size, allow).first;
        if (reservation.size() < size) {
            throw ReservationError{"no memory to pack what is to be spilled in"};
        }
        return reservation;
    }
    return reserve_or_wait(type, size, allow, Duration::zero());
}

std::optional<MemoryReservation> BufferResource::try_reserve_best(
    std::size_t size, std::span<MemoryType const> types) {
    for (auto const type : types) {
        if (type == MemoryType::PINNED_HOST && !pinned_mr_) {
            continue;
        }
        auto [reservation, overbooked] = reserve(type, size, AllowOverbooking::no);
        if (overbooked == 0) {
            return std::move(reservation);
        }
    }
    return std::nullopt;
}

MemoryReservation BufferResource::reserve_best(std::size_t size, std::span<MemoryType const> types) {
    RAPIDSMPF_EXPECTS(!types.empty(), "reserve_best needs a tier", std::invalid_argument);
    if (auto reservation = try_reserve_best(size, types)) {
        return std::move(*reservation);
    }
    return reserve(types.back(), size, AllowOverbooking::yes).first;
}

std::size_t BufferResource::release(MemoryReservation& reservation, std::size_t size) {
    RAPIDSMPF_EXPECTS(
        reservation.resource_.get() == this, "the reservation is of another buffer resource",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        size <= reservation.size_,
        "cannot release " + config::format_bytes(size) + " of a reservation of "
            + config::format_bytes(reservation.size_) + " of " + std::string{to_string(reservation.type_)},
        ReservationError);
    reservation.size_ -= size;
    return_reserved(reservation.type_, size);
    return reservation.size_;
}

void BufferResource::return_reserved(MemoryType type, std::size_t size) noexcept {
    budget_->return_reserved(type, size);
    note_freed();
}

void BufferResource::account(MemoryType type, std::int64_t change) noexcept {
    if (auto const peak = budget_->account(type, change); peak > 0) {
        statistics_->add(statistic::memory_peak(type), static_cast<double>(peak));
    }
    if (change < 0) {
        note_freed();
    }
}

void BufferResource::note_freed() noexcept {
    if (arbiter_->anybody_waits()) {
        arbiter_->notify(weak_from_this(), detail::Arbiter::Change::freed);
    }
}

void BufferResource::note_spillable() noexcept {
    auto const is_watched = [&](MemoryType type) { return budget_->is_measured(type); };
    if (std::any_of(memory_types.begin(), memory_types.end(), is_watched)) {
        arbiter_->notify(weak_from_this(), detail::Arbiter::Change::pressure);
    } else {
        note_pressure(MemoryType::DEVICE);
    }
}

void BufferResource::note_pressure(MemoryType type) noexcept {
    if (budget_->under_pressure(type) && (arbiter_->anybody_waits() || has_spillable())) {
        arbiter_->notify(weak_from_this(), detail::Arbiter::Change::pressure);
    }
}

std::optional<MemoryReservation> BufferResource::grant(
    MemoryType type, std::size_t size, AllowOverbooking allow) {
    using detail::Budget;
    auto const overbooked = budget_->reserve(
        type, size,
        allow == AllowOverbooking::yes ? Budget::WhenFull::overbook : Budget::WhenFull::refuse_waiting_one);
    if (overbooked > 0 && allow == AllowOverbooking::no) {
        return std::nullopt;
    }
    if (overbooked > 0) {
        statistics_->add(statistic::id("reservation-overbooked-bytes"), static_cast<double>(overbooked));
    }
    return MemoryReservation{shared_from_this(), type, size};
}

void BufferResource::add_waiting(MemoryType type, std::int64_t change) {
    budget_->add_waiting(type, change);
}

std::size_t BufferResource::shortage(MemoryType type) const {
    return static_cast<std::size_t>(budget_->shortage(type));
}

bool BufferResource::has_spillable() const {
    return !spill_manager_.empty() || registry_->has_victims(MemoryType::DEVICE)
           || registry_->has_victims(MemoryType::PINNED_HOST) || registry_->has_victims(MemoryType::HOST);
}

bool BufferResource::is_larger_than_limit(MemoryType type, std::size_t size) const {
    auto const limit = budget_->usage(type).limit;
    return limit != unlimited && as_signed(size) > limit;
}

bool BufferResource::is_idle(MemoryType type) const {
    auto const holdings = registry_->holdings(type);
    return budget_->usage(type).reserved == 0 && holdings.spillable == 0 && holdings.moving == 0;
}

bool BufferResource::is_moving(MemoryType type) const {
    return registry_->holdings(type).moving > 0;
}

std::string BufferResource::describe(MemoryType type) const {
    auto const usage = budget_->usage(type);
    auto const holdings = registry_->holdings(type);
    auto const waiting = arbiter_->waiting(type);
    std::string text = std::string{to_string(type)} + " has ";
    text += usage.limit == unlimited ? "no limit" : "a limit of " + config::format_bytes(usage.limit);
    text += ": " + config::format_bytes(usage.used) + " in buffers ("
            + config::format_bytes(holdings.spillable) + " can be spilled, "
            + config::format_bytes(holdings.pinned) + " being read, " + config::format_bytes(holdings.moving)
            + " being moved), " + config::format_bytes(usage.reserved) + " reserved";
    if (auto const others = budget_->held_by_others(); others > 0 && type != MemoryType::PINNED_HOST) {
        text += ", " + config::format_bytes(others) + " of this process outside Riverrun";
    }
    if (waiting.requests > 0) {
        text += ", " + std::to_string(waiting.requests) + " requests for "
                + config::format_bytes(waiting.bytes) + " wait";
    }
    return text;
}

std::string BufferResource::describe_shortage(MemoryType type, std::size_t size) const {
    auto const available = memory_available(type);
    auto const missing = as_signed(size) - available;
    return "cannot reserve " + config::format_bytes(size) + " of " + std::string{to_string(type)}
           + " memory: " + config::format_bytes(missing) + " too much after spilling. " + describe(type);
}

Stream BufferResource::next_stream() const {
    return next_stream_ ? next_stream_() : device_.next_stream();
}

void* BufferResource::allocate_memory(MemoryType type, std::size_t size, Stream stream) {
    if (type == MemoryType::DEVICE) {
        return device_mr_ ? device_mr_->allocate(size, stream) : device_.allocate(size, stream);
    }
    if (type == MemoryType::HOST) {
        return device::allocate_host(size);
    }
    RAPIDSMPF_EXPECTS(
        pinned_mr_ != nullptr,
        "cannot allocate " + config::format_bytes(size)
            + " of pinned host memory: it is disabled (give the buffer resource a pinned_mr, or set pinned_memory)",
        OutOfMemory);
    return pinned_mr_->allocate(size, stream);
}

void BufferResource::deallocate_memory(
    MemoryType type, void* data, std::size_t size, Stream stream) noexcept {
    if (type == MemoryType::DEVICE) {
        device_mr_ ? device_mr_->deallocate(data, size, stream) : device_.deallocate(data, size, stream);
    } else if (type == MemoryType::HOST) {
        device::deallocate_host(data, size);
    } else {
        pinned_mr_->deallocate(data, size, stream);
    }
}

std::unique_ptr<Buffer> BufferResource::allocate(
    std::size_t size, MemoryReservation& reservation, Stream stream) {
    auto const type = reservation.mem_type();
    RAPIDSMPF_EXPECTS(
        type != MemoryType::DISK, "disk buffers come from moving a buffer there", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        size <= reservation.size(),
        "cannot allocate " + config::format_bytes(size) + " from a reservation of "
            + config::format_bytes(reservation.size()),
        ReservationError);
    void* const data = size > 0 ? allocate_memory(type, size, stream) : nullptr;
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
    note_pressure(type);
    return std::unique_ptr<Buffer>(
        new Buffer{shared_from_this(), type, data, size, stream, std::move(owner)});
}

std::unique_ptr<Buffer> BufferResource::adopt_extent(DiskExtent extent, Stream stream) {
    auto const size = extent.size();
    account(MemoryType::DISK, as_signed(size));
    return std::unique_ptr<Buffer>(
        new Buffer{shared_from_this(), MemoryType::DISK, nullptr, size, stream, nullptr, std::move(extent)});
}

std::unique_ptr<Buffer> BufferResource::copy(
    Buffer const& buffer, std::size_t offset, std::size_t size, MemoryReservation& reservation) {
    return copier_->copy(buffer, offset, size, reservation);
}

std::unique_ptr<Buffer> BufferResource::move(std::unique_ptr<Buffer> buffer, MemoryReservation& reservation) {
    if (buffer->mem_type() == reservation.mem_type()) {
        return buffer;
    }
    return copy(*buffer, 0, buffer->size(), reservation);
}

std::unique_ptr<Buffer> BufferResource::move_to_host_access(std::unique_ptr<Buffer> buffer) {
    if (buffer->is_host_accessible()) {
        return buffer;
    }
    auto reservation =
        reserve_or_wait(type_to_read_into(), buffer->size(), AllowOverbooking::yes, Duration::zero());
    return move(std::move(buffer), reservation);
}

DiskSpace& BufferResource::disk() {
    std::call_once(disk_once_, [&] {
        if (!disk_) {
            DiskSpace::Settings settings;
            settings.limit = disk_limit_;
            settings.statistics = statistics_;
            disk_ = DiskSpace::make(std::move(settings));
        }
    });
    return *disk_;
}

MemoryType BufferResource::type_to_read_into() const noexcept {
    return device_.kind() == DeviceKind::cpu ? MemoryType::DEVICE : MemoryType::HOST;
}

std::vector<MemoryType> BufferResource::spill_targets(MemoryType type) const {
    std::vector<MemoryType> targets;
    if (pinned_mr_ && type == MemoryType::DEVICE) {
        targets.push_back(MemoryType::PINNED_HOST);
    }
    if (device_.kind() == DeviceKind::cuda && type < MemoryType::HOST) {
        targets.push_back(MemoryType::HOST);
    }
    if (type < MemoryType::DISK && disk_limit_ > 0) {
        targets.push_back(MemoryType::DISK);
    }
    return targets;
}

std::size_t BufferResource::spill(MemoryType type, std::size_t amount) {
    auto const freed =
        type == MemoryType::DEVICE ? spill_manager_.spill(amount) : spill_buffers(type, amount);
    statistics_->add(statistic::id("spill-freed-bytes"), static_cast<double>(freed));
    statistics_->add(
        statistic::id("spill-shortfall-bytes"), static_cast<double>(amount > freed ? amount - freed : 0));
    return freed;
}

std::size_t BufferResource::spill_buffers(MemoryType type, std::size_t amount) {
    std::size_t freed = 0;
    while (freed < amount) {
        auto const bytes = registry_->spill(*this, type, std::min(amount - freed, detail::spill_batch));
        if (bytes == 0) {
            break;
        }
        freed += bytes;
    }
    return freed;
}

}  // namespace rapidsmpf
