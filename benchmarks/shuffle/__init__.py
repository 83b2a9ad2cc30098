"""Shuffles between processes, beside what else moves the same bytes: MPI, sockets and Dask."""
