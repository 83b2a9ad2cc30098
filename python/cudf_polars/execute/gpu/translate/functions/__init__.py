"""The functions of Polars that are computed row by row, as calls of primitives."""

from __future__ import annotations

from cudf_polars.execute.gpu.translate.functions import dates, logic, nested, numbers, texts
from cudf_polars.execute.gpu.translate.functions.call import Form, FunctionCall, Translate
from cudf_polars.execute.gpu.translate.functions.nested import field_of
from cudf_polars.execute.gpu.translate.typed import Scope, Typed
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan import expressions as ex

__all__ = ["FORMS", "field_of", "translate_function"]

FORMS: dict[str, Form] = {**numbers.FORMS, **logic.FORMS, **texts.FORMS, **dates.FORMS, **nested.FORMS}
"""By the name of the function; what is missing has no form on a GPU."""


def translate_function(expr: ex.Function, scope: Scope, translate: Translate) -> Typed:
    """Return a function as calls of primitives.

    Raises
    ------
    Unsupported
        If it has no form on a GPU.
    """
    form = FORMS.get(expr.name)
    if form is None:
        raise Unsupported(f"the function {expr.name} has no form on a GPU")
    return form(FunctionCall(expr, scope, translate))
