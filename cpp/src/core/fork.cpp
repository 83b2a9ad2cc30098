#include <rapidsmpf/core/fork.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include <pthread.h>
#include <unistd.h>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf {

namespace {

// Of the process, because fork() is. Never destroyed: threads may outlive main().
struct Registry {
    Mutex mutex;  // held while the process forks
    std::vector<std::weak_ptr<void const>> kept RAPIDSMPF_GUARDED_BY(mutex);
    std::size_t look_through_at RAPIDSMPF_GUARDED_BY(mutex){16};  // so many entries
    std::atomic<std::uint64_t> generation{0};                     // of forks
};

Registry& registry();

// The three handlers of a fork: one locks, and the others unlock.
void before_fork() RAPIDSMPF_NO_THREAD_SAFETY_ANALYSIS {
    registry().mutex.lock();
}

void after_in_parent() RAPIDSMPF_NO_THREAD_SAFETY_ANALYSIS {
    registry().mutex.unlock();
}

void after_in_child() RAPIDSMPF_NO_THREAD_SAFETY_ANALYSIS {
    auto& all = registry();
    ++all.generation;
    for (auto const& object : all.kept) {
        if (auto owner = object.lock()) {
            static_cast<void>(std::make_unique<std::shared_ptr<void const>>(std::move(owner)).release());
        }
    }
    all.kept.clear();
    all.mutex.unlock();
}

Registry& registry() {
    static Registry& instance = [&]() -> Registry& {
        auto& made = *std::make_unique<Registry>().release();
        if (::pthread_atfork(&before_fork, &after_in_parent, &after_in_child) != 0) {
            throw std::bad_alloc{};  // its only error
        }
        return made;
    }();
    return instance;
}

}  // namespace

void keep_in_forks(std::weak_ptr<void const> object) {
    auto& all = registry();
    MutexLock const lock{all.mutex};
    if (all.kept.size() >= all.look_through_at) {
        std::erase_if(all.kept, [](auto const& known) { return known.expired(); });
        all.look_through_at = std::max<std::size_t>(all.look_through_at, 2 * all.kept.size());
    }
    all.kept.push_back(std::move(object));
}

HomeProcess::HomeProcess() noexcept : generation_{registry().generation.load()}, pid_{::getpid()} {}

bool HomeProcess::is_here() const noexcept {
    return registry().generation.load(std::memory_order_relaxed) == generation_;
}

void HomeProcess::require(std::string const& what) const {
    if (!is_here()) {
        throw std::runtime_error{
            "this " + what + " belongs to process " + std::to_string(pid_) + ", of which this process "
            + std::to_string(::getpid())
            + " is a fork: threads and connections do not come along. Make one in each process, or start "
              "processes with multiprocessing's 'spawn'"};
    }
}

}  // namespace rapidsmpf
