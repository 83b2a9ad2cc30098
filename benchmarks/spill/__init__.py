"""Spilling to disk beside ``dd`` on the same file system."""
