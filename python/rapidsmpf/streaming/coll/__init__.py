"""Collectives that coroutines await."""
