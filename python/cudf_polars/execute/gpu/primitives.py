"""The primitives that a program may call: libcudf's functions, by name, with libcudf's semantics.

One line a primitive: name, number of arguments (``*``: any), names of the options, and the function of libcudf. The
operators (``cpp/src/compute/functions*.cpp``) have a table of the same names, and a test compares the two; the emulator
of the tests runs them on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PRIMITIVES", "Primitive"]


@dataclass(frozen=True, slots=True)
class Primitive:
    """One primitive: how many arguments it takes (``None``: any number), and its options by name."""

    name: str
    arity: int | None
    options: tuple[str, ...]
    function: str


_TABLE = """
add              2  -  binary_operation ADD
sub              2  -  binary_operation SUB
mul              2  -  binary_operation MUL (decimals: exact, the scale of the result is the sum of the scales)
div              2  -  binary_operation DIV (integers: towards zero, undefined by 0; decimals: digits cut off)
true_div         2  -  binary_operation TRUE_DIV
floor_div        2  -  binary_operation FLOOR_DIV
mod              2  -  binary_operation MOD (sign of the dividend)
pymod            2  -  binary_operation MOD, and the divisor added where the signs differ
pow              2  -  binary_operation POW (floats)
int_pow          2  -  binary_operation INT_POW
atan2            2  -  binary_operation ATAN2
equal            2  -  binary_operation EQUAL (floats: IEEE; null if one is null)
not_equal        2  -  binary_operation NOT_EQUAL
less             2  -  binary_operation LESS
greater          2  -  binary_operation GREATER
less_equal       2  -  binary_operation LESS_EQUAL
greater_equal    2  -  binary_operation GREATER_EQUAL
null_equals      2  -  binary_operation NULL_EQUALS (never null)
null_not_equals  2  -  binary_operation NULL_NOT_EQUALS (never null)
null_max         2  -  binary_operation NULL_MAX (the other value if one is null)
null_min         2  -  binary_operation NULL_MIN
null_logical_and 2  -  binary_operation NULL_LOGICAL_AND (Kleene)
null_logical_or  2  -  binary_operation NULL_LOGICAL_OR (Kleene)
bitwise_and      2  -  binary_operation BITWISE_AND
bitwise_or       2  -  binary_operation BITWISE_OR
bitwise_xor      2  -  binary_operation BITWISE_XOR
shift_left       2  -  binary_operation SHIFT_LEFT
shift_right      2  -  binary_operation SHIFT_RIGHT
sin              1  -  unary_operation SIN
cos              1  -  unary_operation COS
tan              1  -  unary_operation TAN
arcsin           1  -  unary_operation ARCSIN
arccos           1  -  unary_operation ARCCOS
arctan           1  -  unary_operation ARCTAN
sinh             1  -  unary_operation SINH
cosh             1  -  unary_operation COSH
tanh             1  -  unary_operation TANH
arcsinh          1  -  unary_operation ARCSINH
arccosh          1  -  unary_operation ARCCOSH
arctanh          1  -  unary_operation ARCTANH
exp              1  -  unary_operation EXP
log              1  -  unary_operation LOG (natural)
sqrt             1  -  unary_operation SQRT
cbrt             1  -  unary_operation CBRT
ceil             1  -  unary_operation CEIL
floor            1  -  unary_operation FLOOR
abs              1  -  unary_operation ABS
rint             1  -  unary_operation RINT (half to even)
negate           1  -  unary_operation NEGATE
bit_invert       1  -  unary_operation BIT_INVERT
bit_count        1  -  unary_operation BIT_COUNT
not              1  -  unary_operation NOT (null stays null)
is_null          1  -  is_null
is_valid         1  -  is_valid
is_nan           1  -  is_nan (null: false)
is_not_nan       1  -  is_not_nan (null: true)
cast             1  -  cast (between types of fixed width; out of range: undefined or wraps; decimals: digits cut off)
bit_cast         1  -  bit_cast (same width, the same bits)
round            1  decimals mode  round, of floats and integers; mode half_even, half_up
round_decimal    1  decimals mode  round_decimal
copy_if_else     3  -  copy_if_else (mask, then, else); a null mask takes else
replace_nulls    2  -  replace_nulls (column, value or column)
nans_to_nulls    1  -  nans_to_nulls
normalize_nans_and_zeros 1 -  normalize_nans_and_zeros
contains         2  -  contains (haystack constant, needles): null needle gives null; NaNs are equal
clamp            3  -  clamp (column, low, high)
null             0  -  a column of nulls of the call's type
str.length       1  -  strings::count_characters (INT32)
str.bytes        1  -  strings::count_bytes (INT32)
str.contains     1  pattern  strings::contains_re (a constant text that libcudf's regular expressions take)
str.matches      1  pattern  strings::matches_re
str.count        1  pattern  strings::count_re
str.like         1  pattern escape  strings::like
str.find         1  text  strings::find: character position, -1 if not there
str.has          2  -  strings::contains of a literal text (column, constant or column)
str.starts_with  2  -  strings::starts_with (column, constant or column)
str.ends_with    2  -  strings::ends_with
str.upper        1  -  strings::to_upper
str.lower        1  -  strings::to_lower
str.slice        1  start stop  strings::slice_strings: characters from start to stop, -1 as stop: to the end
str.slice_columns 3 -  strings::slice_strings with columns of starts and stops (INT32)
str.concat       *  separator  strings::concatenate: null if one is null
str.replace      1  target replacement count  strings::replace (count -1: all)
str.replace_re   1  pattern replacement count  strings::replace_re
str.strip        1  side characters  strings::strip; side both, left, right; no characters: white space
str.zfill        1  width  strings::zfill
str.pad          1  width side fill  strings::pad; side left: fills on the left
str.repeat       1  count  strings::repeat_strings
str.reverse      1  -  strings::reverse
str.is_integer   1  -  strings::is_integer of the type named by the second call's type; BOOL8
str.to_integers  1  -  strings::to_integers
str.is_float     1  -  strings::is_float
str.to_floats    1  -  strings::to_floats
str.from_integers 1 -  strings::from_integers
str.from_booleans 1 -  strings::from_booleans as true and false
str.to_timestamps 1 format  strings::to_timestamps
str.is_timestamp 1 format  strings::is_timestamp
str.from_timestamps 1 format  strings::from_timestamps
dt.component     1  component  datetime::extract_datetime_component (INT16), year to nanosecond
dt.day_of_year   1  -  datetime::day_of_year (INT16)
dt.last_day_of_month 1 -  datetime::last_day_of_month (TIMESTAMP_DAYS)
dt.is_leap_year  1  -  datetime::is_leap_year
dt.days_in_month 1  -  datetime::days_in_month (INT16)
dt.quarter       1  -  datetime::extract_quarter (INT16)
dt.add_months    2  -  datetime::add_calendrical_months (column, INT16 or INT32 constant or column)
dt.floor         1  frequency  datetime::floor_datetimes: day hour minute second millisecond microsecond nanosecond
list.length      1  -  lists::count_elements (INT32)
list.contains    2  -  lists::contains
list.get         1  index  lists::extract_list_element
list.sum         1  -  segmented_reduce SUM
list.min         1  -  segmented_reduce MIN
list.max         1  -  segmented_reduce MAX
struct.field     1  index  a child of a struct column, null where the struct is
"""


def _parse(line: str) -> Primitive:
    name, arity, rest = line.split(None, 2)
    first, _, function = rest.partition("  ")
    options = () if first.strip() == "-" else tuple(first.split())
    return Primitive(name, None if arity == "*" else int(arity), options, function.strip())


PRIMITIVES: dict[str, Primitive] = {p.name: p for p in map(_parse, filter(None, _TABLE.splitlines()))}
"""All primitives by name."""
