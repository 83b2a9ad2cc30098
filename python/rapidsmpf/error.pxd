# The handler for `except +` of every C++ function that may throw (see errors.hpp).
cdef extern from "<rapidsmpf_python/errors.hpp>" namespace "rapidsmpf::python" nogil:
    void translate_exception()
