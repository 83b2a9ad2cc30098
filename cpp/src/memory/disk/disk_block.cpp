#include "memory/disk/disk_block.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/core/detail/checksum.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {

namespace {

constexpr auto page = static_cast<std::size_t>(disk_page);

constexpr std::size_t down_to_page(std::size_t value) {
    return value / page * page;
}
constexpr std::size_t up_to_page(std::size_t value) {
    return down_to_page(value + page - 1);
}

bool is_aligned(void const* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % page == 0;
}

// iovec has no const; a write does not change what it points to.
iovec piece_of_memory(std::byte const* data, std::size_t size) {
    return {const_cast<std::byte*>(data), size};
}

void set_checksums(StoredBlock& block, std::span<std::byte const> bytes, std::size_t begin) {
    for (std::size_t at = 0; at < bytes.size(); at += piece_size) {
        block.checksums[(begin + at) / piece_size] =
            crc32c(bytes.subspan(at, std::min(piece_size, bytes.size() - at)));
    }
}

// `bytes` are those of the block from `begin`, the beginning of a piece, on.
void verify(
    DiskFile const& file, StoredBlock const& block, std::span<std::byte const> bytes, std::size_t begin) {
    for (std::size_t at = 0; at < bytes.size(); at += piece_size) {
        auto const piece = bytes.subspan(at, std::min(piece_size, bytes.size() - at));
        auto const expected = block.checksums[(begin + at) / piece_size];
        if (auto const found = crc32c(piece); found != expected) {
            throw SpillError{
                "spilled data read back from " + file.describe()
                + " is not what was written: " + std::to_string(piece.size()) + " bytes at "
                + std::to_string(begin + at) + " of an extent of " + std::to_string(block.size)
                + " bytes at position " + std::to_string(block.position) + " have checksum "
                + std::to_string(found) + " in place of " + std::to_string(expected)
                + ". That disk, or the way to it, is faulty: set spill_directory to another one."};
        }
    }
}

// Writes what begins at a page: whole pages from where they are, the rest filled up to one in `memory`.
void write_pages(DiskFile& file, std::int64_t position, std::span<std::byte const> bytes, IoBlock& memory) {
    auto const whole = down_to_page(bytes.size());
    std::array<iovec, 2> pieces{};
    std::size_t count = 0;
    if (whole > 0) {
        pieces[count++] = piece_of_memory(bytes.data(), whole);
    }
    if (auto const rest = bytes.subspan(whole); !rest.empty()) {
        auto* const last = memory.data();
        std::memcpy(last, rest.data(), rest.size());
        std::memset(last + rest.size(), 0, page - rest.size());
        pieces[count++] = {last, page};
    }
    file.write(position, std::span{pieces}.first(count));
}

// Reads as write_pages writes, and returns after the bytes are in place.
void read_pages(DiskFile& file, std::int64_t position, std::span<std::byte> bytes, IoBlock& memory) {
    auto const whole = down_to_page(bytes.size());
    auto const rest = bytes.subspan(whole);
    std::array<iovec, 2> pieces{};
    std::size_t count = 0;
    if (whole > 0) {
        pieces[count++] = {bytes.data(), whole};
    }
    if (!rest.empty()) {
        pieces[count++] = {memory.data(), page};
    }
    file.read(position, std::span{pieces}.first(count));
    if (!rest.empty()) {
        std::memcpy(rest.data(), memory.data(), rest.size());
    }
}

}  // namespace

void write_chunk(
    DiskFile& file, StoredBlock& block, std::span<std::byte const> bytes, std::size_t begin,
    IoBlock& memory) {
    auto chunk = bytes.subspan(begin, std::min(chunk_size, bytes.size() - begin));
    if (is_aligned(chunk.data())) {
        set_checksums(block, chunk, begin);
        write_pages(file, block.position + static_cast<std::int64_t>(begin), chunk, memory);
        return;
    }
    for (; !chunk.empty(); begin += staged_size) {
        auto const part = chunk.first(std::min(staged_size, chunk.size()));
        chunk = chunk.subspan(part.size());
        auto* const staged = memory.data();
        std::memcpy(staged, part.data(), part.size());
        set_checksums(block, {staged, part.size()}, begin);
        auto const filled = up_to_page(part.size());
        std::memset(staged + part.size(), 0, filled - part.size());
        iovec const piece{staged, filled};
        file.write(block.position + static_cast<std::int64_t>(begin), {&piece, 1});
    }
}

void write_together(
    DiskFile& file, std::span<StoredBlock* const> blocks, std::span<std::span<std::byte const> const> bytes,
    IoBlock& memory) {
    auto const range = blocks.front()->region->range();
    auto* const staged = memory.data();
    std::size_t end = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        auto& block = *blocks[i];
        auto const begin = static_cast<std::size_t>(block.position - range.offset);
        std::memcpy(staged + begin, bytes[i].data(), block.size);
        set_checksums(block, {staged + begin, block.size}, 0);
        end = begin + block.size;
    }
    auto const filled = up_to_page(end);
    std::memset(staged + end, 0, filled - end);
    iovec const piece{staged, filled};
    file.write(range.offset, {&piece, 1});
}

void read_chunk(
    DiskFile& file, StoredBlock const& block, std::size_t begin, std::size_t offset,
    std::span<std::byte> destination, IoBlock& memory) {
    auto const wanted_end = offset + destination.size();
    // Whole pieces, because those have the checksums.
    auto const last_piece_end = round_up(wanted_end, piece_size);
    auto const end_of_chunk = std::min({begin + chunk_size, block.size, last_piece_end});
    auto const at_page = block.position % disk_page == 0;
    auto at = std::max(begin, offset / piece_size * piece_size);
    while (at < end_of_chunk) {
        // Whole pieces that are wanted go straight to where they shall be.
        auto const whole_end =
            wanted_end >= end_of_chunk ? end_of_chunk : wanted_end / piece_size * piece_size;
        if (at >= offset && at < whole_end && at_page && is_aligned(destination.data() + (at - offset))) {
            auto const target = destination.subspan(at - offset, whole_end - at);
            read_pages(file, block.position + static_cast<std::int64_t>(at), target, memory);
            verify(file, block, target, at);
            at = whole_end;
            continue;
        }
        // After a first piece that is wanted in part, the others may go straight.
        auto const end = std::min(at + (at < offset ? piece_size : staged_size), end_of_chunk);
        auto const first = static_cast<std::size_t>(block.position) + at;
        auto const skipped = first % page;
        auto* const staged = memory.data();
        iovec const piece{staged, up_to_page(skipped + (end - at))};
        file.read(static_cast<std::int64_t>(first - skipped), {&piece, 1});
        std::span<std::byte const> const read{staged + skipped, end - at};
        verify(file, block, read, at);
        auto const from = std::max(at, offset);
        auto const to = std::min(end, wanted_end);
        std::memcpy(destination.data() + (from - offset), read.data() + (from - at), to - from);
        at = end;
    }
}

ReadTogether::ReadTogether(DiskFile& file, StoredBlock const& first, StoredBlock const& last, IoBlock& memory)
    : file_{file}, memory_{memory} {
    if (&first == &last) {
        return;
    }
    begin_ = first.position / disk_page * disk_page;
    auto const length = static_cast<std::size_t>(last.position - begin_) + last.size;
    try {
        iovec const piece{memory_.data(), up_to_page(length)};
        file_.read(begin_, {&piece, 1});
        has_all_ = true;
    } catch (SpillError const&) {  // NOLINT(bugprone-empty-catch)
        // give() says which of them cannot be read.
    }
}

void ReadTogether::give(StoredBlock const& block, std::span<std::byte> destination) {
    if (!has_all_) {
        read_chunk(file_, block, 0, 0, destination, memory_);
        return;
    }
    auto* const bytes = memory_.data() + (block.position - begin_);
    verify(file_, block, {bytes, block.size}, 0);
    std::memcpy(destination.data(), bytes, block.size);
}

}  // namespace rapidsmpf::detail
