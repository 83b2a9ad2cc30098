"""Benchmarks: each one prints our time and a peer's, measured side by side in one run."""
