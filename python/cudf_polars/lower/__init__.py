"""From a typed plan to a physical one: fragments that need no other rank, joined by exchanges."""

from cudf_polars.lower.explain import explain_physical
from cudf_polars.lower.fallback import FallbackWarning

__all__ = ["FallbackWarning", "explain_physical"]
