#include <rapidsmpf/table/packed.hpp>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/partition.hpp>

#include "table/packed/packed_format.hpp"

namespace rapidsmpf {

namespace {

// A chunk may have been received into the middle of something: readers want columns aligned.
std::shared_ptr<PackedData const> aligned(std::shared_ptr<PackedData const> const& packed) {
    auto const& data = *packed->data;
    if (data.size() == 0 || reinterpret_cast<std::uintptr_t>(data.data()) % detail::buffer_alignment == 0) {
        return packed;
    }
    auto& br = *data.resource();
    auto reservation = br.reserve(data.mem_type(), data.size(), AllowOverbooking::yes).first;
    return std::make_shared<PackedData const>(packed->metadata, br.copy(data, 0, data.size(), reservation));
}

}  // namespace

namespace detail {

bool is_on_gpu(Buffer const& buffer) {
    return buffer.mem_type() == MemoryType::DEVICE && !buffer.is_host_accessible();
}

Table unpack_as(
    std::shared_ptr<Schema const> schema, std::shared_ptr<PackedData const> packed, PackedParts const& parts,
    ValidateData validate) {
    RAPIDSMPF_EXPECTS(
        parts.info.data_size == packed->data->size(),
        "malformed packed table: " + std::to_string(packed->data->size()) + " bytes of data where "
            + std::to_string(parts.info.data_size) + " were packed",
        FormatError);
    auto const owner = aligned(packed);  // `parts` refers to `packed`
    if (is_on_gpu(*owner->data)) {
        // What the buffers contain only the GPU could check.
        auto columns = read_packed_columns(*schema, parts, {owner->data->data(), owner->data->size()});
        return Table{std::move(schema), std::move(columns),   parts.info.num_rows, owner,
                     TablePlace::gpu,   owner->data->stream()};
    }
    auto columns = read_packed_columns(*schema, parts, owner->data->host_bytes());
    validate_columns(*schema, columns, validate);
    return Table{std::move(schema), std::move(columns), parts.info.num_rows, owner};
}

}  // namespace detail

PackedData pack(Table const& table, BufferResource& br) {
    return std::move(split_and_pack(table, {}, br).front());
}

PackedInfo packed_info(std::span<std::uint8_t const> metadata) {
    return detail::split_packed_metadata(metadata).info;
}

Table unpack(PackedData&& packed, ValidateData validate) {
    return unpack(std::make_shared<PackedData const>(std::move(packed)), validate);
}

Table unpack(std::shared_ptr<PackedData const> packed, ValidateData validate) {
    auto const parts = detail::split_packed_metadata(packed->metadata);
    if (parts.info.form == RowForm::narrow) {
        auto const& data = *packed->data;
        RAPIDSMPF_EXPECTS(
            data.mem_type() != MemoryType::DISK, "rows on disk must be read back before they are unpacked",
            std::logic_error);
        auto& br = *data.resource();
        auto reservation = br.reserve(data.mem_type(), data.size(), AllowOverbooking::yes).first;
        std::vector<PackedData> copy;
        copy.emplace_back(packed->metadata, br.copy(data, 0, data.size(), reservation));
        return unpack_and_concat(std::move(copy), br, validate, AllowOverbooking::yes);
    }
    auto schema = Schema::deserialize(parts.schema);
    return detail::unpack_as(std::move(schema), std::move(packed), parts, validate);
}

}  // namespace rapidsmpf
