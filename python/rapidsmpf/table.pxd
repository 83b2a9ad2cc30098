from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.buffer_resource cimport BufferResource


cdef extern from "<rapidsmpf_python/tables.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_ArrowStream "rapidsmpf::ArrowStreamOwner":
        void reset()

    cdef cppclass cpp_ArrowSchema "rapidsmpf::ArrowSchemaOwner":
        pass

    cdef cppclass cpp_ArrowArray "rapidsmpf::ArrowArrayOwner":
        pass

    cdef cppclass cpp_Schema "rapidsmpf::Schema":
        size_t num_columns()

    cdef cppclass cpp_Table "rapidsmpf::Table":
        shared_ptr[const cpp_Schema] schema()
        int64_t num_rows()
        size_t num_columns()
        size_t byte_size() except +translate_exception


cdef class Table:
    cdef shared_ptr[const cpp_Table] _handle

    @staticmethod
    cdef Table from_handle(shared_ptr[const cpp_Table] handle)

    # The rows, copied if they are on a GPU.
    cdef shared_ptr[const cpp_Table] _on_host(self) except *


# The table that an object is or gives; on a GPU it is ordered on the stream.
cdef shared_ptr[const cpp_Table] read_table(object source, BufferResource br, object on_stream) except *
cdef cpp_ArrowStream open_table_stream(object source) except *
cdef object stream_to_capsule(cpp_ArrowStream stream)
cdef object schema_to_capsule(shared_ptr[const cpp_Schema] schema)
