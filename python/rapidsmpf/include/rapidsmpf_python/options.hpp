// Reading an option with a Python factory. The GIL is not held on entry: another thread may hold the options' lock
// while its own factory waits for the GIL.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <Python.h>
#include <rapidsmpf_python/callbacks.hpp>
#include <rapidsmpf_python/gil.hpp>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::python {

// An option was read before with another type.
class OptionTypeError : public std::invalid_argument {
  public:
    using std::invalid_argument::invalid_argument;
};

// As translate_exception(), and of an OptionTypeError the Python class of that name.
inline void translate_option_error() noexcept {
    try {
        throw;
    } catch (OptionTypeError const& error) {
        set_error("OptionTypeError", error.what());
    } catch (...) {
        translate_exception();
    }
}

namespace detail {

// factory(text); bytes that are not UTF-8 become surrogates, as everywhere in Python's environment.
inline PyObject* call_with_text(PyObject* factory, std::string const& text) {
    PyObject* const argument =
        checked(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
    PyObject* const result = PyObject_CallFunctionObjArgs(factory, argument, nullptr);
    Py_DECREF(argument);
    return result;
}

template <typename T>
struct FromPython;

template <>
struct FromPython<bool> {
    static bool convert(PyObject* object) {
        int const value = PyObject_IsTrue(object);
        if (value < 0) {
            throw PythonError::fetch();
        }
        return value != 0;
    }
};
template <>
struct FromPython<std::int64_t> {
    static std::int64_t convert(PyObject* object) {
        auto const value = PyLong_AsLongLong(object);
        if (value == -1 && PyErr_Occurred() != nullptr) {
            throw PythonError::fetch();
        }
        return value;
    }
};
template <>
struct FromPython<double> {
    static double convert(PyObject* object) {
        auto const value = PyFloat_AsDouble(object);
        if (value == -1.0 && PyErr_Occurred() != nullptr) {
            throw PythonError::fetch();
        }
        return value;
    }
};
template <>
struct FromPython<std::string> {
    static std::string convert(PyObject* object) {
        PyObject* const bytes = checked(PyUnicode_AsEncodedString(object, "utf-8", "surrogateescape"));
        std::string text{PyBytes_AsString(bytes), static_cast<std::size_t>(PyBytes_Size(bytes))};
        Py_DECREF(bytes);
        return text;
    }
};
template <>
struct FromPython<SharedObject> {
    static SharedObject convert(PyObject* object) { return share(object); }
};

}  // namespace detail

// Options::get<T>() with factory(text) called under the GIL. Throws PythonError when it raised, OptionTypeError when
// the option was read with another type.
template <typename T>
T get_option(config::Options& options, std::string const& key, PyObject* factory) {
    try {
        return options.get<T>(key, [factory](std::string const& text) -> T {
            WithGil const gil;
            RAPIDSMPF_EXPECTS(
                static_cast<bool>(gil), "the interpreter has ended: an option cannot be read any more",
                std::runtime_error);
            PyObject* const result = detail::checked(detail::call_with_text(factory, text));
            try {
                T value = detail::FromPython<T>::convert(result);
                Py_DECREF(result);
                return value;
            } catch (...) {
                Py_DECREF(result);
                throw;
            }
        });
    } catch (std::invalid_argument const& error) {
        throw OptionTypeError{error.what()};
    }
}

// A new reference to the object of an option of any Python type. The GIL is not held on entry.
inline SharedObject get_option_object(config::Options& options, std::string const& key, PyObject* factory) {
    return get_option<SharedObject>(options, key, factory);
}

}  // namespace rapidsmpf::python
