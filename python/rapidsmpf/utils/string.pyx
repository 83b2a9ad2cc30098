"""Reading and writing sizes, durations and truth values as people write them."""

from libc.stdint cimport int64_t
from libcpp cimport bool as cpp_bool
from libcpp.string cimport string

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/core/config.hpp>" namespace "rapidsmpf::config" nogil:
    int64_t cpp_parse_bytes "rapidsmpf::config::parse_bytes"(string) except +translate_exception
    int64_t cpp_parse_bytes_or_percent "rapidsmpf::config::parse_bytes_or_percent"(
        string, int64_t
    ) except +translate_exception
    cpp_bool cpp_parse_bool "rapidsmpf::config::parse_bool"(string) except +translate_exception
    double cpp_parse_duration "rapidsmpf::config::parse_duration"(string) except +translate_exception
    cpp_bool cpp_is_disabled "rapidsmpf::config::is_disabled"(string) except +translate_exception
    string cpp_format_bytes "rapidsmpf::config::format_bytes"(double) except +translate_exception

__all__ = [
    "format_bytes",
    "is_disabled",
    "parse_boolean",
    "parse_bytes",
    "parse_bytes_or_percent",
    "parse_duration",
]


def format_bytes(x):
    """Write a number of bytes with a binary unit, such as "1.50 KiB"."""
    return cpp_format_bytes(float(x)).decode()


def parse_bytes(value):
    """Read a number of bytes.

    Parameters
    ----------
    value
        A string such as "100 MB", "1KiB" or "1e6", or a number of bytes.

    Returns
    -------
    Bytes.

    Raises
    ------
    ValueError
        If the string is not a size.
    """
    if not isinstance(value, str):
        return int(value)
    return cpp_parse_bytes(value.encode())


def parse_bytes_or_percent(str value not None, int64_t total):
    """Read a number of bytes, or a share such as "80%" of ``total`` bytes; ValueError if it is neither."""
    return cpp_parse_bytes_or_percent(value.encode(), total)


def parse_boolean(str boolean not None):
    """Read true, yes, y, on, 1 or false, no, n, off, 0 in any case; ValueError if it is none of them."""
    return cpp_parse_bool(boolean.encode())


def parse_duration(str value not None):
    """Read a duration such as "100ms", "2 s" or "1.5" (seconds) as seconds; ValueError if it is none."""
    return cpp_parse_duration(value.encode())


def is_disabled(str value not None):
    """Whether a string is one of false, no, off, disable and disabled in any case."""
    return cpp_is_disabled(value.encode())
