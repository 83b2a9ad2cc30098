"""What the footers of Parquet files say of their row groups, and of a column in each."""

from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as cpp_bool
from libcpp.string cimport string
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf_python/parquet.hpp>" namespace "rapidsmpf::parquet" nogil:
    cdef cppclass cpp_RowGroupSize "rapidsmpf::parquet::RowGroupSize":
        int64_t rows
        int64_t bytes

    cdef cppclass cpp_ChunkFacts "rapidsmpf::parquet::ChunkFacts":
        int64_t rows
        int64_t nulls
        cpp_bool has_bounds
        string least
        string most

    cdef cppclass cpp_ColumnFacts "rapidsmpf::parquet::ColumnFacts":
        int32_t scale
        cpp_bool is_required
        vector[cpp_ChunkFacts] chunks

    int cpp_type_number "rapidsmpf::python::type_number"(const cpp_ColumnFacts&)
    vector[cpp_RowGroupSize] cpp_row_group_sizes "rapidsmpf::python::row_group_sizes"(
        string
    ) except +translate_exception
    vector[cpp_ColumnFacts] cpp_column_facts "rapidsmpf::python::column_facts"(
        string, string
    ) except +translate_exception

__all__ = ["column_facts", "row_group_sizes"]

_VALUE_TYPES = (
    "unknown",
    "boolean",
    "signed_integer",
    "unsigned_integer",
    "day",
    "clock",
    "decimal",
    "decimal_bytes",
    "float32",
    "float64",
    "text",
    "bytes",
)


def row_group_sizes(bytes footer not None):
    """Return the rows and the uncompressed bytes of each row group.

    Parameters
    ----------
    footer
        What lies between the last page of a file and the length at its end.

    Raises
    ------
    RuntimeError
        If it is no footer.
    """
    cdef string given = footer
    cdef vector[cpp_RowGroupSize] sizes
    with nogil:
        sizes = cpp_row_group_sizes(given)
    return [(size.rows, size.bytes) for size in sizes]


def column_facts(bytes footer not None, str name not None):
    """Return what a footer says of a column that is not nested, None if there is none of that name.

    Returns
    -------
    tuple or None
        What the bytes of bounds mean, ``"signed_integer"`` say; the scale of decimals; whether it is required, that is, has
        no nulls; and for each row group its rows, its nulls and the bytes of its least and greatest value, each None if not
        known.

    Raises
    ------
    RuntimeError
        If it is no footer, or a signed one, which files with encrypted columns have.
    """
    cdef string given = footer
    cdef string wanted = name.encode("utf-8", "surrogatepass")
    cdef vector[cpp_ColumnFacts] found
    with nogil:
        found = cpp_column_facts(given, wanted)
    if found.empty():
        return None
    chunks = [
        (
            chunk.rows,
            chunk.nulls if chunk.nulls >= 0 else None,
            <bytes> chunk.least if chunk.has_bounds else None,
            <bytes> chunk.most if chunk.has_bounds else None,
        )
        for chunk in found[0].chunks
    ]
    return _VALUE_TYPES[cpp_type_number(found[0])], found[0].scale, found[0].is_required, chunks
