// What `await` runs for an operation that a Cython class stands for: it starts the operation, has the task wait for a future if it
// must, and gives the result.
//
// In C++, because a generator of Cython's takes longer than an operation on a channel that need not wait.
#pragma once

#include <Python.h>

namespace rapidsmpf::python {

// How the operation is run, in its event loop's thread. Those that return objects return new references, or null and an error.
struct AwaitHooks {
    PyObject* (*start)(PyObject* operation);   // a future of the loop to wait for; None: it has ended
    PyObject* (*result)(PyObject* operation);  // when it has ended
    int (*has_ended)(PyObject* operation);
    void (*abandon)(PyObject* operation);  // the task does not wait for it any more; no error is set
};

namespace detail {

// An iterator, and an awaitable. Owns references to what it runs.
struct Awaiting {
    PyObject_HEAD PyObject* operation;  // null when its result was given
    PyObject* future;                   // that the task waits for
    AwaitHooks const* hooks;
};

inline void end_await(Awaiting& self) noexcept {
    Py_CLEAR(self.future);
    Py_CLEAR(self.operation);
}

inline void abandon(Awaiting& self) noexcept {
    if (self.future == nullptr || self.operation == nullptr) {
        return;
    }
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    self.hooks->abandon(self.operation);
    PyErr_Restore(type, value, traceback);
    end_await(self);
}

[[nodiscard]] inline PySendResult give_result(Awaiting& self, PyObject** result) noexcept {
    *result = self.hooks->result(self.operation);
    end_await(self);
    return *result == nullptr ? PYGEN_ERROR : PYGEN_RETURN;
}

[[nodiscard]] inline PySendResult send_to_await(
    PyObject* object, PyObject* /*value*/, PyObject** result) noexcept {
    auto& self = *reinterpret_cast<Awaiting*>(object);
    *result = nullptr;
    if (self.operation == nullptr) {
        PyErr_SetString(PyExc_RuntimeError, "this operation was awaited to its end");
        return PYGEN_ERROR;
    }
    if (self.future != nullptr) {
        if (self.hooks->has_ended(self.operation) == 0) {
            PyErr_SetString(PyExc_RuntimeError, "this operation goes on while its future has no result");
            return PYGEN_ERROR;
        }
        return give_result(self, result);
    }
    auto* const future = self.hooks->start(self.operation);
    if (future == nullptr) {
        end_await(self);
        return PYGEN_ERROR;
    }
    if (future == Py_None) {
        Py_DECREF(future);
        return give_result(self, result);
    }
    self.future = future;
    // asyncio's tasks refuse a future that was yielded without this mark; a future's own iterator sets it.
    static auto* const blocking = PyUnicode_InternFromString("_asyncio_future_blocking");
    if (blocking == nullptr || PyObject_SetAttr(future, blocking, Py_True) != 0) {
        abandon(self);
        return PYGEN_ERROR;
    }
    Py_INCREF(future);
    *result = future;
    return PYGEN_NEXT;
}

[[nodiscard]] inline PyObject* next_of_await(PyObject* object) noexcept {
    PyObject* result = nullptr;
    if (send_to_await(object, Py_None, &result) == PYGEN_RETURN) {
        PyErr_SetObject(PyExc_StopIteration, result);
        Py_CLEAR(result);
    }
    return result;
}

[[nodiscard]] inline PyObject* method_send(PyObject* object, PyObject* /*value*/) noexcept {
    return next_of_await(object);
}

[[nodiscard]] inline PyObject* method_throw(PyObject* object, PyObject* arguments) noexcept {
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
    if (PyArg_UnpackTuple(arguments, "throw", 1, 3, &type, &value, &traceback) == 0) {
        return nullptr;
    }
    abandon(*reinterpret_cast<Awaiting*>(object));
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject(PyExceptionInstance_Class(type), type);
    } else {
        PyErr_SetObject(type, value);
    }
    return nullptr;
}

[[nodiscard]] inline PyObject* method_close(PyObject* object, PyObject* /*none*/) noexcept {
    abandon(*reinterpret_cast<Awaiting*>(object));
    Py_RETURN_NONE;
}

[[nodiscard]] inline PyObject* itself(PyObject* object) noexcept {
    Py_INCREF(object);
    return object;
}

inline int traverse_await(PyObject* object, visitproc visit, void* arg) noexcept {
    auto const& self = *reinterpret_cast<Awaiting*>(object);
    Py_VISIT(self.operation);
    Py_VISIT(self.future);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

inline int clear_await(PyObject* object) noexcept {
    auto& self = *reinterpret_cast<Awaiting*>(object);
    abandon(self);
    end_await(self);
    return 0;
}

inline void deallocate_await(PyObject* object) noexcept {
    auto* const type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)clear_await(object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

[[nodiscard]] inline PyTypeObject* await_type() noexcept {
    static PyMethodDef methods[] = {
        {"send", &method_send, METH_O, nullptr},
        {"throw", &method_throw, METH_VARARGS, nullptr},
        {"close", &method_close, METH_NOARGS, nullptr},
        {nullptr, nullptr, 0, nullptr},
    };
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate_await)},
        {Py_tp_traverse, reinterpret_cast<void*>(&traverse_await)},
        {Py_tp_clear, reinterpret_cast<void*>(&clear_await)},
        {Py_tp_iter, reinterpret_cast<void*>(&itself)},
        {Py_tp_iternext, reinterpret_cast<void*>(&next_of_await)},
        {Py_am_await, reinterpret_cast<void*>(&itself)},
        {Py_am_send, reinterpret_cast<void*>(&send_to_await)},
        {Py_tp_methods, methods},
        {0, nullptr},
    };
    static PyType_Spec spec{
        "rapidsmpf.streaming.core.channel._Awaiting", sizeof(Awaiting), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    static auto* const type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return type;
}

}  // namespace detail

// What `operation.__await__()` returns: a new reference, or null and an error. `hooks` must live for ever.
[[nodiscard]] inline PyObject* await_operation(PyObject* operation, AwaitHooks const* hooks) noexcept {
    auto* const type = detail::await_type();
    if (type == nullptr) {
        return nullptr;
    }
    auto* const self = PyObject_GC_New(detail::Awaiting, type);
    if (self == nullptr) {
        return nullptr;
    }
    Py_INCREF(operation);
    self->operation = operation;
    self->future = nullptr;
    self->hooks = hooks;
    auto* const object = reinterpret_cast<PyObject*>(self);
    PyObject_GC_Track(object);
    return object;
}

}  // namespace rapidsmpf::python
