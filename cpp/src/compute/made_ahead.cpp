#include "compute/made_ahead.hpp"

#include <utility>
#include <variant>  // libcudf's headers need it first

namespace rapidsmpf::compute {

bool MadeAhead::make_one(Work& work) noexcept {
    {
        MutexLock const lock{mutex_};
        if (is_closed_ || error_ || made_.size() + being_made_ >= most_chunks_) {
            return false;
        }
        ++being_made_;
    }
    std::optional<Chunk> chunk;
    std::exception_ptr error;
    try {
        chunk = source_->next_ahead(work);
        handover_.finish(work);
    } catch (...) {
        error = std::current_exception();
        chunk.reset();
    }
    MutexLock const lock{mutex_};
    --being_made_;
    auto const goes_on = chunk.has_value();
    if (chunk) {
        made_.push_back(std::move(*chunk));
    }
    if (error && !error_) {
        error_ = error;
    }
    changed_.notify_all();
    return goes_on;
}

std::optional<Chunk> MadeAhead::take_made() {
    if (error_) {
        std::rethrow_exception(error_);
    }
    if (made_.empty()) {
        return std::nullopt;
    }
    auto chunk = std::move(made_.front());
    made_.pop_front();
    return chunk;
}

std::optional<Chunk> MadeAhead::next(Work& work) {
    std::optional<Chunk> chunk;
    {
        MutexLock const lock{mutex_};
        chunk = take_made();
    }
    if (!chunk) {
        if (auto next = source_->next(work)) {
            return next;
        }
        // The last ones may still be under way.
        UniqueLock lock{mutex_};
        changed_.wait(lock, [this]() RAPIDSMPF_REQUIRES(mutex_) {
            return being_made_ == 0 || !made_.empty() || error_;
        });
        chunk = take_made();
        if (!chunk) {
            return std::nullopt;
        }
    }
    return handover_.adopt(std::move(*chunk), work);
}

void MadeAhead::close() noexcept {
    {
        MutexLock const lock{mutex_};
        is_closed_ = true;
    }
    source_->close();
    std::deque<Chunk> unused;
    UniqueLock lock{mutex_};
    changed_.wait(lock, [this]() RAPIDSMPF_REQUIRES(mutex_) { return being_made_ == 0; });
    unused.swap(made_);
}

}  // namespace rapidsmpf::compute
