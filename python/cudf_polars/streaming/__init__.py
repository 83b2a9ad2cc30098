"""Streaming execution across ranks."""
