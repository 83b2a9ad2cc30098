// The Arrow PyCapsule interface, and where the GIL is when streams are pulled.
//
// A consumer may pull a stream of ours while it holds the GIL (Polars does when it scans one), and our producers may
// block, and may need threads that want the GIL: so each stream that we export gives the GIL up while it works.
// Streams that we import are pulled without the GIL; a producer that needs it takes it.
#pragma once

#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <Python.h>
#include <rapidsmpf_python/errors.hpp>
#include <rapidsmpf_python/gil.hpp>

#include <rapidsmpf/table/arrow_c.hpp>

namespace rapidsmpf::python {

namespace detail {

// A stream that does what another does, without the GIL.
struct UnlockedStream {
    ArrowStreamOwner inner;

    static ArrowArrayStream* inner_of(ArrowArrayStream* self) {
        return static_cast<UnlockedStream*>(self->private_data)->inner.get();
    }
    static int get_schema(ArrowArrayStream* self, ArrowSchema* out) {
        WithoutGil unlocked;
        auto* const stream = inner_of(self);
        return stream->get_schema(stream, out);
    }
    static int get_next(ArrowArrayStream* self, ArrowArray* out) {
        WithoutGil unlocked;
        auto* const stream = inner_of(self);
        return stream->get_next(stream, out);
    }
    static char const* get_last_error(ArrowArrayStream* self) {
        auto* const stream = inner_of(self);
        return stream->get_last_error(stream);
    }
    static void release(ArrowArrayStream* self) {
        WithoutGil unlocked;
        delete static_cast<UnlockedStream*>(self->private_data);  // NOLINT: the ABI has no owner
        self->private_data = nullptr;
        self->release = nullptr;
    }
};

template <typename Struct>
void release_capsule(PyObject* capsule) {
    auto* const value = static_cast<Struct*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
    if (value == nullptr) {
        PyErr_WriteUnraisable(capsule);
        return;
    }
    if (value->release != nullptr) {
        WithoutGil unlocked;
        value->release(value);
    }
    delete value;  // NOLINT: made by make_capsule
}

// A capsule that owns the content of `owner`.
template <typename Struct>
PyObject* make_capsule(ArrowOwner<Struct> owner, char const* name) {
    auto value = std::make_unique<Struct>();
    owner.move_to(value.get());
    PyObject* const capsule = PyCapsule_New(value.get(), name, &release_capsule<Struct>);
    if (capsule == nullptr) {
        if (value->release != nullptr) {
            value->release(value.get());
        }
        throw PythonError::fetch();
    }
    (void)value.release();
    return capsule;
}

template <typename Struct>
ArrowOwner<Struct> open_capsule(PyObject* capsule, char const* name) {
    auto* const value = static_cast<Struct*>(PyCapsule_GetPointer(capsule, name));
    if (value == nullptr) {
        throw PythonError::fetch();
    }
    RAPIDSMPF_EXPECTS(
        value->release != nullptr, std::string{"this "} + name + " has been read already",
        std::invalid_argument);
    return ArrowOwner<Struct>{value};
}

}  // namespace detail

namespace detail {

// A stream that fails once `cancelled` is set.
struct CancellableStream {
    ArrowStreamOwner inner;
    std::atomic<bool> const* cancelled{nullptr};

    static CancellableStream& of(ArrowArrayStream* self) {
        return *static_cast<CancellableStream*>(self->private_data);
    }
    static int get_schema(ArrowArrayStream* self, ArrowSchema* out) {
        auto* const stream = of(self).inner.get();
        return stream->get_schema(stream, out);
    }
    static int get_next(ArrowArrayStream* self, ArrowArray* out) {
        if (*of(self).cancelled) {
            return ECANCELED;
        }
        auto* const stream = of(self).inner.get();
        return stream->get_next(stream, out);
    }
    static char const* get_last_error(ArrowArrayStream* self) {
        if (*of(self).cancelled) {
            return "interrupted";
        }
        auto* const stream = of(self).inner.get();
        return stream->get_last_error(stream);
    }
    static void release(ArrowArrayStream* self) {
        delete &of(self);  // NOLINT: the ABI has no owner
        self->private_data = nullptr;
        self->release = nullptr;
    }
};

}  // namespace detail

// The same stream; it fails once `cancelled` is set, which must outlive it.
[[nodiscard]] inline ArrowStreamOwner cancellable(
    ArrowStreamOwner stream, std::atomic<bool> const& cancelled) {
    auto state = std::make_unique<detail::CancellableStream>();
    state->inner = std::move(stream);
    state->cancelled = &cancelled;
    ArrowStreamOwner result;
    auto* const out = result.out();
    out->get_schema = &detail::CancellableStream::get_schema;
    out->get_next = &detail::CancellableStream::get_next;
    out->get_last_error = &detail::CancellableStream::get_last_error;
    out->release = &detail::CancellableStream::release;
    out->private_data = state.release();
    return result;
}

[[nodiscard]] inline ArrowStreamOwner without_gil(ArrowStreamOwner stream) {
    auto state = std::make_unique<detail::UnlockedStream>();
    state->inner = std::move(stream);
    ArrowStreamOwner result;
    auto* const out = result.out();
    out->get_schema = &detail::UnlockedStream::get_schema;
    out->get_next = &detail::UnlockedStream::get_next;
    out->get_last_error = &detail::UnlockedStream::get_last_error;
    out->release = &detail::UnlockedStream::release;
    out->private_data = state.release();
    return result;
}

// New references to capsules. The caller holds the GIL.
[[nodiscard]] inline PyObject* stream_capsule(ArrowStreamOwner stream) {
    return detail::make_capsule(without_gil(std::move(stream)), "arrow_array_stream");
}
[[nodiscard]] inline PyObject* schema_capsule(ArrowSchemaOwner schema) {
    return detail::make_capsule(std::move(schema), "arrow_schema");
}
[[nodiscard]] inline PyObject* array_capsule(ArrowArrayOwner array) {
    return detail::make_capsule(std::move(array), "arrow_array");
}

// Takes the content of a capsule. The caller holds the GIL. Throw PythonError when it is no such capsule,
// std::invalid_argument when it is empty.
[[nodiscard]] inline ArrowStreamOwner open_stream(PyObject* capsule) {
    return detail::open_capsule<ArrowArrayStream>(capsule, "arrow_array_stream");
}
[[nodiscard]] inline ArrowSchemaOwner open_schema(PyObject* capsule) {
    return detail::open_capsule<ArrowSchema>(capsule, "arrow_schema");
}
[[nodiscard]] inline ArrowArrayOwner open_array(PyObject* capsule) {
    return detail::open_capsule<ArrowArray>(capsule, "arrow_array");
}

}  // namespace rapidsmpf::python
