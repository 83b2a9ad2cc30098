// Record batches that a Python callable makes one by one, as an Arrow stream that C++ pulls.
//
// The producer of a stream that crosses the C interface can only hand a text over when it fails, and must not throw or
// panic. Here Python makes and exports the batches: what its code raises, a panic of a Rust library among it, is caught
// where it happens, and the exception itself stays with the Python object.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <Python.h>
#include <rapidsmpf_python/arrow.hpp>
#include <rapidsmpf_python/errors.hpp>
#include <rapidsmpf_python/gil.hpp>

#include <rapidsmpf/table/arrow_c.hpp>

namespace rapidsmpf::python {

namespace detail {

struct CalledStream {
    SharedObject schema;  // () -> capsule `arrow_schema`
    // (address of an ArrowArray, address of an ArrowSchema) -> whether it has filled them, or a capsule
    // `arrow_array_stream` with the batch
    SharedObject next;
    std::string error;

    static CalledStream& of(ArrowArrayStream* self) {
        return *static_cast<CalledStream*>(self->private_data);
    }
    // Runs `step` with the GIL; what it throws becomes the stream's error.
    template <typename Step>
    int guarded(Step const& step) noexcept {
        try {
            WithGil const gil;
            if (!gil) {
                error = "the Python interpreter is ending";
                return ECANCELED;
            }
            try {
                return step();
            } catch (PythonError const& exception) {
                error = exception.message();
            } catch (std::exception const& exception) {
                error = exception.what();
            }
            return EIO;
        } catch (...) {
            return ENOMEM;  // no memory for the text
        }
    }
    // callable(*arguments), a new reference; takes over the reference to the arguments, which may be null.
    static SharedObject call(SharedObject const& callable, PyObject* arguments) {
        PyObject* const result = PyObject_CallObject(callable.get(), arguments);
        Py_XDECREF(arguments);
        if (result == nullptr) {
            throw PythonError::fetch();
        }
        return adopt(result);
    }
    static int get_schema(ArrowArrayStream* self, ArrowSchema* out) {
        return of(self).guarded([&] {
            open_schema(call(of(self).schema, nullptr).get()).move_to(out);
            return 0;
        });
    }
    static int get_next(ArrowArrayStream* self, ArrowArray* out) {
        *out = ArrowArray{};
        return of(self).guarded([&] {
            ArrowArrayOwner array;
            ArrowSchemaOwner schema;  // the stream's own says the same
            auto const address = [](auto* target) {
                return static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(target));
            };
            auto const found =
                call(of(self).next, Py_BuildValue("(KK)", address(array.out()), address(schema.out())));
            if (PyObject_TypeCheck(found.get(), &PyCapsule_Type) != 0) {
                ArrowStreamOwner batch = open_stream(found.get());
                if (int const code = batch->get_next(batch.get(), array.out()); code != 0) {
                    auto const* const text = batch->get_last_error(batch.get());
                    of(self).error = text == nullptr ? "a batch could not be exported" : text;
                    return code;
                }
            }
            if (array) {
                array.move_to(out);
            }
            return 0;
        });
    }
    static char const* get_last_error(ArrowArrayStream* self) {
        return of(self).error.empty() ? nullptr : of(self).error.c_str();
    }
    static void release(ArrowArrayStream* self) {
        delete &of(self);  // NOLINT: the ABI has no owner
        self->private_data = nullptr;
        self->release = nullptr;
    }
};

}  // namespace detail

// Both callables are called with the GIL, in whatever thread pulls the stream. The caller holds the GIL.
[[nodiscard]] inline ArrowStreamOwner called_stream(PyObject* schema, PyObject* next) {
    auto state = std::make_unique<detail::CalledStream>();
    state->schema = share(schema);
    state->next = share(next);
    ArrowStreamOwner result;
    auto* const out = result.out();
    out->get_schema = &detail::CalledStream::get_schema;
    out->get_next = &detail::CalledStream::get_next;
    out->get_last_error = &detail::CalledStream::get_last_error;
    out->release = &detail::CalledStream::release;
    out->private_data = state.release();
    return result;
}

}  // namespace rapidsmpf::python
