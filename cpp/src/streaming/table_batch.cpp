#include <rapidsmpf/streaming/table_batch.hpp>

#include <algorithm>
#include <stdexcept>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/partition.hpp>

namespace rapidsmpf::streaming {

namespace {
std::vector<Table> one(Table table) {
    std::vector<Table> tables;
    tables.push_back(std::move(table));
    return tables;
}
}  // namespace

TableBatch::TableBatch(std::vector<Table> tables) : tables_{std::move(tables)}, num_rows_{0}, byte_size_{0} {
    RAPIDSMPF_EXPECTS(!tables_.empty(), "a batch needs at least one table", std::invalid_argument);
    for (auto const& table : tables_) {
        num_rows_ += table.num_rows();
        byte_size_ += table.byte_size();
    }
}

TableBatch::TableBatch(Table table) : TableBatch{one(std::move(table))} {}

Table TableBatch::combine(BufferResource& resource) const {
    // Who works on a batch frees memory in the end: refusing it would stop the query.
    return tables_.size() == 1 ? tables_.front() : concat(tables_, resource, AllowOverbooking::yes);
}

PackedData PayloadTraits<Table>::packed_copy(Table const& payload, BufferResource& resource) {
    auto packed = pack(payload, resource);
    // What unpack() has to know besides.
    packed.metadata.push_back(static_cast<std::uint8_t>(payload.place()));
    return packed;
}

Table PayloadTraits<Table>::unpack(PackedData&& packed) {
    auto const place = static_cast<TablePlace>(packed.metadata.back());
    packed.metadata.pop_back();
    if (place == TablePlace::gpu && packed.data->mem_type() != MemoryType::DEVICE) {
        auto const resource = packed.data->resource();
        auto reservation =
            resource->reserve(MemoryType::DEVICE, packed.data->size(), AllowOverbooking::yes).first;
        packed.data = resource->move(std::move(packed.data), reservation);
    }
    // The bytes never left this process.
    return rapidsmpf::unpack(std::move(packed), ValidateData::none);
}

void BatchSizes::validate() const {
    RAPIDSMPF_EXPECTS(
        enough_rows > 0 && enough_bytes > 0 && most_rows > 0 && most_bytes > 0,
        "the sizes of batches must be positive", std::invalid_argument);
}

std::vector<Table> split_table(Table const& table, BatchSizes const& sizes) {
    auto const rows = table.num_rows();
    std::vector<Table> pieces;
    if (rows == 0) {
        return pieces;
    }
    auto const by_rows = (rows - 1) / sizes.most_rows + 1;
    auto const bytes = table.byte_size();
    auto const by_bytes = static_cast<std::int64_t>(bytes == 0 ? 1 : (bytes - 1) / sizes.most_bytes + 1);
    auto const count = std::min(rows, std::max(by_rows, by_bytes));
    if (count == 1) {
        pieces.push_back(table);
        return pieces;
    }
    auto const length = (rows - 1) / count + 1;
    for (std::int64_t begin = 0; begin < rows; begin += length) {
        pieces.push_back(table.slice(begin, std::min(length, rows - begin)));
    }
    return pieces;
}

}  // namespace rapidsmpf::streaming
