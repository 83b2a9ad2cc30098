// Python callables as the functions that C++ asks for.
//
// They run with the GIL, in whatever thread C++ calls them; what they raise leaves them as PythonError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <Python.h>
#include <rapidsmpf_python/errors.hpp>
#include <rapidsmpf_python/gil.hpp>

namespace rapidsmpf::python {

namespace detail {

// A new reference; throws PythonError when it is null.
inline PyObject* checked(PyObject* object) {
    if (object == nullptr) {
        throw PythonError::fetch();
    }
    return object;
}

// callable(*arguments) as a whole number; takes over the references.
inline std::int64_t call_for_integer(PyObject* callable, PyObject* arguments) {
    checked(arguments);
    PyObject* const result = PyObject_CallObject(callable, arguments);
    Py_DECREF(arguments);
    checked(result);
    auto const value = PyLong_AsLongLong(result);
    Py_DECREF(result);
    if (value == -1 && PyErr_Occurred() != nullptr) {
        throw PythonError::fetch();
    }
    return value;
}

}  // namespace detail

// callable() -> int. While the interpreter ends, `otherwise`. The caller holds the GIL.
[[nodiscard]] inline std::function<std::int64_t()> integer_function(
    PyObject* callable, std::int64_t otherwise) {
    return [callable = share(callable), otherwise]() -> std::int64_t {
        WithGil const gil;
        if (!gil) {
            return otherwise;
        }
        return detail::call_for_integer(callable.get(), PyTuple_New(0));
    };
}

// callable(amount) -> int, the bytes that it freed. The caller holds the GIL.
[[nodiscard]] inline std::function<std::size_t(std::size_t)> spill_function(PyObject* callable) {
    return [callable = share(callable)](std::size_t amount) -> std::size_t {
        WithGil const gil;
        if (!gil) {
            return 0;
        }
        auto const freed = detail::call_for_integer(
            callable.get(), Py_BuildValue("(K)", static_cast<unsigned long long>(amount)));
        return freed < 0 ? 0 : static_cast<std::size_t>(freed);
    };
}

}  // namespace rapidsmpf::python
