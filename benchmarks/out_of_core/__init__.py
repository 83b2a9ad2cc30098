"""Queries over tables that are larger than the memory that they get."""
