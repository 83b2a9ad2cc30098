"""PDS-H: the 22 queries derived from TPC-H, on our engine and on Polars' own, side by side."""
