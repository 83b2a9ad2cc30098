"""The translator: a typed plan becomes a program for libcudf.

All knowledge of what Polars means is here; a program calls primitives with libcudf's own semantics.
"""

from cudf_polars.execute.gpu.translate.nodes import TranslatedProgram, refusals, translate
from cudf_polars.execute.gpu.translate.untranslatable import UntranslatablePlan

__all__ = ["TranslatedProgram", "UntranslatablePlan", "refusals", "translate"]
