"""Runs fragments of a query on a GPU: typed plans become programs, which librapidsmpf_compute runs."""
