#include <rapidsmpf/streaming/detail/row_store.hpp>

#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/table_stream.hpp>

namespace rapidsmpf::streaming {

RowStore::RowStore(
    std::shared_ptr<Schema const> schema, std::shared_ptr<BufferResource> resource,
    std::vector<PackedData> chunks)
    : schema_{std::move(schema)}, resource_{std::move(resource)} {
    RAPIDSMPF_EXPECTS(
        schema_ != nullptr && resource_ != nullptr, "a store of rows needs a schema and a buffer resource",
        std::invalid_argument);
    chunks_.reserve(chunks.size());
    for (auto& chunk : chunks) {
        auto const info = packed_info(chunk.metadata);
        rows_ += info.num_rows;
        bytes_ += info.unpacked_size;
        auto const next_use = static_cast<SpillableBuffer::NextUse>(chunks_.size());
        chunks_.push_back(std::make_unique<Chunk>(std::move(chunk), next_use));
    }
}

void RowStore::fetch(std::size_t begin, std::size_t end, AllowOverbooking allow) {
    std::vector<SpillableBuffer*> wanted;
    for (auto i = begin; i < end; ++i) {
        wanted.push_back(&chunks_.at(i)->data);
    }
    SpillableBuffer::fetch_all(wanted, allow);
}

PackedData RowStore::copy(std::size_t chunk) {
    auto& held = *chunks_.at(chunk);
    auto const pinned = held.data.pin();
    pinned->synchronize();
    // Handing rows out frees memory in the end: refusing it would stop the query.
    auto reservation = resource_->reserve(pinned->mem_type(), pinned->size(), AllowOverbooking::yes).first;
    auto bytes = resource_->copy(*pinned, 0, pinned->size(), reservation);
    return PackedData{held.metadata, std::move(bytes)};
}

std::vector<PackedData> RowStore::release() {
    std::vector<PackedData> chunks;
    chunks.reserve(chunks_.size());
    for (auto& chunk : chunks_) {
        chunks.emplace_back(std::move(chunk->metadata), chunk->data.take());
    }
    chunks_.clear();
    rows_ = 0;
    bytes_ = 0;
    return chunks;
}

RowStoreOutput::RowStoreOutput(std::shared_ptr<RowStore> store, StoreUse use, BatchSizes const& sizes)
    : store_{std::move(store)},
      use_{use},
      sizes_{sizes},
      batches_{store_->schema(), store_->resource(), sizes} {}

std::size_t RowStoreOutput::end_of_batch(std::size_t begin) const {
    std::size_t bytes = 0;
    auto end = begin;
    while (end < store_->num_chunks() && bytes < sizes_.enough_bytes) {
        bytes += store_->chunk_bytes(end++);
    }
    return end;
}

std::optional<Table> RowStoreOutput::next() {
    for (;;) {
        if (auto batch = batches_.next()) {
            return batch;
        }
        if (!store_ || taken_ == store_->num_chunks()) {
            store_.reset();
            return std::nullopt;
        }
        if (use_ == StoreUse::take) {
            batches_.add(store_->release());
            store_.reset();
            continue;
        }
        auto const end = end_of_batch(taken_);
        store_->fetch(taken_, end, AllowOverbooking::yes);
        store_->fetch(end, end_of_batch(end), AllowOverbooking::no);
        std::vector<PackedData> chunks;
        while (taken_ < end) {
            chunks.push_back(store_->copy(taken_++));
        }
        batches_.add(std::move(chunks));
    }
}

ArrowStreamOwner row_store_stream(std::shared_ptr<RowStore> store, StoreUse use, BatchSizes const& sizes) {
    ArrowStreamOwner stream;
    auto schema = store->schema();
    auto output = std::make_shared<RowStoreOutput>(std::move(store), use, sizes);
    export_table_stream(
        std::move(schema), [output = std::move(output)] { return output->next(); }, stream.out());
    return stream;
}

}  // namespace rapidsmpf::streaming
