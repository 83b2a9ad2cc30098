#include <rapidsmpf/streaming/collective_output.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/collectives.hpp>
#include <rapidsmpf/streaming/detail/packed_batches.hpp>

namespace rapidsmpf::streaming {

ShuffleOutput::ShuffleOutput(
    std::shared_ptr<coll::Shuffler> shuffler, std::shared_ptr<Schema const> schema,
    std::shared_ptr<BufferResource> resource, PartitionOrder order, BatchSizes const& sizes)
    : shuffler_{std::move(shuffler)},
      order_{order},
      batches_{std::make_unique<PackedBatches>(std::move(schema), std::move(resource), sizes)} {
    RAPIDSMPF_EXPECTS(shuffler_ != nullptr, "a shuffle's output needs its shuffler", std::invalid_argument);
    partitions_ = shuffler_->local_partitions();
}

ShuffleOutput::~ShuffleOutput() = default;
ShuffleOutput::ShuffleOutput(ShuffleOutput&&) noexcept = default;
ShuffleOutput& ShuffleOutput::operator=(ShuffleOutput&&) noexcept = default;

std::optional<Table> ShuffleOutput::next(coll::Timeout timeout) {
    for (;;) {
        if (auto batch = batches_->next()) {
            return batch;
        }
        if (taken_ == partitions_.size()) {
            shuffler_.reset();
            return std::nullopt;
        }
        if (order_ == PartitionOrder::ascending) {
            shuffler_->wait_on(partitions_[taken_], timeout);
            partition_ = partitions_[taken_];
        } else {
            partition_ = shuffler_->wait_any(timeout);
        }
        ++taken_;
        batches_->add(shuffler_->extract(partition_));
    }
}

namespace {
// Concatenating rows computes, and may have to wait for the disk.
Task<std::optional<Table>> next_batch(std::shared_ptr<Executor> executor, PackedBatches& batches) {
    auto next = [&batches] { return batches.next(); };
    co_return co_await executor->run_blocking(std::move(next));
}
}  // namespace

Task<std::optional<Table>> ShuffleOutput::async_next(
    std::shared_ptr<Executor> executor, CancellationToken cancellation) {
    for (;;) {
        if (!batches_->empty()) {
            if (auto batch = co_await next_batch(executor, *batches_)) {
                co_return batch;
            }
        }
        if (taken_ == partitions_.size()) {
            shuffler_.reset();
            co_return std::nullopt;
        }
        if (order_ == PartitionOrder::ascending) {
            co_await async_wait_on(executor, shuffler_, partitions_[taken_], cancellation);
            partition_ = partitions_[taken_];
        } else {
            partition_ = co_await async_wait_any(executor, shuffler_, cancellation);
        }
        ++taken_;
        batches_->add(shuffler_->extract(partition_));
    }
}

PartitionOutput::PartitionOutput(
    std::shared_ptr<coll::Shuffler> shuffler, coll::PartitionId partition,
    std::shared_ptr<Schema const> schema, std::shared_ptr<BufferResource> resource, BatchSizes const& sizes)
    : shuffler_{std::move(shuffler)},
      partition_{partition},
      batches_{std::make_unique<PackedBatches>(std::move(schema), std::move(resource), sizes)} {
    RAPIDSMPF_EXPECTS(shuffler_ != nullptr, "a shuffle's output needs its shuffler", std::invalid_argument);
    auto const& local = shuffler_->local_partitions();
    RAPIDSMPF_EXPECTS(
        std::binary_search(local.begin(), local.end(), partition),
        "partition " + std::to_string(partition) + " belongs to another rank", std::invalid_argument);
}

PartitionOutput::~PartitionOutput() = default;
PartitionOutput::PartitionOutput(PartitionOutput&&) noexcept = default;
PartitionOutput& PartitionOutput::operator=(PartitionOutput&&) noexcept = default;

std::optional<Table> PartitionOutput::next(coll::Timeout timeout) {
    if (shuffler_) {
        shuffler_->wait_on(partition_, timeout);
        batches_->add(shuffler_->extract(partition_));
        shuffler_.reset();
    }
    return batches_->next();
}

AllGatherOutput::AllGatherOutput(
    std::shared_ptr<coll::AllGather> allgather, std::shared_ptr<Schema const> schema,
    std::shared_ptr<BufferResource> resource, BatchSizes const& sizes)
    : allgather_{std::move(allgather)},
      batches_{std::make_unique<PackedBatches>(std::move(schema), std::move(resource), sizes)} {
    RAPIDSMPF_EXPECTS(
        allgather_ != nullptr, "an all-gather's output needs its all-gather", std::invalid_argument);
}

AllGatherOutput::~AllGatherOutput() = default;
AllGatherOutput::AllGatherOutput(AllGatherOutput&&) noexcept = default;
AllGatherOutput& AllGatherOutput::operator=(AllGatherOutput&&) noexcept = default;

std::optional<Table> AllGatherOutput::next(coll::Timeout timeout) {
    if (allgather_) {
        batches_->add(allgather_->wait_and_extract(coll::Ordered::yes, timeout));
        allgather_.reset();
    }
    return batches_->next();
}

Task<std::optional<Table>> AllGatherOutput::async_next(
    std::shared_ptr<Executor> executor, CancellationToken cancellation) {
    if (allgather_) {
        auto chunks = co_await async_wait_and_extract(
            executor, allgather_, coll::Ordered::yes, std::move(cancellation));
        batches_->add(std::move(chunks));
        allgather_.reset();
    }
    co_return co_await next_batch(std::move(executor), *batches_);
}

}  // namespace rapidsmpf::streaming
