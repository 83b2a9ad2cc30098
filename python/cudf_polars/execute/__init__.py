"""Runs physical plans: fragments by Polars on this rank, exchanges by a transport."""
