// What an all-reduce of Python values does with two of them: the named reductions, and Python functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <Python.h>
#include <rapidsmpf_python/callbacks.hpp>
#include <rapidsmpf_python/errors.hpp>
#include <rapidsmpf_python/gil.hpp>

#include <rapidsmpf/coll/allreduce.hpp>

namespace rapidsmpf::python {

namespace detail {

// Integers wrap around, as in NumPy; a NaN on either side is the minimum and the maximum.
template <typename T>
[[nodiscard]] coll::Reduction named_reduction_of(std::string const& name) {
    using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
    if (name == "sum") {
        return coll::elementwise<T>(
            [](T a, T b) { return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b)); });
    }
    if (name == "prod") {
        return coll::elementwise<T>(
            [](T a, T b) { return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b)); });
    }
    if (name == "min") {
        return coll::elementwise<T>([](T a, T b) { return a != a || a < b ? a : b; });
    }
    if (name == "max") {
        return coll::elementwise<T>([](T a, T b) { return a != a || a > b ? a : b; });
    }
    if constexpr (std::is_integral_v<T>) {
        if (name == "or") {
            return coll::elementwise<T>([](T a, T b) { return static_cast<T>(a | b); });
        }
    }
    throw std::invalid_argument{
        "no reduction of these elements is called \"" + name
        + "\": sum, prod, min and max are, and or of integers"};
}

}  // namespace detail

// "sum", "prod", "min", "max" or, of integers, "or" of elements with a format of Python's struct module, in native size and order. Throws
// std::invalid_argument.
[[nodiscard]] inline coll::Reduction named_reduction(std::string const& name, std::string const& format) {
    switch (format.size() == 1 ? format.front() : '\0') {
        case 'b':
            return detail::named_reduction_of<signed char>(name);
        case 'B':
            return detail::named_reduction_of<unsigned char>(name);
        case 'h':
            return detail::named_reduction_of<short>(name);
        case 'H':
            return detail::named_reduction_of<unsigned short>(name);
        case 'i':
            return detail::named_reduction_of<int>(name);
        case 'I':
            return detail::named_reduction_of<unsigned int>(name);
        case 'l':
            return detail::named_reduction_of<long>(name);
        case 'L':
            return detail::named_reduction_of<unsigned long>(name);
        case 'q':
            return detail::named_reduction_of<long long>(name);
        case 'Q':
            return detail::named_reduction_of<unsigned long long>(name);
        case 'f':
            return detail::named_reduction_of<float>(name);
        case 'd':
            return detail::named_reduction_of<double>(name);
        default:
            throw std::invalid_argument{
                "elements of format \"" + format
                + "\" have no named reductions (integers and floats in native order have): convert them, or give "
                  "a function"};
    }
}

// callable(sum: bytearray, next: bytes), which changes `sum`; in the thread that waits. The caller holds the GIL.
[[nodiscard]] inline coll::Reduction callable_reduction(PyObject* callable) {
    return coll::Reduction{
        [callable = share(callable)](std::span<std::byte> sum, std::span<std::byte const> next) {
            WithGil const gil;
            RAPIDSMPF_EXPECTS(
                static_cast<bool>(gil), "the reduction is a Python function, and the interpreter has ended",
                std::runtime_error);
            auto const chars = [](std::byte const* bytes) { return reinterpret_cast<char const*>(bytes); };
            PyObject* const accumulated = detail::checked(
                PyByteArray_FromStringAndSize(chars(sum.data()), static_cast<Py_ssize_t>(sum.size())));
            auto const keep = share(accumulated);
            // "N" takes the reference over, also when it fails.
            PyObject* const arguments = detail::checked(Py_BuildValue(
                "(Ny#)", accumulated, chars(next.data()), static_cast<Py_ssize_t>(next.size())));
            PyObject* const result = PyObject_CallObject(callable.get(), arguments);
            Py_DECREF(arguments);
            Py_DECREF(detail::checked(result));
            RAPIDSMPF_EXPECTS(
                PyByteArray_Size(accumulated) == static_cast<Py_ssize_t>(sum.size()),
                "the reduction changed the size of its first argument", std::invalid_argument);
            if (!sum.empty()) {
                std::memcpy(sum.data(), PyByteArray_AsString(accumulated), sum.size());
            }
        },
        0, coll::RunsOn::waiting_thread};
}

}  // namespace rapidsmpf::python
