"""Batches that Python makes, as an Arrow stream: for producers whose errors must keep their types.

    source = BatchStream(schema, batches, export)
    try:
        drain_into_shuffle(source, routing, shuffler, context)
    except Exception:
        if source.error is not None:
            raise source.error
        raise
"""

from rapidsmpf.error cimport translate_exception
from rapidsmpf.table cimport cpp_ArrowStream


cdef extern from "<rapidsmpf_python/batches.hpp>" namespace "rapidsmpf::python":
    cpp_ArrowStream called_stream(object, object) except +translate_exception

cdef extern from "<rapidsmpf_python/arrow.hpp>" namespace "rapidsmpf::python":
    object stream_capsule(cpp_ArrowStream) except +translate_exception

__all__ = ["BatchStream"]


class BatchStream:
    """An Arrow stream of what an iterator yields, to be read once.

    The iterator runs in the thread that pulls the stream, with the GIL. When it or the export raises, the reader gets
    the text, and :attr:`error` holds the exception.

    Parameters
    ----------
    schema
        The type of the rows: an object with ``__arrow_c_schema__``, a struct.
    batches
        Yields batches.
    export
        ``export(batch, array, schema)`` exports a batch of exactly this type into an ``ArrowArray`` and an ``ArrowSchema``
        at these addresses, or returns a capsule ``arrow_array_stream`` with the batch. The capsule is read by C++, where
        a panic ends the process.

    Attributes
    ----------
    error
        What was raised, or None.
    """

    def __init__(self, schema, batches, export):
        self._schema = schema
        self._batches = iter(batches)
        self._export = export
        self._taken = False
        self.error = None

    def __arrow_c_schema__(self):
        """Return the schema as a capsule ``arrow_schema`` of a struct."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema=None):
        """Return the stream as a capsule ``arrow_array_stream``; RuntimeError the second time.

        Parameters
        ----------
        requested_schema
            Ignored: the rows have the types that they have.
        """
        if self._taken:
            raise RuntimeError("this stream was read already: collect it to read it twice")
        self._taken = True
        return stream_capsule(called_stream(self.__arrow_c_schema__, self._next))

    def _next(self, array, schema):
        if self.error is not None:
            raise self.error
        try:
            batch = next(self._batches, None)
            return None if batch is None else self._export(batch, array, schema)
        except BaseException as error:
            # Rust's panics are no Exception either.
            self.error = error
            self._batches = iter(())
            raise
