#include <rapidsmpf/memory/disk_space.hpp>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>

#include "memory/disk/disk_allocator.hpp"
#include "memory/disk/disk_block.hpp"
#include "memory/disk/disk_file.hpp"
#include "memory/disk/disk_operation.hpp"
#include "memory/disk/file_system.hpp"
#include "memory/disk/io_pool.hpp"

namespace rapidsmpf {

namespace {

std::filesystem::path or_temporary(std::filesystem::path directory) {
    if (!directory.empty()) {
        return directory;
    }
    auto const* temporary = std::getenv("TMPDIR");
    return temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
}

std::int64_t in_pages(std::size_t bytes) {
    return round_up(static_cast<std::int64_t>(bytes), detail::disk_page);
}

}  // namespace

struct DiskSpace::Parts {
    explicit Parts(Settings settings)
        : statistics{
              settings.statistics ? std::move(settings.statistics)
                                  : std::make_shared<Statistics>(Statistics::Enabled::no)},
          writes{
              statistics.get(), statistics->id("disk-write-bytes", Statistics::Unit::bytes),
              statistics->id("disk-write-seconds", Statistics::Unit::seconds)},
          reads{
              statistics.get(), statistics->id("disk-read-bytes", Statistics::Unit::bytes),
              statistics->id("disk-read-seconds", Statistics::Unit::seconds)},
          bytes_used{statistics->id("disk-bytes-used", Statistics::Unit::bytes)},
          file{or_temporary(std::move(settings.directory)), std::move(settings.faults_for_testing)},
          allocator{file, settings.limit, settings.keep_free},
          pool{settings.io_threads, detail::io_block_size} {}

    void submit(detail::IoPool::Queue queue, std::vector<detail::IoPool::Job> jobs) {
        try {
            pool.submit(queue, std::move(jobs));
        } catch (std::system_error const& error) {
            throw SpillError{
                std::string{"cannot start a thread to spill with: "} + error.what()
                    + ". Raise the limit of processes.",
                error.code().value()};
        }
    }

    std::shared_ptr<Statistics> statistics;
    detail::DiskOperation::Counters writes;
    detail::DiskOperation::Counters reads;
    Statistics::Id bytes_used;
    detail::DiskFile file;
    detail::DiskAllocator allocator;
    detail::IoPool pool;  // last: its jobs use the rest
};

// Regions

detail::DiskRegion::DiskRegion(std::shared_ptr<DiskSpace> space, FileRange range) noexcept
    : space_{std::move(space)}, range_{range} {}

detail::DiskRegion::~DiskRegion() {
    auto& parts = *space_->parts_;
    try {
        if (bad_) {
            parts.allocator.discard(range_);
        } else if (parts.allocator.free(range_)) {
            std::vector<IoPool::Job> jobs;
            jobs.emplace_back([weak = space_->weak_from_this()](IoBlock& /*memory*/) {
                if (auto const space = weak.lock()) {
                    space->parts_->allocator.trim();
                }
            });
            parts.pool.submit(IoPool::Queue::writes, std::move(jobs));
        }
    } catch (...) {  // NOLINT(bugprone-empty-catch)
        // No memory for the bookkeeping: the range stays unused, which is better than to end the process.
    }
}

// Extents

DiskExtent::DiskExtent(std::shared_ptr<detail::StoredBlock const> block) noexcept
    : block_{std::move(block)} {}
DiskExtent::~DiskExtent() = default;

std::size_t DiskExtent::size() const noexcept {
    return block_ ? block_->size : 0;
}
std::size_t DiskExtent::stored_bytes() const noexcept {
    return block_ ? block_->stored_bytes : 0;
}
std::shared_ptr<DiskSpace> DiskExtent::space() const {
    return block_ && block_->region ? block_->region->space() : nullptr;
}

// Operations in flight

PendingDiskOperation::PendingDiskOperation(
    std::shared_ptr<DiskSpace> space, std::shared_ptr<detail::DiskOperation> operation) noexcept
    : space_{std::move(space)}, operation_{std::move(operation)} {}

void PendingDiskOperation::finish() noexcept {
    if (operation_) {
        operation_->wait();
        operation_->written.clear();
    }
}

PendingDiskOperation::~PendingDiskOperation() {
    finish();
}

PendingDiskOperation& PendingDiskOperation::operator=(PendingDiskOperation&& other) noexcept {
    if (this != &other) {
        finish();
        operation_ = std::move(other.operation_);
        space_ = std::move(other.space_);
    }
    return *this;
}

bool PendingDiskOperation::is_done() const {
    return operation_->is_done();
}
void PendingDiskOperation::wait() const noexcept {
    operation_->wait();
}
void PendingDiskOperation::get() const {
    operation_->get();
}
void PendingDiskOperation::on_done(std::function<void()> callback) {
    operation_->on_done(std::move(callback));
}

std::vector<DiskExtent> PendingWrite::take() {
    operation_->get();
    std::vector<DiskExtent> extents;
    extents.reserve(operation_->written.size());
    for (auto& block : operation_->written) {
        extents.emplace_back(std::move(block));
    }
    operation_->written.clear();
    return extents;
}

DiskExtent PendingWrite::take_one() {
    auto extents = take();
    RAPIDSMPF_EXPECTS(extents.size() == 1, "take_one() is for a write of one block", std::logic_error);
    return std::move(extents.front());
}

// The space

std::shared_ptr<DiskSpace> DiskSpace::make(Settings settings) {
    RAPIDSMPF_EXPECTS(
        settings.limit >= 0, "spill_disk_limit is negative; \"disabled\" means no limit",
        std::invalid_argument);
    RAPIDSMPF_EXPECTS(settings.keep_free >= 0, "keep_free is negative", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        settings.io_threads > 0, "spill_io_threads is 0; at least one thread is needed",
        std::invalid_argument);
    return std::shared_ptr<DiskSpace>(new DiskSpace{std::move(settings)});
}

std::shared_ptr<DiskSpace> DiskSpace::from_options(
    config::Options options, std::shared_ptr<Statistics> statistics) {
    Settings settings;
    auto const named = config::get_text(options, "spill_directory");
    settings.directory = or_temporary(named);
    settings.limit = config::get_optional_share(options, "spill_disk_limit", [&] {
                         return detail::file_system_of(settings.directory).total;
                     }).value_or(unlimited);
    auto const threads = config::get_count(options, "spill_io_threads");
    RAPIDSMPF_EXPECTS(
        threads <= 1024, "spill_io_threads is " + std::to_string(threads) + ", not in 1 to 1024",
        std::invalid_argument);
    settings.io_threads = static_cast<std::size_t>(threads);
    settings.statistics = std::move(statistics);
    auto space = make(std::move(settings));
    if (!named.empty()) {
        try {
            space->parts_->file.open();
        } catch (SpillError const& error) {
            throw std::invalid_argument{std::string{"option spill_directory: "} + error.what()};
        }
    }
    return space;
}

DiskSpace::DiskSpace(Settings settings) : parts_{std::make_unique<Parts>(std::move(settings))} {}
DiskSpace::~DiskSpace() = default;

namespace {

using Bytes = std::span<std::byte const>;

// Small blocks that share a region.
struct Group {
    std::vector<detail::StoredBlock*> blocks;
    std::vector<Bytes> bytes;
    std::size_t size{0};
};

// The disk would not take a region: its blocks are not used again.
template <typename Write>
void or_mark_bad(detail::DiskRegion& region, Write const& write) {
    try {
        write();
    } catch (SpillError const&) {
        region.mark_bad();
        throw;
    }
}

}  // namespace

PendingWrite DiskSpace::start_write(std::span<Bytes const> blocks) {
    auto& file = parts_->file;
    auto& allocator = parts_->allocator;
    auto operation = std::make_shared<detail::DiskOperation>(parts_->writes);
    auto const self = shared_from_this();
    auto const make_region = [&](std::size_t size) {
        return std::make_shared<detail::DiskRegion>(self, allocator.allocate(in_pages(size)));
    };

    std::vector<detail::IoPool::Job> jobs;
    auto const is_small = [](Bytes block) { return !block.empty() && block.size() < detail::small_block; };
    auto const pack = std::count_if(blocks.begin(), blocks.end(), is_small) > 1;
    std::vector<std::shared_ptr<Group>> groups;
    std::size_t total = 0;
    for (auto const bytes : blocks) {
        // The operation owns the blocks as long as its jobs use them; were a job to share them, their space would
        // come back some time after the user gave it up.
        auto* const block = operation->written.emplace_back(std::make_shared<detail::StoredBlock>()).get();
        block->size = bytes.size();
        block->checksums.resize(block->pieces());
        total += bytes.size();
        if (pack && is_small(bytes)) {
            if (groups.empty() || groups.back()->size + bytes.size() > detail::staged_size) {
                groups.push_back(std::make_shared<Group>());
            }
            auto& group = *groups.back();
            block->position =
                static_cast<std::int64_t>(group.size);  // within the group, until it has a place
            block->stored_bytes = bytes.size();
            group.size += bytes.size();
            group.blocks.push_back(block);
            group.bytes.push_back(bytes);
        } else if (!bytes.empty()) {
            block->region = make_region(bytes.size());
            block->position = block->region->range().offset;
            block->stored_bytes = static_cast<std::size_t>(block->region->range().length);
            for (std::size_t begin = 0; begin < bytes.size(); begin += detail::chunk_size) {
                jobs.emplace_back([&file, operation, block, bytes, begin](detail::IoBlock& memory) {
                    operation->run([&] {
                        or_mark_bad(
                            *block->region, [&] { detail::write_chunk(file, *block, bytes, begin, memory); });
                    });
                });
            }
        }
    }
    for (auto const& group : groups) {
        auto const region = make_region(group->size);
        for (auto* const block : group->blocks) {
            block->region = region;
            block->position += region->range().offset;
        }
        jobs.emplace_back([&file, operation, group](detail::IoBlock& memory) {
            operation->run([&] {
                or_mark_bad(*group->blocks.front()->region, [&] {
                    detail::write_together(file, group->blocks, group->bytes, memory);
                });
            });
        });
    }
    parts_->statistics->add(parts_->bytes_used, static_cast<double>(allocator.used()));
    operation->begin(jobs.size(), total);
    if (!jobs.empty()) {
        parts_->submit(detail::IoPool::Queue::writes, std::move(jobs));
    }
    return PendingWrite{self, std::move(operation)};
}

PendingWrite DiskSpace::start_write(Bytes block) {
    return start_write(std::span{&block, 1});
}
std::vector<DiskExtent> DiskSpace::write(std::span<Bytes const> blocks) {
    return start_write(blocks).take();
}
DiskExtent DiskSpace::write(Bytes block) {
    return start_write(block).take_one();
}

PendingRead DiskSpace::start_read(
    DiskExtent const& extent, std::size_t offset, std::span<std::byte> destination) {
    RAPIDSMPF_EXPECTS(extent.block_ != nullptr, "cannot read an empty extent", std::invalid_argument);
    auto const& block = extent.block_;
    RAPIDSMPF_EXPECTS(
        offset <= block->size && destination.size() <= block->size - offset,
        "cannot read " + std::to_string(destination.size()) + " bytes from " + std::to_string(offset)
            + " on of an extent of " + std::to_string(block->size) + " bytes",
        std::out_of_range);
    RAPIDSMPF_EXPECTS(
        block->region == nullptr || block->region->space().get() == this,
        "the extent is of another disk space", std::invalid_argument);

    auto operation = std::make_shared<detail::DiskOperation>(parts_->reads);
    operation->reading = block;
    std::vector<detail::IoPool::Job> jobs;
    if (!destination.empty()) {
        auto const end = offset + destination.size();
        for (auto begin = offset / detail::chunk_size * detail::chunk_size; begin < end;
             begin += detail::chunk_size) {
            jobs.emplace_back([&file = parts_->file, operation, begin, offset, destination,
                               &stored = *block](detail::IoBlock& memory) {
                operation->run([&] { detail::read_chunk(file, stored, begin, offset, destination, memory); });
            });
        }
    }
    operation->begin(jobs.size(), destination.size());
    if (!jobs.empty()) {
        parts_->submit(detail::IoPool::Queue::reads, std::move(jobs));
    }
    return PendingRead{shared_from_this(), std::move(operation)};
}

namespace {

// Small blocks that one transfer reads, by their position in the file.
struct ReadGroup {
    struct Member {
        std::shared_ptr<detail::DiskOperation> operation;
        detail::StoredBlock const* block;
        std::span<std::byte> destination;
    };
    std::vector<Member> members;

    [[nodiscard]] bool takes(detail::StoredBlock const& block) const {
        auto const& last = *members.back().block;
        auto const end = last.position + static_cast<std::int64_t>(last.size);
        auto const first = members.front().block->position;
        auto const length = block.position + static_cast<std::int64_t>(block.size) - first;
        return block.position >= end
               && block.position - end <= static_cast<std::int64_t>(detail::most_skipped)
               && length <= static_cast<std::int64_t>(detail::staged_size);
    }
};

void read_group(detail::DiskFile& file, ReadGroup const& group, detail::IoBlock& memory) {
    detail::ReadTogether together{file, *group.members.front().block, *group.members.back().block, memory};
    for (auto const& member : group.members) {
        member.operation->run([&] { together.give(*member.block, member.destination); });
    }
}

}  // namespace

std::vector<PendingRead> DiskSpace::start_reads(std::span<WholeRead const> wanted) {
    auto const is_small = [](DiskExtent const& extent) {
        return extent.size() > 0 && extent.size() <= detail::piece_size;
    };
    std::vector<ReadGroup::Member> small;
    std::vector<PendingRead> large;
    for (auto const& [extent, destination] : wanted) {
        RAPIDSMPF_EXPECTS(
            extent->size() == destination.size(), "a whole extent is read into as many bytes",
            std::invalid_argument);
        if (!is_small(*extent)) {
            large.push_back(start_read(*extent, 0, destination));
        } else {
            RAPIDSMPF_EXPECTS(
                extent->space().get() == this, "the extent is of another disk space", std::invalid_argument);
            auto operation = std::make_shared<detail::DiskOperation>(parts_->reads);
            operation->reading = extent->block_;
            operation->begin(1, destination.size());
            small.push_back({std::move(operation), extent->block_.get(), destination});
        }
    }
    auto in_order = small;
    std::ranges::sort(in_order, {}, [](auto const& member) { return member.block->position; });
    std::vector<ReadGroup> groups;
    for (auto& member : in_order) {
        if (groups.empty() || !groups.back().takes(*member.block)) {
            groups.emplace_back();
        }
        groups.back().members.push_back(std::move(member));
    }
    std::vector<detail::IoPool::Job> jobs;
    for (auto& group : groups) {
        jobs.emplace_back([&file = parts_->file, group = std::move(group)](detail::IoBlock& memory) {
            read_group(file, group, memory);
        });
    }
    if (!jobs.empty()) {
        parts_->submit(detail::IoPool::Queue::reads, std::move(jobs));
    }
    // A handle waits for what it stands for: there is none of a read that was not submitted.
    std::vector<PendingRead> reads;
    reads.reserve(wanted.size());
    auto next_small = small.begin();
    auto next_large = large.begin();
    for (auto const& [extent, destination] : wanted) {
        if (is_small(*extent)) {
            reads.push_back(PendingRead{shared_from_this(), std::move((next_small++)->operation)});
        } else {
            reads.push_back(std::move(*next_large++));
        }
    }
    return reads;
}

void DiskSpace::read(DiskExtent const& extent, std::size_t offset, std::span<std::byte> destination) {
    start_read(extent, offset, destination).get();
}

std::int64_t DiskSpace::used() const {
    return parts_->allocator.used();
}
std::int64_t DiskSpace::peak() const {
    return parts_->allocator.peak();
}
std::int64_t DiskSpace::kept_free_for_testing() const {
    return parts_->allocator.kept();
}
std::int64_t DiskSpace::limit() const noexcept {
    return parts_->allocator.limit();
}
std::filesystem::path const& DiskSpace::directory() const noexcept {
    return parts_->file.directory();
}
std::string DiskSpace::describe() const {
    return parts_->file.describe();
}

}  // namespace rapidsmpf
