// Taking the GIL in threads that may not be Python's, and keeping Python objects from C++.
#pragma once

#include <memory>

#include <Python.h>

#include <rapidsmpf/core/detail/callback_gate.hpp>

// Public in every CPython since 3.4, but left out of the headers of the limited API.
extern "C" int PyGILState_Check(void);

namespace rapidsmpf::python {

// Whether this thread holds the GIL.
[[nodiscard]] inline bool holds_gil() noexcept {
    // Without a thread state PyGILState_Check() cannot be trusted: it is true when there is no interpreter any more.
    return PyGILState_GetThisThreadState() != nullptr && PyGILState_Check() != 0;
}

// Holds the GIL for the life of the object, unless the interpreter is ending: taking it then would end the thread
// instead, in the middle of C++ frames. To be tested before Python is used.
class WithGil {
  public:
    WithGil() noexcept
        : entered_{!holds_gil() && CallbackGate::instance().enter()},
          held_{entered_ ? Py_IsInitialized() != 0 : holds_gil()} {
        if (held_) {
            state_ = PyGILState_Ensure();
        }
    }
    ~WithGil() {
        if (held_) {
            PyGILState_Release(state_);
        }
        if (entered_) {
            CallbackGate::instance().leave();
        }
    }
    WithGil(WithGil const&) = delete;
    WithGil& operator=(WithGil const&) = delete;
    [[nodiscard]] explicit operator bool() const noexcept { return held_; }

  private:
    bool entered_;
    bool held_;
    PyGILState_STATE state_{};
};

// Gives the GIL up for the life of the object if this thread holds it.
class WithoutGil {
  public:
    WithoutGil() noexcept : saved_{holds_gil() ? PyEval_SaveThread() : nullptr} {}
    ~WithoutGil() {
        if (saved_ != nullptr) {
            PyEval_RestoreThread(saved_);
        }
    }
    WithoutGil(WithoutGil const&) = delete;
    WithoutGil& operator=(WithoutGil const&) = delete;

  private:
    PyThreadState* saved_;
};

// Shared ownership of a Python object by C++: the last copy may go in any thread. An object that outlives the
// interpreter is left to the end of the process.
using SharedObject = std::shared_ptr<PyObject>;

// Takes over a reference; the caller holds the GIL.
[[nodiscard]] inline SharedObject adopt(PyObject* object) {
    return SharedObject{object, [](PyObject* held) {
                            if (WithGil const gil; gil) {
                                Py_DECREF(held);
                            }
                        }};
}

// Takes a new reference; the caller holds the GIL.
[[nodiscard]] inline SharedObject share(PyObject* object) {
    Py_INCREF(object);
    return adopt(object);
}

}  // namespace rapidsmpf::python
