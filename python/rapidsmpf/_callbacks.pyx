"""Calls of Python functions by threads of the library."""

cdef extern from "<rapidsmpf/core/detail/callback_gate.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_CallbackGate "rapidsmpf::CallbackGate":
        @staticmethod
        cpp_CallbackGate& instance() noexcept
        void close() noexcept

__all__ = ["end_callbacks"]


def end_callbacks():
    """Wait for running calls to end and refuse later ones; for the end of the interpreter."""
    with nogil:
        cpp_CallbackGate.instance().close()
