"""Riverrun's engines for Polars: ``collect(engine=SPMDEngine())`` over cores, hosts and memory tiers."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("riverrun")
except PackageNotFoundError:  # used from a source tree
    __version__ = "0"
