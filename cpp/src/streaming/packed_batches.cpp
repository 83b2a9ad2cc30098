#include <rapidsmpf/streaming/detail/packed_batches.hpp>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/partition.hpp>

namespace rapidsmpf::streaming {

namespace {
// How much is read back before its turn: enough to keep a disk busy while a batch is worked on. It cannot be spilled again before
// it is taken, so it is limited to a sixteenth of the memory limit, too.
constexpr std::size_t read_ahead_bytes = std::size_t{32} << 20U;
constexpr std::int64_t read_ahead_part = 16;
}  // namespace

PackedBatches::PackedBatches(
    std::shared_ptr<Schema const> schema, std::shared_ptr<BufferResource> resource, BatchSizes const& sizes)
    : schema_{std::move(schema)}, resource_{std::move(resource)}, sizes_{sizes} {
    RAPIDSMPF_EXPECTS(
        schema_ != nullptr && resource_ != nullptr, "batches need a schema and a buffer resource",
        std::invalid_argument);
    sizes_.validate();
}

void PackedBatches::add(std::vector<PackedData> chunks) {
    for (auto& chunk : chunks) {
        chunks_.emplace_back(std::move(chunk), added_++);
    }
}

std::size_t PackedBatches::next_group() const {
    std::int64_t rows = 0;
    std::size_t bytes = 0;
    std::size_t count = 0;
    for (auto const& chunk : chunks_) {
        auto const info = packed_info(chunk.metadata);
        bool const large = info.num_rows >= sizes_.enough_rows || info.unpacked_size >= sizes_.enough_bytes;
        if (count > 0 && large) {
            break;  // worth handing out as it is, without a copy
        }
        ++count;
        rows += info.num_rows;
        bytes += info.unpacked_size;
        if (rows >= sizes_.enough_rows || bytes >= sizes_.enough_bytes) {
            break;
        }
    }
    return count;
}

void PackedBatches::read_ahead(std::size_t taken) {
    auto const limit = resource_->memory_limit(resource_->type_to_read_into()) / read_ahead_part;
    auto const most = std::min(read_ahead_bytes, static_cast<std::size_t>(std::max<std::int64_t>(limit, 0)));
    std::vector<SpillableBuffer*> wanted;
    std::size_t bytes = 0;
    for (auto& chunk : chunks_) {
        if (bytes >= most && wanted.size() >= taken) {
            break;
        }
        chunk.data.keep_to_take();
        wanted.push_back(&chunk.data);
        bytes += chunk.data.size();
    }
    // All at once: a disk that is asked for one small chunk after the other does little else than wait to be asked. Those that
    // are taken now are read whether there is memory for them or not.
    auto const now = std::span{wanted}.first(taken);
    SpillableBuffer::fetch_all(now, AllowOverbooking::yes);
    SpillableBuffer::fetch_all(std::span{wanted}.subspan(taken), AllowOverbooking::no);
}

PackedData PackedBatches::take_first() {
    auto& first = chunks_.front();
    // take() waits until it is back.
    PackedData packed{std::move(first.metadata), resource_->move_to_host_access(first.data.take())};
    chunks_.pop_front();
    packed.data->synchronize();
    return packed;
}

Table PackedBatches::concatenate(std::vector<PackedData> group) {
    std::string text;
    try {
        // Handing rows out frees memory in the end: refusing it would stop the query.
        auto table =
            unpack_and_concat(std::move(group), *resource_, ValidateData::bounds, AllowOverbooking::yes);
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
        auto const count = next_group();
        read_ahead(count);
        std::vector<PackedData> group;
        group.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            group.push_back(take_first());
        }
        auto const table = concatenate(std::move(group));
        for (auto& piece : split_table(table, sizes_)) {
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
