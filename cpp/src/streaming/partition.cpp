#include <rapidsmpf/streaming/partition.hpp>

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/streaming/collectives.hpp>
#include <rapidsmpf/streaming/when_all.hpp>
#include <rapidsmpf/table/packed.hpp>

namespace rapidsmpf::streaming {

namespace {

// Handles every message of `in` by `handle`, on this thread of the executor.
Task<void> work(
    std::shared_ptr<Executor> executor, ChannelPtr in, std::function<void(Message&&)> const* handle) {
    std::exception_ptr error;
    try {
        co_await executor->schedule();
        while (auto message = co_await in->receive()) {
            (*handle)(std::move(*message));
            co_await executor->schedule();  // let others run: a full channel never suspends its receiver
        }
    } catch (...) {
        error = std::current_exception();
    }
    if (error) {
        in->cancel(error);  // for the other workers
        std::rethrow_exception(std::move(error));
    }
}

// Handles the messages of `in` on all threads of the executor; calls `finish` after the last one, or `give_up`.
Task<void> work_on_all_threads(
    std::shared_ptr<Executor> executor, ChannelPtr in, std::function<void(Message&&)> handle,
    std::function<void()> finish, Actor::OnCancel give_up) {
    std::vector<Task<void>> workers;
    for (std::size_t i = 0; i < executor->num_threads(); ++i) {
        workers.push_back(work(executor, in, &handle));
    }
    std::exception_ptr error;
    try {
        co_await when_all(std::move(workers));
        finish();
    } catch (...) {
        error = std::current_exception();
    }
    if (error) {
        give_up(error);
        std::rethrow_exception(std::move(error));
    }
}

}  // namespace

ShuffleInserter::ShuffleInserter(
    std::shared_ptr<coll::Shuffler> shuffler, RowRouting const& routing, Schema const& schema,
    std::shared_ptr<BufferResource> resource)
    : shuffler_{std::move(shuffler)}, resource_{std::move(resource)} {
    RAPIDSMPF_EXPECTS(
        shuffler_ != nullptr && resource_ != nullptr, "inserting needs a shuffler and a buffer resource",
        std::invalid_argument);
    pack_ = routing.bind(schema, shuffler_->total_partitions(), shuffler_->by_owner(), resource_);
}

void ShuffleInserter::insert(std::uint64_t sequence, TableBatch const& batch) {
    auto packed = pack_(batch);
    std::size_t bytes = 0;
    for (auto const& [partition, chunk] : packed) {
        bytes += packed_info(chunk.metadata).unpacked_size;
    }
    inserted_.add(batch.num_rows(), bytes);

    UniqueLock lock{mutex_};
    if (sequence != next_ || inserting_) {
        std::vector<Waiting> waiting;
        for (auto& [partition, chunk] : packed) {
            waiting.emplace_back(partition, std::move(chunk), sequence - next_);
        }
        ready_.emplace(sequence, std::move(waiting));
        if (inserting_) {
            return;  // that thread will find it
        }
        packed.clear();
    }
    inserting_ = true;
    bool is_turn = sequence == next_;
    for (;;) {
        if (!is_turn) {
            auto const first = ready_.begin();
            if (first == ready_.end() || first->first != next_) {
                break;
            }
            auto waiting = std::move(first->second);
            ready_.erase(first);
            lock.unlock();
            for (auto& part : waiting) {
                packed.emplace_back(part.partition, PackedData{std::move(part.metadata), part.data->take()});
            }
        } else {
            lock.unlock();
        }
        if (!packed.empty()) {
            shuffler_->insert(std::exchange(packed, {}));
        }
        lock.lock();
        ++next_;
        is_turn = false;
    }
    inserting_ = false;
}

void ShuffleInserter::finish() {
    {
        MutexLock lock{mutex_};
        RAPIDSMPF_EXPECTS(
            ready_.empty(),
            "batch " + std::to_string(next_)
                + " of a shuffle's input is missing: sequence numbers must be 0, 1, ...",
            std::logic_error);
    }
    shuffler_->insert_finished();
}

void ShuffleInserter::give_up(std::string const& reason) {
    shuffler_->give_up(reason);
}

Actor shuffle_input(Context const& context, ChannelPtr in, std::shared_ptr<ShuffleInserter> inserter) {
    RAPIDSMPF_EXPECTS(inserter != nullptr, "shuffle_input needs an inserter", std::invalid_argument);
    auto handle = [inserter](Message&& message) {
        auto const sequence = message.sequence();
        inserter->insert(sequence, message.release<TableBatch>());
    };
    auto finish = [inserter] { inserter->finish(); };
    Actor::OnCancel give_up = [inserter](std::exception_ptr const& error) {
        inserter->give_up(reason_of(error));
    };
    auto task = work_on_all_threads(context.executor(), in, std::move(handle), std::move(finish), give_up);
    return Actor{"shuffle_input", std::move(task), {std::move(in)}, {}, std::move(give_up)};
}

Actor allgather_input(
    Context const& context, ChannelPtr in, std::shared_ptr<coll::AllGather> allgather,
    std::shared_ptr<Inserted> inserted) {
    RAPIDSMPF_EXPECTS(
        allgather != nullptr && inserted != nullptr, "allgather_input needs an all-gather and a counter",
        std::invalid_argument);
    auto handle = [allgather, inserted, resource = context.resource()](Message&& message) {
        auto const sequence = message.sequence();
        auto const table = message.release<TableBatch>().combine(*resource);
        auto packed = pack(table, *resource);
        inserted->add(table.num_rows(), packed.data->size());
        allgather->insert(sequence, std::move(packed));
    };
    auto finish = [allgather] { allgather->insert_finished(); };
    Actor::OnCancel give_up = [allgather](std::exception_ptr const& error) {
        allgather->give_up(reason_of(error));
    };
    auto task = work_on_all_threads(context.executor(), in, std::move(handle), std::move(finish), give_up);
    return Actor{"allgather_input", std::move(task), {std::move(in)}, {}, std::move(give_up)};
}

}  // namespace rapidsmpf::streaming
