#include "memory/disk/io_pool.hpp"

#include <array>
#include <deque>
#include <new>
#include <system_error>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::detail {

void IoBlock::Free::operator()(std::byte* pointer) const noexcept {
    ::operator delete(pointer, std::align_val_t{alignment});
}

std::byte* IoBlock::data() {
    if (!memory_) {
        memory_.reset(static_cast<std::byte*>(::operator new(size_, std::align_val_t{alignment})));
    }
    return memory_.get();
}

struct IoPool::State {
    std::size_t block_size{0};
    Mutex mutex;
    ConditionVariable changed;
    std::array<std::deque<Job>, 2> queues RAPIDSMPF_GUARDED_BY(mutex);
    std::size_t turn RAPIDSMPF_GUARDED_BY(mutex){0};
    bool stopping RAPIDSMPF_GUARDED_BY(mutex){false};

    // Waits; empty when all is done and the pool ends.
    [[nodiscard]] Job next() {
        UniqueLock lock{mutex};
        changed.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex) {
            return stopping || !queues[0].empty() || !queues[1].empty();
        });
        auto& preferred = queues[turn % 2];
        auto& queue = preferred.empty() ? queues[(turn + 1) % 2] : preferred;
        ++turn;
        if (queue.empty()) {
            return {};
        }
        auto job = std::move(queue.front());
        queue.pop_front();
        return job;
    }
};

IoPool::IoPool(std::size_t threads, std::size_t block_size)
    : thread_count_{threads}, state_{std::make_shared<State>()} {
    state_->block_size = block_size;
}

IoPool::~IoPool() {
    if (!home_.is_here()) {
        // A fork, which has none of the threads.
        static_cast<void>(std::make_unique<std::vector<std::thread>>(std::move(threads_)).release());
        return;
    }
    {
        MutexLock lock{state_->mutex};
        state_->stopping = true;
    }
    state_->changed.notify_all();
    for (auto& thread : threads_) {
        // A callback may have held the last reference to our owner: then we are on a thread of our own.
        if (thread.get_id() == std::this_thread::get_id()) {
            thread.detach();
        } else {
            thread.join();
        }
    }
}

void IoPool::work(std::shared_ptr<State> const& state) {
    IoBlock block{state->block_size};
    while (auto const job = state->next()) {
        job(block);
    }
}

void IoPool::start_threads_locked() {
    while (threads_.size() < thread_count_) {
        try {
            threads_.emplace_back([state = state_] { work(state); });
        } catch (std::system_error const&) {
            if (threads_.empty()) {
                throw;
            }
            return;  // fewer will do
        }
    }
}

void IoPool::submit(Queue queue, std::vector<Job> jobs) {
    auto const count = jobs.size();
    {
        MutexLock lock{state_->mutex};
        start_threads_locked();
        auto& waiting = state_->queues[static_cast<std::size_t>(queue)];
        // All or none: the caller that waits for these jobs counts on each of them.
        auto const before = waiting.size();
        try {
            for (auto& job : jobs) {
                waiting.push_back(std::move(job));
            }
        } catch (...) {
            waiting.resize(before);
            throw;
        }
    }
    if (count == 1) {
        state_->changed.notify_one();
    } else {
        state_->changed.notify_all();
    }
}

}  // namespace rapidsmpf::detail
