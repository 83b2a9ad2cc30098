// Waits of the library for coroutines of Python: a function is called when the wait has ended, and fetches what came of it.
//
// Not for the way of messages (networks.hpp): each end takes the GIL, on the thread that it happens on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/errors.hpp>
#include <rapidsmpf_python/gil.hpp>

#include <rapidsmpf/streaming/cancellation.hpp>
#include <rapidsmpf/streaming/collectives.hpp>
#include <rapidsmpf/streaming/context.hpp>
#include <rapidsmpf/streaming/memory_wait.hpp>
#include <rapidsmpf/streaming/message.hpp>
#include <rapidsmpf/streaming/spillable_messages.hpp>
#include <rapidsmpf/streaming/synchronisation.hpp>
#include <rapidsmpf/streaming/task.hpp>

namespace rapidsmpf::python {

using CancellationPointer = std::shared_ptr<streaming::CancellationSource>;

[[nodiscard]] inline CancellationPointer make_cancellation() {
    return std::make_shared<streaming::CancellationSource>();
}

namespace detail {

// done(exception or None). Nothing in a process that ends.
inline void tell(SharedObject const& done, std::exception_ptr const& error) noexcept {
    WithGil const gil;
    if (!gil) {
        return;
    }
    PyObject* exception = Py_None;
    Py_INCREF(exception);
    if (error) {
        try {
            std::rethrow_exception(error);
        } catch (...) {
            translate_exception();
        }
        PyObject* type{nullptr};
        PyObject* traceback{nullptr};
        Py_DECREF(exception);
        PyErr_Fetch(&type, &exception, &traceback);
        PyErr_NormalizeException(&type, &exception, &traceback);
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    }
    PyObject* const result = PyObject_CallFunctionObjArgs(done.get(), exception, nullptr);
    if (result == nullptr) {
        PyErr_Clear();  // the loop is closed: there is no waiter any more
    }
    Py_XDECREF(result);
    Py_XDECREF(exception);
}

}  // namespace detail

// What came of a wait; filled before its end is told.
template <typename T>
using Result = std::shared_ptr<std::optional<T>>;

// Whose wait it is; may be null.
using ActivityPointer = std::shared_ptr<streaming::Activity>;

template <typename T>
streaming::detail::Detached run_told(
    streaming::Task<T> task, Result<T> result, SharedObject done, ActivityPointer activity) {
    std::exception_ptr error;
    {
        streaming::Task<T> local = std::move(task);
        local.set_actor_part(streaming::detail::ActorPart{activity.get(), nullptr});
        try {
            result->emplace(co_await local);
        } catch (...) {
            error = std::current_exception();
        }
    }
    detail::tell(done, error);
}
inline streaming::detail::Detached run_told(
    streaming::Task<void> task, SharedObject done, ActivityPointer activity) {
    std::exception_ptr error;
    {
        streaming::Task<void> local = std::move(task);
        local.set_actor_part(streaming::detail::ActorPart{activity.get(), nullptr});
        try {
            co_await local;
        } catch (...) {
            error = std::current_exception();
        }
    }
    detail::tell(done, error);
}

using FoundPartition = Result<coll::PartitionId>;
using FoundChunks = Result<std::vector<PackedData>>;
using FoundReservation = Result<MemoryReservation>;
using FoundMessage = Result<streaming::Message>;
using FoundBytes = Result<std::vector<std::byte>>;

// The caller of each holds the GIL, which is given up while the wait starts.
template <typename T, typename Start>
[[nodiscard]] Result<T> start_told(PyObject* done, ActivityPointer activity, Start&& start) {
    auto result = std::make_shared<std::optional<T>>();
    auto kept = share(done);
    WithoutGil const free;
    run_told(start(), result, std::move(kept), std::move(activity));
    return result;
}

[[nodiscard]] inline FoundPartition start_wait_any(
    streaming::Context const& context, std::shared_ptr<coll::Shuffler> shuffler,
    CancellationPointer const& cancellation, ActivityPointer activity, PyObject* done) {
    return start_told<coll::PartitionId>(done, std::move(activity), [&] {
        return streaming::async_wait_any(context.executor(), std::move(shuffler), cancellation->token());
    });
}
inline void start_wait_on(
    streaming::Context const& context, std::shared_ptr<coll::Shuffler> shuffler, coll::PartitionId partition,
    CancellationPointer const& cancellation, ActivityPointer activity, PyObject* done) {
    auto kept = share(done);
    WithoutGil const free;
    run_told(
        streaming::async_wait_on(context.executor(), std::move(shuffler), partition, cancellation->token()),
        std::move(kept), std::move(activity));
}
[[nodiscard]] inline FoundChunks start_gather(
    streaming::Context const& context, std::shared_ptr<coll::AllGather> allgather, bool ordered,
    CancellationPointer const& cancellation, ActivityPointer activity, PyObject* done) {
    return start_told<std::vector<PackedData>>(done, std::move(activity), [&] {
        return streaming::async_wait_and_extract(
            context.executor(), std::move(allgather), ordered ? coll::Ordered::yes : coll::Ordered::no,
            cancellation->token());
    });
}
[[nodiscard]] inline FoundBytes start_reduce(
    streaming::Context const& context, std::shared_ptr<coll::AllReduce> allreduce,
    CancellationPointer const& cancellation, ActivityPointer activity, PyObject* done) {
    return start_told<std::vector<std::byte>>(done, std::move(activity), [&] {
        return streaming::async_wait_and_extract(
            context.executor(), std::move(allreduce), cancellation->token());
    });
}
// `allow`: -1 as the options say, 0, 1.
[[nodiscard]] inline FoundReservation start_reserve(
    streaming::Context const& context, std::size_t size, int type, int allow,
    CancellationPointer const& cancellation, ActivityPointer activity, PyObject* done) {
    return start_told<MemoryReservation>(done, std::move(activity), [&] {
        streaming::MemoryWait wait;
        wait.cancellation = cancellation->token();
        if (allow >= 0) {
            wait.allow = allow == 0 ? AllowOverbooking::no : AllowOverbooking::yes;
        }
        return streaming::reserve_memory(context, size, static_cast<MemoryType>(type), std::move(wait));
    });
}

using SpillablePointer = std::shared_ptr<streaming::SpillableMessages>;

[[nodiscard]] inline SpillablePointer make_spillable(streaming::Context const& context) {
    return std::make_shared<streaming::SpillableMessages>(context);
}
[[nodiscard]] inline std::uint64_t insert_spillable(
    streaming::SpillableMessages& messages, streaming::Message& message) {
    return messages.insert(std::move(message));
}
[[nodiscard]] inline FoundMessage start_extract(
    SpillablePointer const& messages, std::uint64_t id, CancellationPointer const& cancellation,
    PyObject* done) {
    return start_told<streaming::Message>(
        done, nullptr, [&] { return messages->extract(id, cancellation->token()); });
}
[[nodiscard]] inline std::size_t spillable_bytes(
    streaming::SpillableMessages const& messages, std::uint64_t id, int type) {
    return messages.description(id).bytes(static_cast<MemoryType>(type));
}

[[nodiscard]] inline std::vector<std::unique_ptr<PackedData>> take_chunks(FoundChunks const& found) {
    std::vector<std::unique_ptr<PackedData>> chunks;
    for (auto& each : **found) {
        chunks.push_back(std::make_unique<PackedData>(std::move(each)));
    }
    return chunks;
}
[[nodiscard]] inline std::unique_ptr<MemoryReservation> take_reservation(FoundReservation const& found) {
    return std::make_unique<MemoryReservation>(std::move(**found));
}
[[nodiscard]] inline std::string take_bytes(FoundBytes const& found) {
    return {reinterpret_cast<char const*>((*found)->data()), (*found)->size()};
}

// Keeps a collective telling other ranks why, should the network fail.
using GivesUp = std::unique_ptr<streaming::CancellationToken::Registration>;
[[nodiscard]] inline GivesUp shuffle_gives_up(
    streaming::CancellationSource const& source, std::shared_ptr<coll::Shuffler> shuffler) {
    return std::make_unique<streaming::CancellationToken::Registration>(
        streaming::give_up_with(source.token(), std::move(shuffler)));
}
[[nodiscard]] inline GivesUp allgather_gives_up(
    streaming::CancellationSource const& source, std::shared_ptr<coll::AllGather> allgather) {
    return std::make_unique<streaming::CancellationToken::Registration>(
        streaming::give_up_with(source.token(), std::move(allgather)));
}

}  // namespace rapidsmpf::python
