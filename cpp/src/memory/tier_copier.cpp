#include <rapidsmpf/memory/detail/tier_copier.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/statistic_names.hpp>

namespace rapidsmpf::detail {

namespace {

// What is copied out of a GPU's memory at a time on the way to the disk: enough to keep the disk busy while the next
// bytes come.
constexpr std::size_t staged_bytes = std::size_t{256} << 20U;

}  // namespace

void TierCopier::count(MemoryType from, MemoryType to, std::size_t size, Clock::duration time) {
    auto& statistics = *resource_.statistics();
    double const bytes = static_cast<double>(size);
    double const took = std::chrono::duration<double>(time).count();
    statistics.add(statistic::copy_bytes(from, to), bytes);
    statistics.add(statistic::copy_time(from, to), took);
    if (from != to) {
        statistics.add(statistic::spill_bytes(from, to), bytes);
        statistics.add(statistic::spill_time(from, to), took);
    }
}

std::unique_ptr<Buffer> TierCopier::start_copy(
    Buffer const& buffer, std::size_t offset, std::size_t size, MemoryReservation& reservation) {
    RAPIDSMPF_EXPECTS(
        offset <= buffer.size() && size <= buffer.size() - offset, "copy beyond the end of a buffer",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        buffer.mem_type() != MemoryType::DISK && reservation.mem_type() != MemoryType::DISK,
        "a copy from or to DISK cannot be started without waiting for it", std::invalid_argument);
    auto copied = resource_.allocate(size, reservation, buffer.stream());
    auto const copy = [&](std::byte* destination, Stream stream) {
        resource_.device().copy(destination, buffer.data() + offset, size, stream);
    };
    if (buffer.mem_type() == MemoryType::DEVICE && copied->mem_type() != MemoryType::DEVICE) {
        // On a stream of its own: kernels on the buffer's stream must not wait for spilling.
        auto const stream = resource_.device().next_copy_stream();
        buffer.wait_for_writes(stream);
        copied->write_on(stream, copy);
    } else {
        copied->write(copy);
    }
    return copied;
}

std::unique_ptr<Buffer> TierCopier::copy(
    Buffer const& buffer, std::size_t offset, std::size_t size, MemoryReservation& reservation) {
    RAPIDSMPF_EXPECTS(
        offset <= buffer.size() && size <= buffer.size() - offset, "copy beyond the end of a buffer",
        std::invalid_argument);
    auto const start = Clock::now();
    auto const from = buffer.mem_type();
    auto const to = reservation.mem_type();
    if ((from == MemoryType::DISK && (to == MemoryType::DISK || !is_direct(to)))
        || (to == MemoryType::DISK && !is_direct(from))) {
        // The disk reads and writes host memory only.
        auto step = resource_.reserve(staging_type(), size, AllowOverbooking::yes).first;
        auto const between = copy(buffer, offset, size, step);
        return copy(*between, 0, size, reservation);
    }
    std::unique_ptr<Buffer> copied;
    if (to == MemoryType::DISK) {
        RAPIDSMPF_EXPECTS(
            size <= reservation.size(),
            "cannot write " + config::format_bytes(size) + " with a reservation of "
                + config::format_bytes(reservation.size()),
            ReservationError);
        copied = resource_.adopt_extent(
            resource_.disk().write(buffer.host_bytes().subspan(offset, size)), buffer.stream());
        resource_.release(reservation, size);
    } else if (from == MemoryType::DISK) {
        copied = resource_.allocate(size, reservation, buffer.stream());
        resource_.disk().read(buffer.extent_, offset, copied->mutable_host_bytes());
    } else {
        copied = start_copy(buffer, offset, size, reservation);
        copied->synchronize();  // the source may be freed as soon as we return
    }
    count(from, to, size, Clock::now() - start);
    return copied;
}

std::vector<std::unique_ptr<Buffer>> TierCopier::copy_while_there_is_room(
    std::span<Buffer const* const> buffers, MemoryType to) {
    auto const start = Clock::now();
    std::vector<std::unique_ptr<Buffer>> copies(buffers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        auto const& source = *buffers[i];
        auto reservation = resource_.reserve(to, source.size(), AllowOverbooking::no).first;
        if (reservation.size() < source.size()) {
            continue;
        }
        try {
            copies[i] = start_copy(source, 0, source.size(), reservation);
        } catch (OutOfMemory const&) {
            break;  // the tier has a bound of its own: what fits, fits
        }
    }
    // All are under way. The sources may be freed once they have arrived.
    std::size_t copied = 0;
    for (auto const& copy : copies) {
        if (copy) {
            copy->synchronize();
            ++copied;
        }
    }
    if (copied == 0) {
        return copies;
    }
    auto const each = (Clock::now() - start) / static_cast<std::int64_t>(copied);
    for (std::size_t i = 0; i < copies.size(); ++i) {
        if (copies[i]) {
            count(buffers[i]->mem_type(), to, copies[i]->size(), each);
        }
    }
    return copies;
}

bool TierCopier::is_direct(MemoryType type) const noexcept {
    return type != MemoryType::DEVICE || resource_.device().kind() == DeviceKind::cpu;
}

MemoryType TierCopier::staging_type() const noexcept {
    return resource_.pinned_mr() ? MemoryType::PINNED_HOST : MemoryType::HOST;
}

std::vector<std::unique_ptr<Buffer>> TierCopier::stage(std::span<Buffer const* const> buffers) {
    std::vector<std::unique_ptr<Buffer>> staged;
    for (auto const* buffer : buffers) {
        if (buffer->is_host_accessible()) {
            staged.push_back(nullptr);
            continue;
        }
        auto const start_in = [&](MemoryType type) {
            auto memory = resource_.reserve(type, buffer->size(), AllowOverbooking::yes).first;
            return start_copy(*buffer, 0, buffer->size(), memory);
        };
        try {
            staged.push_back(start_in(staging_type()));
        } catch (OutOfMemory const&) {
            staged.push_back(start_in(MemoryType::HOST));
        }
    }
    return staged;
}

std::vector<std::unique_ptr<Buffer>> TierCopier::write_to_disk(std::span<Buffer const* const> buffers) {
    std::vector<std::unique_ptr<Buffer>> copies;
    copies.reserve(buffers.size());
    // What lies on a GPU comes to the host group by group: while one is written the next is on its way.
    std::vector<std::span<Buffer const* const>> groups;
    for (auto left = buffers; !left.empty();) {
        std::size_t count = 0;
        for (std::size_t bytes = 0; count < left.size() && (count == 0 || bytes < staged_bytes); ++count) {
            bytes += left[count]->size();
        }
        auto const all_at_once = resource_.device().kind() == DeviceKind::cpu;
        groups.push_back(left.first(all_at_once ? left.size() : count));
        left = left.subspan(groups.back().size());
    }
    auto coming = groups.empty() ? std::vector<std::unique_ptr<Buffer>>{} : stage(groups.front());
    for (std::size_t g = 0; g < groups.size(); ++g) {
        auto const start = Clock::now();
        auto const staged = std::exchange(
            coming, g + 1 < groups.size() ? stage(groups[g + 1]) : std::vector<std::unique_ptr<Buffer>>{});
        std::vector<std::span<std::byte const>> blocks;
        for (std::size_t i = 0; i < groups[g].size(); ++i) {
            blocks.push_back((staged[i] ? *staged[i] : *groups[g][i]).host_bytes());
        }
        auto extents = resource_.disk().write(blocks);
        auto const each = (Clock::now() - start) / static_cast<std::int64_t>(groups[g].size());
        for (std::size_t i = 0; i < groups[g].size(); ++i) {
            auto const& source = *groups[g][i];
            copies.push_back(resource_.adopt_extent(std::move(extents[i]), source.stream()));
            count(source.mem_type(), MemoryType::DISK, source.size(), each);
        }
    }
    return copies;
}

void TierCopier::read_back(std::vector<ReadBack> wanted) {
    struct Reading {
        std::shared_ptr<BufferResource> resource;  // outlives what is below
        std::unique_ptr<Buffer> buffer;
        std::optional<PendingRead> pending;
        ReadDone done;
        Clock::time_point start{Clock::now()};
    };
    std::vector<std::shared_ptr<Reading>> started;
    std::vector<PendingRead> pending;
    try {
        std::vector<DiskSpace::WholeRead> reads;
        for (auto& each : wanted) {
            auto const& stored = *each.buffer;
            auto& reading = *started.emplace_back(std::make_shared<Reading>());
            reading.resource = resource_.shared_from_this();
            reading.buffer = resource_.allocate(stored.size(), each.memory, stored.stream());
            reads.push_back({&stored.extent_, reading.buffer->mutable_host_bytes()});
        }
        pending = resource_.disk().start_reads(reads);
    } catch (...) {
        started.clear();
        for (auto const& each : wanted) {
            each.done(nullptr, std::current_exception());
        }
        return;
    }
    for (std::size_t i = 0; i < started.size(); ++i) {
        auto const& reading = started[i];
        reading->done = std::move(wanted[i].done);
        reading->pending.emplace(std::move(pending[i]));
        // The operation forgets the callback when it has called it, and with it `reading`.
        reading->pending->on_done([reading] {
            std::exception_ptr error;
            try {
                reading->pending->get();
            } catch (...) {
                error = std::current_exception();
                reading->buffer.reset();
            }
            if (!error) {
                auto const& read = *reading->buffer;
                reading->resource->copier().count(
                    MemoryType::DISK, read.mem_type(), read.size(), Clock::now() - reading->start);
            }
            reading->done(std::move(reading->buffer), std::move(error));
        });
    }
}

}  // namespace rapidsmpf::detail
