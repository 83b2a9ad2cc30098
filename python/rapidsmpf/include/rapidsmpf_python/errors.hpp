// How errors cross between C++ and Python, in both directions.
//
// translate_exception() is the one handler of `except +` in all modules: it makes the Python exception of the
// C++ exception being handled. PythonError is the way back: what a Python callable raised, travelling through
// C++ until it comes out in a caller that is Python, as the same exception object.
#pragma once

#include <cerrno>
#include <ios>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>

#include <Python.h>
#include <rapidsmpf_python/gil.hpp>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::python {

// An exception knows by its traceback what the frames have that it went through. Where C++ keeps an error longer than it takes to raise
// it (a channel does, for those who use it later), those frames may lead to what keeps it, and no garbage collector sees that
// circle: release_frames() breaks it.
class PythonError : public std::runtime_error {
  public:
    // Takes the exception that is set in this thread; the caller holds the GIL.
    [[nodiscard]] static PythonError fetch() {
        PyObject* type{nullptr};
        PyObject* value{nullptr};
        PyObject* traceback{nullptr};
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        if (traceback != nullptr) {
            PyException_SetTraceback(value, traceback);
        }
        PythonError error{describe(type, value), share(value)};
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return error;
    }
    // The text of the exception alone; the caller holds the GIL.
    [[nodiscard]] std::string message() const {
        PyObject* const string = PyObject_Str(exception_->get());
        char const* const bytes = string == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(string, nullptr);
        std::string text = bytes == nullptr ? what() : bytes;
        Py_XDECREF(string);
        PyErr_Clear();
        return text;
    }
    // Sets it again; the caller holds the GIL.
    void restore() const {
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception_->get())), exception_->get());
    }
    // The same exception, which release_frames() of this one leaves as it is.
    [[nodiscard]] PythonError apart() const { return PythonError{what(), *exception_}; }
    // From now on this and its copies are an exception that says the same and has no traceback. The caller holds the GIL.
    void release_frames() {
        PyObject* copied = without_traceback(exception_->get());
        if (copied == nullptr) {
            PyErr_Clear();
            copied = PyObject_CallFunction(PyExc_RuntimeError, "s", what());
        }
        if (copied == nullptr) {
            PyErr_Clear();
            return;
        }
        *exception_ = adopt(copied);
    }

  private:
    PythonError(std::string const& text, SharedObject exception)
        : std::runtime_error{text}, exception_{std::make_shared<SharedObject>(std::move(exception))} {}

    [[nodiscard]] static std::string describe(PyObject* type, PyObject* value) {
        std::string text = "a Python function raised ";
        for (auto [object, convert] : {std::pair{type, &name_of}, std::pair{value, &PyObject_Str}}) {
            PyObject* const string = convert(object);
            char const* const bytes = string == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(string, nullptr);
            text += bytes == nullptr ? "?" : bytes;
            text += object == type ? ": " : "";
            Py_XDECREF(string);
            PyErr_Clear();
        }
        return text;
    }
    // A new exception of the same class with the same arguments and attributes, or null. Its __init__ is not called, for it may ask
    // for others.
    [[nodiscard]] static PyObject* without_traceback(PyObject* exception) {
        auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(exception));
        PyObject* const arguments = PyObject_GetAttrString(exception, "args");
        PyObject* const attributes = PyObject_GetAttrString(exception, "__dict__");
        PyObject* made = nullptr;
        if (arguments != nullptr && attributes != nullptr) {
            PyObject* const head = PyTuple_Pack(1, type);
            PyObject* const all = head == nullptr ? nullptr : PySequence_Concat(head, arguments);
            PyObject* const make = PyObject_GetAttrString(type, "__new__");
            made = all == nullptr || make == nullptr ? nullptr : PyObject_CallObject(make, all);
            PyObject* const own = made == nullptr ? nullptr : PyObject_GetAttrString(made, "__dict__");
            if (own == nullptr || PyDict_Update(own, attributes) != 0
                || PyObject_SetAttrString(made, "args", arguments) != 0) {
                Py_XDECREF(made);
                made = nullptr;
            }
            Py_XDECREF(own);
            Py_XDECREF(make);
            Py_XDECREF(all);
            Py_XDECREF(head);
        }
        Py_XDECREF(attributes);
        Py_XDECREF(arguments);
        return made;
    }
    [[nodiscard]] static PyObject* name_of(PyObject* type) {
        return PyObject_GetAttrString(type, "__name__");
    }

    std::shared_ptr<SharedObject> exception_;  // of all copies; under the GIL
};

// Sets an exception of a class in rapidsmpf.error, made from `arguments` (a new reference, taken over).
inline void set_error(char const* class_name, PyObject* arguments) {
    PyObject* const module = PyImport_ImportModule("rapidsmpf.error");
    PyObject* const type = module == nullptr ? nullptr : PyObject_GetAttrString(module, class_name);
    PyObject* const value =
        type == nullptr || arguments == nullptr ? nullptr : PyObject_CallObject(type, arguments);
    if (value != nullptr) {
        PyErr_SetObject(type, value);
    }
    Py_XDECREF(value);
    Py_XDECREF(type);
    Py_XDECREF(module);
    Py_XDECREF(arguments);
}

inline void set_error(char const* class_name, char const* message) {
    set_error(class_name, Py_BuildValue("(s)", message));
}

// To be called in a catch block, with the GIL.
inline void translate_exception() noexcept {
    try {
        throw;
    } catch (PythonError const& error) {
        error.restore();
    } catch (RankFailedError const& error) {
        set_error(
            "RankFailedError", Py_BuildValue(
                                   "(isLs)", static_cast<int>(error.rank()), error.host().c_str(),
                                   static_cast<long long>(error.pid()), error.reason().c_str()));
    } catch (ReservationError const& error) {
        set_error("ReservationError", error.what());
    } catch (OutOfMemory const& error) {
        set_error("OutOfMemory", error.what());
    } catch (BadAlloc const& error) {
        set_error("BadAlloc", error.what());
    } catch (FormatError const& error) {
        set_error("FormatError", error.what());
    } catch (SpillError const& error) {
        set_error("SpillError", error.what());
    } catch (TimeoutError const& error) {
        PyErr_SetString(PyExc_TimeoutError, error.what());
    } catch (SystemError const& error) {
        PyObject* const arguments = Py_BuildValue("(is)", error.error_number(), error.what());
        if (arguments != nullptr) {
            PyErr_SetObject(PyExc_OSError, arguments);
            Py_DECREF(arguments);
        }
    } catch (std::bad_alloc const& error) {
        PyErr_SetString(PyExc_MemoryError, error.what());
    } catch (std::bad_cast const& error) {
        PyErr_SetString(PyExc_TypeError, error.what());
    } catch (std::domain_error const& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    } catch (std::invalid_argument const& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    } catch (std::out_of_range const& error) {
        PyErr_SetString(PyExc_IndexError, error.what());
    } catch (std::ios_base::failure const& error) {
        PyErr_SetString(PyExc_OSError, error.what());
    } catch (std::overflow_error const& error) {
        PyErr_SetString(PyExc_OverflowError, error.what());
    } catch (std::range_error const& error) {
        PyErr_SetString(PyExc_ArithmeticError, error.what());
    } catch (std::underflow_error const& error) {
        PyErr_SetString(PyExc_ArithmeticError, error.what());
    } catch (std::exception const& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    } catch (...) {
        PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
    }
}

}  // namespace rapidsmpf::python
