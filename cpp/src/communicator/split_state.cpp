#include "communicator/split_state.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include <rapidsmpf/communicator/detail/closed_peers.hpp>
#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t split_stage = 1;
// How many freed contexts are not given out again yet.
constexpr std::size_t most_resting = Tag::max_context / 2;

Tag split_tag() {
    return Tag{Tag::max_op_id, split_stage};
}

}  // namespace

// One gather, shared by the thread that waits and the progress thread.
struct SplitState::Round {
    Round(std::uint64_t number_, Rank me, std::size_t nranks, Bytes mine)
        : number{number_}, values(nranks), missing{nranks - 1} {
        values[static_cast<std::size_t>(me)] = std::move(mine);
    }

    std::uint64_t const number;
    Mutex mutex;
    ConditionVariable changed;
    std::vector<std::optional<Bytes>> values RAPIDSMPF_GUARDED_BY(mutex);
    std::size_t missing RAPIDSMPF_GUARDED_BY(mutex);
    std::optional<RankFailure> failure RAPIDSMPF_GUARDED_BY(mutex);
    std::exception_ptr error RAPIDSMPF_GUARDED_BY(mutex);
    std::optional<Clock::time_point> absence_noticed RAPIDSMPF_GUARDED_BY(mutex);

    bool stopped RAPIDSMPF_GUARDED_BY(mutex){false};

    [[nodiscard]] bool is_over() const RAPIDSMPF_REQUIRES(mutex) {
        return missing == 0 || failure || error || stopped;
    }
};

// On the progress thread. Returns whether something came.
bool SplitState::take_in(Communicator& comm, Round& round) {
    bool any = false;
    auto const accept = [&](Rank source, Bytes bytes) RAPIDSMPF_REQUIRES(round.mutex) {
        ByteReader reader{bytes};
        auto const number = reader.integer<std::uint64_t>();
        if (number > round.number) {
            early_[source].push_back(std::move(bytes));
            return;
        }
        auto& value = round.values.at(static_cast<std::size_t>(source));
        // An earlier round's belongs to a gather that was given up.
        if (number == round.number && !value) {
            value = Bytes(bytes.begin() + sizeof(number), bytes.end());
            --round.missing;
        }
    };
    MutexLock const lock{round.mutex};
    if (round.is_over()) {
        return false;
    }
    try {
        for (auto& [source, queue] : std::exchange(early_, {})) {
            for (auto& bytes : queue) {
                accept(source, std::move(bytes));
            }
        }
        while (auto arrived = comm.recv_any(split_tag())) {
            any = true;
            accept(arrived->source, std::move(arrived->bytes));
        }
        for (std::size_t i = 0; i < round.values.size(); ++i) {
            auto const rank = static_cast<Rank>(i);
            if (!round.values[i] && rank != comm.rank() && comm.has_closed(rank)) {
                auto const now = Clock::now();
                if (now >= round.absence_noticed.value_or(now) + close_grace) {
                    throw RankFailedError{rank, "", 0, "it closed its communicator before a split of it"};
                }
                round.absence_noticed = round.absence_noticed.value_or(now);
            }
        }
    } catch (...) {
        round.error = std::current_exception();
    }
    if (round.is_over()) {
        round.changed.notify_all();
    }
    return any;
}

std::vector<SplitState::Bytes> SplitState::gather(
    Communicator& comm, Bytes mine, Deadline deadline, std::stop_token const& stop) {
    Rank const me = comm.rank();
    auto const nranks = static_cast<std::size_t>(comm.nranks());
    auto const number = rounds_++;
    auto const message = ByteWriter{}.integer(number).raw(mine).take();
    auto const round = std::make_shared<Round>(number, me, nranks, std::move(mine));
    for (Rank peer = 0; peer < comm.nranks(); ++peer) {
        if (peer != me) {
            static_cast<void>(comm.send(message, peer, split_tag()));
        }
    }
    auto const listener = comm.add_failure_listener([round](RankFailure const& failure) {
        MutexLock const lock{round->mutex};
        round->failure = failure;
        round->changed.notify_all();
    });
    std::stop_callback const on_stop{stop, [round] {
                                         MutexLock const lock{round->mutex};
                                         round->stopped = true;
                                         round->changed.notify_all();
                                     }};
    auto const function = comm.progress_thread()->add_function(
        [this, &comm, round] { return ProgressThread::TickResult::busy_if(take_in(comm, *round)); });
    {
        UniqueLock lock{round->mutex};
        auto const over = [&]() RAPIDSMPF_REQUIRES(round->mutex) { return round->is_over(); };
        if (deadline) {
            round->changed.wait_until(lock, *deadline, over);
        } else {
            round->changed.wait(lock, over);
        }
    }
    comm.progress_thread()->remove_function(function);
    comm.remove_failure_listener(listener);

    MutexLock const lock{round->mutex};  // a request to stop may still come
    if (round->error) {
        std::rethrow_exception(round->error);
    }
    if (round->missing > 0 && round->failure) {
        round->failure->raise();
    }
    std::vector<Bytes> values;
    std::string missing;
    for (std::size_t rank = 0; rank < nranks; ++rank) {
        if (auto& value = round->values[rank]) {
            values.push_back(std::move(*value));
        } else {
            missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
        }
    }
    if (!missing.empty()) {
        throw TimeoutError{
            (round->stopped ? "split() was interrupted; it was not called yet by rank(s) "
                            : "split() was not called in time by rank(s) ")
            + missing};
    }
    return values;
}

ContextSet SplitState::taken() const {
    MutexLock const lock{contexts_mutex_};
    return taken_;
}

bool SplitState::reserve(ContextId context) {
    MutexLock const lock{contexts_mutex_};
    bool const was_free = !taken_[context];
    taken_.set(context);
    return was_free;
}

void SplitState::release(ContextId context, Used used) {
    MutexLock const lock{contexts_mutex_};
    if (used == Used::no) {
        taken_.reset(context);
        return;
    }
    quarantined_.push_back(context);
    if (quarantined_.size() > most_resting) {
        taken_.reset(quarantined_.front());
        quarantined_.pop_front();
    }
}

}  // namespace rapidsmpf::detail
