from libc.stdint cimport int64_t

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/memory/scoped_memory_record.hpp>" namespace "rapidsmpf" nogil:
    cdef enum class cpp_AllocType "rapidsmpf::AllocType"(unsigned char):
        PRIMARY
        FALLBACK
        ALL

    cdef cppclass cpp_ScopedMemoryRecord "rapidsmpf::ScopedMemoryRecord":
        cpp_ScopedMemoryRecord()
        int64_t num_total_allocs(cpp_AllocType)
        int64_t num_current_allocs(cpp_AllocType)
        int64_t current(cpp_AllocType)
        int64_t total(cpp_AllocType)
        int64_t peak(cpp_AllocType)
        void record_allocation(cpp_AllocType, int64_t) except +translate_exception
        void record_deallocation(cpp_AllocType, int64_t) except +translate_exception
        cpp_ScopedMemoryRecord& add_subscope(const cpp_ScopedMemoryRecord&)
        cpp_ScopedMemoryRecord& add_scope(const cpp_ScopedMemoryRecord&)


cdef class ScopedMemoryRecord:
    cdef cpp_ScopedMemoryRecord _record

    @staticmethod
    cdef ScopedMemoryRecord from_record(cpp_ScopedMemoryRecord record)
