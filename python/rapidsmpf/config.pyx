"""Options: string key-value pairs that become typed on first use.

``docs/options.md`` lists what the library reads.
"""

from dataclasses import dataclass

from cpython.object cimport PyObject
from libcpp.memory cimport shared_ptr
from libcpp.utility cimport move

from rapidsmpf.error import OptionTypeError
from rapidsmpf.signatures import STUB_SIGNATURE
from rapidsmpf.utils.string import is_disabled, parse_boolean, parse_bytes


cdef extern from "<rapidsmpf/core/config.hpp>" namespace "rapidsmpf::config" nogil:
    cpp_Options cpp_deserialize "rapidsmpf::config::Options::deserialize"(
        vector[uint8_t]
    ) except +translate_exception
    cpp_map[string, string] cpp_environment "rapidsmpf::config::get_environment_variables"(
        string
    ) except +translate_exception

cdef extern from "<rapidsmpf_python/options.hpp>" namespace "rapidsmpf::python" nogil:
    void translate_option_error()
    cpp_bool get_option_bool "rapidsmpf::python::get_option<bool>"(
        cpp_Options&, string, PyObject*) except +translate_option_error
    int64_t get_option_int "rapidsmpf::python::get_option<std::int64_t>"(
        cpp_Options&, string, PyObject*) except +translate_option_error
    double get_option_float "rapidsmpf::python::get_option<double>"(
        cpp_Options&, string, PyObject*) except +translate_option_error
    string get_option_str "rapidsmpf::python::get_option<std::string>"(
        cpp_Options&, string, PyObject*) except +translate_option_error
    shared_ptr[PyObject] get_option_object(
        cpp_Options&, string, PyObject*) except +translate_option_error

cdef extern from * nogil:
    """
    #include <string>
    #include <vector>
    #include <rapidsmpf/core/detail/option_table.hpp>
    // A row of the table of options, as text.
    struct OptionRow {
        std::string key, kind, type, default_text, meaning, words;
        bool off, effective;
    };
    static std::vector<OptionRow> option_rows() {
        using namespace rapidsmpf::config;
        std::vector<OptionRow> rows;
        for (auto const& info : option_table) {
            rows.push_back(
                {std::string{info.key}, std::string{name_of(info.type)}, std::string{to_string(info.type)},
                 std::string{info.default_text},
                 std::string{info.meaning}, std::string{info.words}, info.off == OptionOff::yes,
                 info.effect == OptionEffect::full});
        }
        return rows;
    }
    """
    cdef cppclass OptionRow:
        string key
        string kind
        string type
        string default_text
        string meaning
        string words
        cpp_bool off
        cpp_bool effective

    vector[OptionRow] option_rows() except +translate_exception

cdef extern from "<rapidsmpf/core/detail/option_table.hpp>" namespace "rapidsmpf::config" nogil:
    void cpp_check_option "rapidsmpf::config::check_option"(string, string) except +translate_exception

__all__ = [
    "OptionInfo",
    "Optional",
    "OptionalBytes",
    "Options",
    "check_option",
    "get_environment_variables",
    "registered_options",
]


@dataclass(frozen=True)
class OptionInfo:
    """An option that the library reads.

    Attributes
    ----------
    key
        Its name; its environment variable is ``RAPIDSMPF_`` and the name in capitals.
    kind
        What its value is: "boolean", "count", "bytes", "share", "fraction", "duration" or "text".
    type
        The same in words.
    default
        The value that it has when it is not set, as a user would write it; may be empty.
    can_be_off
        Whether false, no, off, disable and disabled are values, too.
    effective
        Whether it changes anything in this version; else it is accepted so that scripts run unchanged.
    words
        The values of a text that are allowed; empty: any.
    meaning
        What it does.
    """

    key: str
    kind: str
    type: str
    default: str
    can_be_off: bool
    effective: bool
    words: tuple
    meaning: str


def registered_options():
    """Return what the library reads: the table that ``docs/options.md`` shows."""
    return [
        OptionInfo(
            (<bytes> row.key).decode(),
            (<bytes> row.kind).decode(),
            (<bytes> row.type).decode(),
            (<bytes> row.default_text).decode(),
            row.off,
            row.effective,
            tuple((<bytes> row.words).decode().split("|")) if row.words.size() else (),
            (<bytes> row.meaning).decode(),
        )
        for row in option_rows()
    ]


def check_option(str key not None, str text not None):
    """Raise ValueError unless a text is a value of an option; the message names the option.

    Parameters
    ----------
    key
        An option of :func:`registered_options`.
    text
        What it would be set to; blank means its default.

    Raises
    ------
    IndexError
        If there is no option of that name.
    """
    cdef string name = key.encode("utf-8", "surrogateescape")
    cdef string value = text.encode("utf-8", "surrogateescape")
    with nogil:
        cpp_check_option(name, value)


cdef cpp_map[string, string] _to_strings(object values) except *:
    cdef cpp_map[string, string] result
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(
                f"options are strings: got {type(key).__name__} -> {type(value).__name__} for {key!r}"
            )
        result[key.encode("utf-8", "surrogateescape")] = value.encode("utf-8", "surrogateescape")
    return result


cdef dict _from_strings(cpp_map[string, string] values):
    return {
        (<bytes> item.first).decode("utf-8", "surrogateescape"):
        (<bytes> item.second).decode("utf-8", "surrogateescape")
        for item in values
    }


class Optional:
    """An option value that can be switched off.

    Parameters
    ----------
    value
        The value. A string among "false", "no", "off", "disable" and "disabled" (in any case) switches it off.

    Attributes
    ----------
    value
        The value as given, or None when it is switched off.

    Examples
    --------
    >>> Optional("OFF").value
    >>> Optional("100").value
    '100'
    """

    def __init__(self, value):
        self.value = None if isinstance(value, str) and is_disabled(value) else value

    def __repr__(self):
        return f"{type(self).__name__}({self.value!r})"

    def __eq__(self, other):
        return type(self) is type(other) and self.value == other.value

    def __hash__(self):
        return hash((type(self), self.value))


class OptionalBytes(Optional):
    """A number of bytes that can be switched off.

    Parameters
    ----------
    value
        A size such as "1MiB", "100 MB" or "1e6", one of the words that switch it off (see :class:`Optional`), or a
        number of bytes.

    Attributes
    ----------
    value
        Bytes, or None when it is switched off.

    Raises
    ------
    ValueError
        If the string is not a size.

    Examples
    --------
    >>> OptionalBytes("1KiB").value
    1024
    """

    def __init__(self, value):
        super().__init__(value)
        if self.value is not None:
            self.value = parse_bytes(self.value)


cdef class Options:
    """Options as a shared handle: copies in C++ see the same values.

    Keys are trimmed and lower-cased. The first :meth:`get` of a key gives it its type.

    Parameters
    ----------
    options_as_strings
        Option names and their values.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(self, options_as_strings=None):
        cdef cpp_map[string, string] values
        if options_as_strings is not None:
            values = _to_strings(options_as_strings)
        with nogil:
            self._handle = cpp_Options(move(values))

    def insert_if_absent(self, dict options_as_strings not None):
        """Insert the pairs whose keys are not there yet.

        Parameters
        ----------
        options_as_strings
            Option names and their values.

        Returns
        -------
        How many were new.
        """
        cdef cpp_map[string, string] values = _to_strings(options_as_strings)
        cdef size_t inserted
        with nogil:
            inserted = self._handle.insert_if_absent(move(values))
        return inserted

    def get(self, str key not None, *, return_type, factory):
        """Return an option's value with its type.

        On first access ``factory`` makes the value from the option's string, or from the empty string when the
        option is not set; the result is kept.

        Parameters
        ----------
        key
            The option's name.
        return_type
            One of bool, int, float and str, which C++ can read too, or any other type (``object`` for any).
        factory
            Makes the value from a string. It must not use this object.

        Returns
        -------
        The value.

        Raises
        ------
        TypeError
            If the option was read before with another type (the error is a ValueError as well), or ``factory``
            returned another type.
        ValueError
            If ``return_type`` is not a type.
        """
        if not isinstance(return_type, type):
            raise ValueError(f"return_type must be a type, got {return_type!r}")
        cdef string name = key.encode()
        cdef cpp_bool as_bool
        cdef int64_t as_int
        cdef double as_float
        cdef string as_str
        cdef shared_ptr[PyObject] as_object

        def checked(text):
            value = factory(text)
            if not isinstance(value, return_type) and not (return_type is float and isinstance(value, int)):
                raise TypeError(
                    f"the factory of option {key!r} returned {type(value).__name__}, "
                    f"not {return_type.__name__}"
                )
            return value

        cdef PyObject* function = <PyObject*> checked
        if return_type is bool:
            with nogil:
                as_bool = get_option_bool(self._handle, name, function)
            return as_bool
        if return_type is int:
            with nogil:
                as_int = get_option_int(self._handle, name, function)
            return as_int
        if return_type is float:
            with nogil:
                as_float = get_option_float(self._handle, name, function)
            return as_float
        if return_type is str:
            with nogil:
                as_str = get_option_str(self._handle, name, function)
            return as_str.decode("utf-8", "surrogateescape")
        with nogil:
            as_object = get_option_object(self._handle, name, function)
        value = <object> as_object.get()
        if not isinstance(value, return_type):
            raise OptionTypeError(
                f"option {key!r} was read before as {type(value).__name__}, now as {return_type.__name__}"
            )
        return value

    def get_or_default(self, str key not None, *, default_value):
        """Return an option's value, or a default when it is not set.

        Parameters
        ----------
        key
            The option's name.
        default_value
            The default; its type is that of the option. A string of the option is made into that type: by
            ``parse_boolean`` for bool, else by calling the type.

        Returns
        -------
        The value. It is kept: later calls return it whatever their default is.

        Raises
        ------
        ValueError
            If the string cannot be made into that type.
        TypeError
            If the option was read before with another type.

        Examples
        --------
        >>> Options({"timeout": "2"}).get_or_default("timeout", default_value=1.5)
        2.0
        """
        return_type = type(default_value)

        def factory(text):
            if not text:
                return default_value
            if return_type is bool:
                return parse_boolean(text)
            return return_type(text)

        return self.get(key, return_type=return_type, factory=factory)

    def get_strings(self):
        """Return all pairs as strings.

        A value that was only ever set from code has the empty string.
        """
        cdef cpp_map[string, string] values
        with nogil:
            values = self._handle.get_strings()
        return _from_strings(values)

    def serialize(self):
        """Return the options in binary form.

        Returns
        -------
        Magic, version, flags, the number of pairs, their offsets, their bytes and a CRC-32.

        Raises
        ------
        ValueError
            If an option has been read already: its string may no longer say what it is.
        """
        cdef vector[uint8_t] data
        with nogil:
            data = self._handle.serialize()
        return (<char*> data.data())[:data.size()]

    @staticmethod
    def deserialize(bytes serialized_buffer not None):
        """Return the options that :meth:`serialize` wrote.

        Parameters
        ----------
        serialized_buffer
            What :meth:`serialize` returned.

        Raises
        ------
        ValueError
            If the bytes are malformed.
        """
        cdef Options result = Options.__new__(Options)
        cdef const uint8_t* begin = <const uint8_t*> <const char*> serialized_buffer
        cdef vector[uint8_t] data
        data.assign(begin, begin + len(serialized_buffer))
        with nogil:
            result._handle = cpp_deserialize(move(data))
        return result

    def __reduce__(self):
        return Options.deserialize, (self.serialize(),)

    def __repr__(self):
        return f"Options({self.get_strings()!r})"


def get_environment_variables(str key_regex="RAPIDSMPF_(.*)"):
    """Return the environment variables that match an expression, keyed by its one group.

    Parameters
    ----------
    key_regex
        A regular expression (ECMAScript) with exactly one group, which all of a variable's name must match.

    Returns
    -------
    What the group matched, and the variable's value.

    Raises
    ------
    ValueError
        If the expression is malformed or has not exactly one group.
    """
    cdef string expression = key_regex.encode()
    cdef cpp_map[string, string] values
    with nogil:
        values = cpp_environment(expression)
    return _from_strings(values)
