"""Runs fragments of a query on a GPU: translates typed plans to programs, which the operators of librapidsmpf_compute run."""
