"""An emulator of libcudf: runs programs for a GPU on the CPU, with libcudf's semantics, never those of Polars.

What libcudf leaves undefined (integer division by zero, casts that do not fit, extremes beside NaN) gives values that
nobody would expect, and what it leaves without an order comes in a random one, so that a program which relies on either
gives a wrong answer. Types that libcudf does not take are errors. The sources are the documentation in libcudf's public
headers, and runs on a GPU (``support/gpu_conformance.py`` has the programs for that).
"""

from support.cudf_emulator.errors import ProgramError
from support.cudf_emulator.run import run

__all__ = ["ProgramError", "run"]
