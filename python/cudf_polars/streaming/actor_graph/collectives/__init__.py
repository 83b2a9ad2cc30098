"""Identification of collective operations."""
