#include <rapidsmpf/streaming/packed_batches.hpp>

#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/partition.hpp>

namespace rapidsmpf::streaming {

PackedBatches::PackedBatches(
    std::shared_ptr<Schema const> schema, std::shared_ptr<BufferResource> resource, BatchSizes const& sizes)
    : schema_{std::move(schema)}, resource_{std::move(resource)}, sizes_{sizes} {
    RAPIDSMPF_EXPECTS(
        schema_ != nullptr && resource_ != nullptr, "batches need a schema and a buffer resource",
        std::invalid_argument);
    sizes_.validate();
}

void PackedBatches::add(std::vector<PackedData> chunks) {
    chunks_.insert(
        chunks_.end(), std::make_move_iterator(chunks.begin()), std::make_move_iterator(chunks.end()));
}

Table PackedBatches::put_together(std::vector<PackedData> group) {
    std::string text;
    try {
        auto table = unpack_and_concat(std::move(group), *resource_);
        text = difference(*schema_, *table.schema());
        if (text.empty()) {
            return table;
        }
    } catch (FormatError const&) {
        throw;
    } catch (std::invalid_argument const& error) {
        text = error.what();
    }
    throw std::invalid_argument{
        "ranks sent rows of different schemas: " + text
        + ". All ranks must run the same query over data of the same types"};
}

std::optional<Table> PackedBatches::next() {
    while (slices_.empty() && !chunks_.empty()) {
        std::vector<PackedData> group;
        std::int64_t rows = 0;
        std::size_t bytes = 0;
        while (!chunks_.empty()) {
            auto& chunk = chunks_.front();
            auto const info = packed_info(chunk.metadata);
            bool const large = info.num_rows >= sizes_.enough_rows || info.data_size >= sizes_.enough_bytes;
            if (!group.empty() && large) {
                break;  // worth handing out as it is, without a copy
            }
            rows += info.num_rows;
            bytes += info.data_size;
            if (!chunk.data->is_host_accessible()) {
                auto reservation =
                    resource_->reserve(MemoryType::HOST, chunk.data->size(), AllowOverbooking::yes).first;
                chunk.data = resource_->move(std::move(chunk.data), reservation);
            }
            chunk.data->synchronize();
            group.push_back(std::move(chunk));
            chunks_.pop_front();
            if (rows >= sizes_.enough_rows || bytes >= sizes_.enough_bytes) {
                break;
            }
        }
        auto const table = put_together(std::move(group));
        for (auto& piece : cut(table, sizes_)) {
            slices_.push_back(std::move(piece));
        }
    }
    if (slices_.empty()) {
        return std::nullopt;
    }
    std::optional<Table> batch{std::move(slices_.front())};
    slices_.pop_front();
    return batch;
}

}  // namespace rapidsmpf::streaming
