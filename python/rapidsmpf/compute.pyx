"""Programs for a GPU, and what runs them: the operators over libcudf (``librapidsmpf_compute``).

Import it after ``libcudf.load_library()``, in a process whose compute device is a GPU.
:mod:`cudf_polars.execute.gpu` writes the programs; ``rapidsmpf/compute/detail/program.hpp`` says what they consist of.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.string cimport string
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.buffer_resource cimport BufferResource, cpp_BufferResource
from rapidsmpf.table cimport cpp_ArrowStream, open_table_stream, stream_to_capsule

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from "<optional>" namespace "std" nogil:
    cdef cppclass optional[T]:
        optional& operator=(T)

cdef extern from "<rapidsmpf_python/compute.hpp>" namespace "rapidsmpf::compute" nogil:
    cdef cppclass cpp_RuntimeSettings "rapidsmpf::compute::RuntimeSettings":
        size_t threads
        size_t chunk_rows
        size_t output_rows
        optional[size_t] pass_rows
        optional[size_t] pass_bytes
        optional[size_t] edge_rows
        optional[size_t] passes_in_flight
        optional[size_t] read_threads
        optional[size_t] slab_bytes
        optional[size_t] registered_limit
        optional[cpp_bool] own_decoder
        cpp_bool string_codes
        size_t coded_rows
        optional[cpp_bool] map_files
        cpp_bool read_while_registering
        cpp_bool scan_ahead
        size_t threads_ahead
        cpp_bool keep_compressed
        cpp_bool keep_decoded

    cdef cppclass cpp_ColumnSummary "rapidsmpf::compute::ColumnSummary":
        string name
        cpp_bool is_required
        cpp_bool has_range
        int64_t least_high
        uint64_t least_low
        int64_t most_high
        uint64_t most_low

    cdef cppclass cpp_FooterSummary "rapidsmpf::compute::FooterSummary":
        int64_t rows
        vector[cpp_ColumnSummary] columns

    cpp_FooterSummary cpp_summarize_footer "rapidsmpf::compute::summarize_footer"(
        string
    ) except +translate_exception

    cdef cppclass cpp_PipelineStatistics "rapidsmpf::compute::PipelineStatistics":
        double seconds
        int64_t rows_in
        int64_t rows_sunk
        int64_t rows_out
        int64_t bytes_out
        int64_t chunks
        double source_seconds
        double step_seconds
        double sink_seconds
        string source
        string sink

    cdef cppclass cpp_Result "rapidsmpf::compute::Result":
        int64_t num_rows()
        int64_t byte_size()
        void close()

    cdef cppclass cpp_Runtime "rapidsmpf::compute::Runtime":
        cpp_Runtime(shared_ptr[cpp_BufferResource], cpp_RuntimeSettings) except +translate_exception
        void cancel()
        size_t registered_bytes() except +translate_exception
        size_t release_unused() except +translate_exception
        size_t cached_bytes() except +translate_exception

cdef extern from "<rapidsmpf_python/compute.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_ProgramBuilder "rapidsmpf::python::ProgramBuilder":
        int32_t column(int32_t, int32_t, int32_t) except +translate_exception
        int32_t constant(int32_t, int32_t, int32_t) except +translate_exception
        int32_t call(string, vector[int32_t], int32_t, int32_t) except +translate_exception
        void option_integer "option"(int64_t) except +translate_exception
        void option_float "option"(double) except +translate_exception
        void option_text "option"(string) except +translate_exception
        void add_constant(cpp_ArrowStream) except +translate_exception
        void scan_file(string, vector[int32_t]) except +translate_exception
        void scan_column(string, int32_t, int32_t) except +translate_exception
        void from_scan() except +translate_exception
        void from_input(int32_t) except +translate_exception
        void from_pipeline(int32_t) except +translate_exception
        void from_join(
            string, int32_t, int32_t, vector[int32_t], vector[int32_t], cpp_bool
        ) except +translate_exception
        void filter(int32_t) except +translate_exception
        void project(vector[int32_t]) except +translate_exception
        void probe(int32_t, string, vector[int32_t], vector[int32_t]) except +translate_exception
        void aggregate(string, int32_t, int32_t, int32_t) except +translate_exception
        void sort_key(int32_t, cpp_bool, cpp_bool) except +translate_exception
        void range_from "range"(int64_t) except +translate_exception
        void range_of "range"(int64_t, int64_t) except +translate_exception
        void build(vector[int32_t], cpp_bool) except +translate_exception
        void group(vector[int32_t], cpp_bool) except +translate_exception
        void sort(cpp_bool) except +translate_exception
        void distinct(vector[int32_t], string, cpp_bool) except +translate_exception
        void hold(cpp_bool) except +translate_exception
        void result_type(int32_t, int32_t) except +translate_exception
        void end_pipeline() except +translate_exception

    cdef cppclass cpp_ProgramInputs "rapidsmpf::python::ProgramInputs":
        void add(cpp_ArrowStream) except +translate_exception

    shared_ptr[cpp_Result] run_program(
        cpp_Runtime&, cpp_ProgramBuilder&, cpp_ProgramInputs&
    ) except +translate_exception
    cpp_ArrowStream result_stream(shared_ptr[cpp_Result]) except +translate_exception
    size_t number_of_pipelines(const cpp_Result&)
    cpp_PipelineStatistics pipeline_statistics(const cpp_Result&, size_t) except +translate_exception

__all__ = ["ProgramBuilder", "Result", "Runtime", "summarize_footer"]


def summarize_footer(str path not None):
    """Return the number of rows of a Parquet file, and what its footer says of the columns that are not nested.

    Of each column it says whether it is required (has no nulls), and the minimum and maximum of its numbers, ``None`` if a
    row group has no statistics of it. Decimals are unscaled integers. Unsigned integers, dates and times are read as signed
    integers: their ranges mean nothing. A column without values has 0 and 0.

    Raises
    ------
    RuntimeError
        If it is not a Parquet file.
    OSError
        If the file cannot be read.
    """
    cdef cpp_FooterSummary summary
    cdef string encoded = path.encode()
    with nogil:
        summary = cpp_summarize_footer(encoded)
    columns = {}
    for c in summary.columns:
        least = (<object> c.least_high << 64) | c.least_low
        most = (<object> c.most_high << 64) | c.most_low
        columns[c.name.decode()] = (c.is_required, (least, most) if c.has_range else None)
    return summary.rows, columns


cdef class ProgramBuilder:
    """Takes a program part by part; what is added belongs to the pipeline that :meth:`end_pipeline` closes next.

    The methods have the names of the parts in :mod:`cudf_polars.execute.gpu.program`; those of expressions return the
    number by which calls, steps and sinks name them. Types are two numbers: of ``cudf::type_id``, and the scale.

    Raises
    ------
    ValueError
        From :meth:`Runtime.run`, if the program is not sound; it says where.
    """

    cdef cpp_ProgramBuilder _builder

    cdef int _options(self, options) except -1:
        for option in options:
            if isinstance(option, str):
                self._builder.option_text(<string> (<str> option).encode())
            elif isinstance(option, float):
                self._builder.option_float(<double> option)
            else:
                self._builder.option_integer(<int64_t> option)
        return 0

    def column(self, int32_t index, int32_t type_id, int32_t scale):
        """Add a column of the chunk and return its number."""
        return self._builder.column(index, type_id, scale)

    def constant(self, int32_t index, int32_t type_id, int32_t scale):
        """Add a constant of the program and return its number."""
        return self._builder.constant(index, type_id, scale)

    def call(self, str op not None, list args not None, int32_t type_id, int32_t scale, options=()):
        """Add a call of a primitive and return its number."""
        self._options(options)
        return self._builder.call(op.encode(), args, type_id, scale)

    def add_constant(self, value):
        """Add a value that :meth:`constant` names by its place: a frame of one column."""
        cdef cpp_ArrowStream stream = open_table_stream(value)
        self._builder.add_constant(move(stream))

    def scan_file(self, str path not None, list row_groups not None):
        """Add a file to the next :meth:`from_scan`; no row groups: all."""
        self._builder.scan_file(path.encode(), row_groups)

    def scan_column(self, str name not None, int32_t type_id, int32_t scale):
        """Add a column to the next :meth:`from_scan`."""
        self._builder.scan_column(name.encode(), type_id, scale)

    def from_scan(self):
        """Read Parquet files."""
        self._builder.from_scan()

    def from_input(self, int32_t input):
        """Read an input."""
        self._builder.from_input(input)

    def from_pipeline(self, int32_t pipeline):
        """Read what an earlier pipeline gave."""
        self._builder.from_pipeline(pipeline)

    def from_join(
        self, str kind not None, int32_t left, int32_t right, list left_keys not None, list right_keys not None,
        cpp_bool nulls_equal,
    ):
        """Read the join of what two earlier pipelines gave."""
        self._builder.from_join(kind.encode(), left, right, left_keys, right_keys, nulls_equal)

    def filter(self, int32_t mask):
        """Keep rows where an expression is true."""
        self._builder.filter(mask)

    def project(self, list columns not None):
        """Put expressions in the place of the columns."""
        self._builder.project(columns)

    def probe(self, int32_t build, str kind not None, list keys not None, list payload not None):
        """Join with what an earlier pipeline built."""
        self._builder.probe(build, kind.encode(), keys, payload)

    def aggregate(self, str kind not None, int32_t column, int32_t type_id, int32_t scale, options=()):
        """Add an aggregate to the next :meth:`group`."""
        self._options(options)
        self._builder.aggregate(kind.encode(), column, type_id, scale)

    def sort_key(self, int32_t column, cpp_bool descending, cpp_bool nulls_first):
        """Add a key to the next :meth:`sort`."""
        self._builder.sort_key(column, descending, nulls_first)

    def range(self, int64_t offset, length=None):
        """Keep a range of the rows of the next :meth:`sort` or :meth:`hold`."""
        if length is None:
            self._builder.range_from(offset)
        else:
            self._builder.range_of(offset, <int64_t> length)

    def build(self, list keys not None, cpp_bool nulls_equal):
        """End in a hash table."""
        self._builder.build(keys, nulls_equal)

    def group(self, list keys not None, cpp_bool in_order):
        """End in groups."""
        self._builder.group(keys, in_order)

    def sort(self, cpp_bool stable):
        """End in sorted rows."""
        self._builder.sort(stable)

    def distinct(self, list keys not None, str keep not None, cpp_bool in_order):
        """End in one row for each value of the keys."""
        self._builder.distinct(keys, keep.encode(), in_order)

    def hold(self, cpp_bool in_order):
        """End in all rows."""
        self._builder.hold(in_order)

    def result_type(self, int32_t type_id, int32_t scale):
        """Add the type of a column of the pipeline's result."""
        self._builder.result_type(type_id, scale)

    def end_pipeline(self):
        """Close the pipeline; ValueError if it has no source or no sink."""
        self._builder.end_pipeline()


cdef class Result:
    """Rows that a program gave, on the device until they are read, once, through the Arrow PyCapsule interface."""

    cdef shared_ptr[cpp_Result] _handle
    cdef cpp_bool _taken

    def __init__(self):
        raise TypeError("this comes from Runtime.run")

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @property
    def rows(self):
        """Number of rows."""
        return self._handle.get().num_rows()

    @property
    def nbytes(self):
        """Bytes on the device."""
        return self._handle.get().byte_size()

    def pipelines(self):
        """Return what each pipeline did: a dict of seconds, rows, bytes and chunks for each."""
        cdef cpp_PipelineStatistics one
        found = []
        for i in range(number_of_pipelines(self._handle.get()[0])):
            one = pipeline_statistics(self._handle.get()[0], i)
            found.append(
                {
                    "source": one.source.decode(),
                    "sink": one.sink.decode(),
                    "seconds": one.seconds,
                    "rows_in": one.rows_in,
                    "rows_sunk": one.rows_sunk,
                    "rows_out": one.rows_out,
                    "bytes_out": one.bytes_out,
                    "chunks": one.chunks,
                    "source_seconds": one.source_seconds,
                    "step_seconds": one.step_seconds,
                    "sink_seconds": one.sink_seconds,
                }
            )
        return found

    def __arrow_c_stream__(self, requested_schema=None):
        """Return the rows as a capsule ``arrow_array_stream``; RuntimeError the second time.

        Parameters
        ----------
        requested_schema
            Ignored: the rows have the types that they have; the columns are called "0", "1" and so on.
        """
        if self._taken:
            raise RuntimeError("these rows were read already")
        self._taken = True
        return stream_to_capsule(result_stream(self._handle))


cdef class Runtime:
    """Runs programs on the GPU of this process.

    While there is one, RMM's current device resource draws on ``br``, so that libcudf's memory counts there.

    Parameters
    ----------
    br
        The memory.
    threads
        Threads of each run, each with a stream of its own.
    pass_rows, pass_bytes
        Most rows, and bytes decoded, that a thread reads of a file at a time.
    edge_rows
        Rows of a scan's first read and of its last, which are smaller than the others; 0: like the others.
    passes_in_flight
        Passes that are copied to the device ahead of the threads.
    read_threads
        Threads that read files into page-locked host memory.
    slab_bytes
        Bytes that such a thread reads at a time; at least 4096.
    registered_limit
        Most bytes of mapped files that stay registered with CUDA.
    own_decoder
        Whether Parquet columns are decompressed and decoded by our own kernels as far as these go, or by libcudf alone.
    string_codes
        Whether columns of few distinct strings are filtered, grouped and joined by integers that stand for them.
    coded_rows
        Rows that are read or grouped at a time, from which on such integers are used; 0: always.
    map_files
        Whether files are mapped at all, or read into page-locked memory.
    read_while_registering
        Whether what is not registered yet is read into page-locked memory meanwhile.
    scan_ahead
        Whether a scan starts to read as soon as the one before has been read, before its pipeline runs.
    threads_ahead
        Threads that decode the first rows of such a scan.
    keep_compressed, keep_decoded
        Whether what scans have read stays in device memory that nothing else needs: column chunks, or decoded columns.

    Raises
    ------
    RuntimeError
        If the compute device of this process is no GPU.
    """

    __signature__ = STUB_SIGNATURE

    cdef shared_ptr[cpp_Runtime] _handle
    cdef BufferResource _br

    def __init__(
        self, BufferResource br not None, *, threads=None, chunk_rows=None, output_rows=None, pass_rows=None,
        pass_bytes=None, edge_rows=None, passes_in_flight=None, read_threads=None, slab_bytes=None, registered_limit=None,
        own_decoder=None, string_codes=None, coded_rows=None, map_files=None, read_while_registering=None, scan_ahead=None, threads_ahead=None,
        keep_compressed=False, keep_decoded=False,
    ):
        cdef cpp_RuntimeSettings settings
        if threads is not None:
            settings.threads = threads
        if chunk_rows is not None:
            settings.chunk_rows = chunk_rows
        if output_rows is not None:
            settings.output_rows = output_rows
        if pass_rows is not None:
            settings.pass_rows = <size_t> pass_rows
        if pass_bytes is not None:
            settings.pass_bytes = <size_t> pass_bytes
        if edge_rows is not None:
            settings.edge_rows = <size_t> edge_rows
        if passes_in_flight is not None:
            settings.passes_in_flight = <size_t> passes_in_flight
        if read_threads is not None:
            settings.read_threads = <size_t> read_threads
        if slab_bytes is not None:
            settings.slab_bytes = <size_t> slab_bytes
        if registered_limit is not None:
            settings.registered_limit = <size_t> registered_limit
        if own_decoder is not None:
            settings.own_decoder = <cpp_bool> own_decoder
        if string_codes is not None:
            settings.string_codes = string_codes
        if coded_rows is not None:
            settings.coded_rows = coded_rows
        if map_files is not None:
            settings.map_files = <cpp_bool> map_files
        if read_while_registering is not None:
            settings.read_while_registering = read_while_registering
        if scan_ahead is not None:
            settings.scan_ahead = scan_ahead
        if threads_ahead is not None:
            settings.threads_ahead = threads_ahead
        settings.keep_compressed = keep_compressed
        settings.keep_decoded = keep_decoded
        self._br = br
        with nogil:
            self._handle = make_shared[cpp_Runtime](br._handle, settings)

    def run(self, ProgramBuilder program not None, inputs=()):
        """Run a program, which is used up, and return its rows.

        Parameters
        ----------
        inputs
            What the program's inputs are, by their numbers: anything with ``__arrow_c_stream__``.

        Raises
        ------
        ValueError
            If the program is not sound.
        MemoryError
            If a step needs more memory than there is; it names the pipeline.
        """
        cdef cpp_ProgramInputs streams
        cdef cpp_ArrowStream stream
        for value in inputs:
            stream = open_table_stream(value)
            streams.add(move(stream))
        cdef Result result = Result.__new__(Result)
        result._taken = False
        with nogil:
            result._handle = run_program(self._handle.get()[0], program._builder, streams)
        return result

    def cancel(self):
        """End all runs, each within a chunk."""
        self._handle.get().cancel()

    def registered_bytes(self):
        """Return how many bytes of mapped files are registered with CUDA now."""
        return self._handle.get().registered_bytes()

    @property
    def cached_bytes(self):
        """Bytes of device memory that keep what scans have read."""
        return self._handle.get().cached_bytes()

    def release_unused(self):
        """Release what is kept of files and no run uses, and return how many bytes those were."""
        cdef size_t size
        with nogil:
            size = self._handle.get().release_unused()
        return size

    def close(self):
        """Give up memory and threads; nothing may be running."""
        with nogil:
            self._handle.reset()
