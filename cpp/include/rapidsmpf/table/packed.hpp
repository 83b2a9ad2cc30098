// Packed tables: a table as PackedData, ready to be sent, spilled and read in place.
//
// `data` holds the columns' buffers one after the other, each at a multiple of 64 bytes, each starting with
// the table's first row (never an offset). `metadata` says where they are:
//
//   header   magic "RMPT", version (1, of narrow tables 2), total size of the metadata, CRC-32C of all of it but the CRC itself
//   table    number of rows, bytes of data, of narrow tables the bytes that a row grows by when it is widened, size of
//            the schema
//   schema   Schema::serialized()
//   nodes    for each column, depth first, children before the dictionary: length, null count, and for each
//            buffer that the layout has an (offset, length) pair; view columns add the lengths of the variadic
//            buffers, which lie one after the other in one piece
//
// All integers are little endian. Only rows that are there are packed: a slice of a column packs its slice, and
// string views that refer to a small part of their buffers are rewritten to refer to just those bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf {

// How much of the data buffer unpack() looks at. The metadata is always checked completely.
enum class ValidateData : std::uint8_t {
    none,    // trust it: the bytes never left this process
    bounds,  // offsets, views and dictionary codes lead to memory that is there; reading is safe
    full,    // bounds, and text is UTF-8, null counts are right, views carry their prefixes
};

// What a packed table's metadata says without looking further.
struct PackedInfo {
    std::int64_t num_rows;
    std::size_t data_size;
    RowForm form;
    // The approximate size of the rows once they are unpacked; equal to `data_size` unless they are narrow.
    std::size_t unpacked_size;
};

// The table as one piece. Throws ReservationError when memory cannot be had.
[[nodiscard]] PackedData pack(Table const& table, BufferResource& br);

// Whether these bytes begin like a packed table's metadata.
[[nodiscard]] bool is_packed_table(std::span<std::uint8_t const> metadata) noexcept;
// How many rows the metadata of a packed table says that there are, without a check of anything: for statistics. Zero for
// other metadata.
[[nodiscard]] std::uint64_t packed_rows(std::span<std::uint8_t const> metadata) noexcept;
// Throws FormatError unless the metadata is intact (magic, version, size, checksum).
[[nodiscard]] PackedInfo packed_info(std::span<std::uint8_t const> metadata);

// Views of the packed bytes, where they are; the Table keeps them alive. Narrow rows are copied, with their own types. On a
// GPU only the metadata is checked. Throws FormatError when metadata or (as far as asked) data are malformed,
// std::logic_error when the buffer is on DISK.
[[nodiscard]] Table unpack(PackedData&& packed, ValidateData validate = ValidateData::bounds);
[[nodiscard]] Table unpack(
    std::shared_ptr<PackedData const> packed, ValidateData validate = ValidateData::bounds);

}  // namespace rapidsmpf
