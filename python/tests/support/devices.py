"""Marks of tests that need a GPU, or none."""

from __future__ import annotations

import pytest

from cudf_polars.engine.compute_device import gpu_unavailable, has_gpu

needs_no_gpu = pytest.mark.skipif(has_gpu(), reason="about machines without a GPU")
needs_gpu = pytest.mark.skipif(gpu_unavailable() is not None, reason=f"needs a GPU: {gpu_unavailable()}")
